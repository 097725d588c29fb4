"""Replays, figures, the catalogue, erasures, and the server itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .words import BackupState, Conduct, ErasureState, EventTypeScope, MatchReason, ReplayState

__all__ = [
    "AlertTarget",
    "AlertTestResult",
    "Arrivals",
    "AuditEntry",
    "Backup",
    "Catalogue",
    "Condition",
    "DeadGroup",
    "DeadLetters",
    "DestinationSummary",
    "Disk",
    "DueCount",
    "DueHour",
    "Erasure",
    "EventType",
    "FilterTrialAnswer",
    "FilterVerdict",
    "FiringAlert",
    "Lane",
    "Lanes",
    "Ledger",
    "Limit",
    "MassFailureState",
    "Match",
    "Node",
    "OwnCatalogue",
    "PortalLink",
    "PortalLinkCreated",
    "RateLimit",
    "Replay",
    "ReplayFilter",
    "ReplayOutcomes",
    "RetriesDue",
    "SentHeader",
    "SentRequest",
    "Server",
    "Setting",
    "Span",
    "Stats",
    "Theme",
    "TriedEvent",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Which deliveries a job replays."""

    state: str | None
    type: str | None
    destination: str | None
    ended_since: datetime | None = None
    since: datetime | None
    subscription: str | None
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcomes:
    """What became of the deliveries that a bulk replay sent; together they are as many as it sent."""

    dead: int
    delivered: int
    failed: int
    """Attempted since, and each time it failed; they wait for their next slots."""
    pending: int
    """Not attempted since."""
    withdrawn: int
    """Cancelled, or sent by a later bulk replay, before they were delivered or dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A bulk replay."""

    id: str
    state: ReplayState
    created_at: datetime
    done: int
    """How many it has replayed."""
    filter: ReplayFilter
    finished_at: datetime | None
    outcomes: ReplayOutcomes | None = None
    """What became of the deliveries that it sent; ``None`` where the server does not know, or is older."""
    per_second: int | None
    skipped: int | None = None
    """When it has finished: how many of ``total`` it did not send."""
    total: int
    """How many it will replay, as counted at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """`accepted = queued + in_flight + waiting + delivered + dead + cancelled`, always."""

    accepted: int
    cancelled: int
    dead: int
    delivered: int
    in_flight: int
    queued: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What happened in one span."""

    accepted: int
    """Deliveries accepted."""
    at: datetime
    """Begin of the span."""
    dead: int
    """Deliveries that died."""
    delivered: int
    """Deliveries that arrived."""
    failed: int
    """Attempts that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What happened over time."""

    data: list[Span]
    """One entry for each span, oldest first; spans in which nothing happened are zero."""
    since: datetime
    step_minutes: int
    until: datetime
    arrivals: Arrivals | None = None
    """How long deliveries took lately; None where none arrived, or where the server is older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The time from acceptance to arrival, of deliveries that arrived in the last five minutes at their first attempt, at
    the node that answered."""

    count: int
    """How many arrived."""
    p50_ms: int
    """The time that half of them did not exceed. It may be off by a fifth, and so may the other."""
    p99_ms: int
    """The time that 99 of 100 did not exceed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCount:
    """A count of waiting deliveries."""

    complete: bool
    """Whether the count is exact."""
    count: int
    """How many; at least so many where the count is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueHour:
    """The waiting deliveries that fall due in one hour."""

    at: datetime
    """The start of the hour."""
    complete: bool
    """Whether the count is exact."""
    count: int
    """How many; at least so many where the count is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriesDue:
    """When waiting deliveries fall due."""

    complete: bool
    """Whether every count is exact."""
    hours: list[DueHour]
    """The next 48 hours."""
    later: DueCount
    """Due after them."""
    now: datetime
    """The server's time: the first of the hours begins then."""
    overdue: DueCount
    """Due before now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead deliveries of one destination with the same reason."""

    count: int
    """How many of them were counted."""
    destination_id: str
    first_at: datetime
    """When the first of them died."""
    last_at: datetime
    """When the last of them died."""
    reason: str
    """`exhausted` or `not_admitted`."""
    tenant: str | None = None
    """Whose they are; only in an answer about all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Dead deliveries in groups."""

    complete: bool
    """Whether all dead deliveries were counted. Where more are dead, the newest are counted."""
    counted: int
    """How many dead deliveries were counted."""
    data: list[DeadGroup]
    """The largest groups, largest first."""
    groups: int
    """How many groups there are, those included that are not in `data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit, and how near the tenant is to it."""

    name: str
    """What is limited."""
    limit: int | None
    """How much there may be; null where there is no limit."""
    setting: str
    """The operator's setting."""
    used: int
    """How much there is. `unfinished_bytes` is an estimate."""
    own: bool = False
    """Whether it is the tenant's own limit, and not the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterVerdict:
    """Whether the event passes."""

    matches: bool
    """Whether a subscription with this filter is delivered the event."""
    over_budget: bool
    """Whether the filter took more steps than it may: the event is delivered unfiltered then."""
    steps: int
    """The steps that it took: values that were looked at, words of paths, and 64 bytes of compared text
    each."""
    steps_max: int
    """The steps that a filter may take on one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log."""

    id: str
    action: str
    """What was done."""
    actor: str
    """`key`, `environment` (the admin key of the environment) or `server`."""
    address: str | None
    """The address that the request came from."""
    at: datetime
    """When the change ended."""
    key: str
    """The key's identifier; where it was no key: `environment`, `server`, or `operator` for what the
    operator did at the machine."""
    key_name: str | None
    """What people call the key."""
    problem: str | None
    """The code of the problem, where it was refused or failed."""
    status: int | None
    """The status of the answer; null for what no request asked for."""
    target: str | None
    """To which one; null where nothing came to be."""
    target_kind: str
    """To what kind of thing."""
    tenant: str | None
    """Whose thing it was about; null where it is no tenant's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a filter."""

    holds: bool
    """Whether it holds by itself."""
    place: str
    """Where it stands in the filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One subscription, and whether it wants the event."""

    because: MatchReason
    conditions: list[Condition]
    """Its filter's conditions, where all else fits and the filter was asked; empty where it has none, or where
    that took too many steps."""
    matched: bool
    """Whether the event, sent now, would be delivered to it."""
    subscription_id: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedEvent:
    """What the filter says of one event."""

    accepted_at: datetime
    conditions: list[Condition]
    """Each condition by itself; empty where that took too many steps."""
    event_id: str
    matches: bool
    """Whether a subscription with this filter is delivered the event."""
    over_budget: bool
    """Whether the filter took more steps than it may: the event is delivered unfiltered then."""
    steps: int
    """The steps that it took."""
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTrialAnswer:
    """What the filter says of each event."""

    data: list[TriedEvent]
    """In the order in which they were named, or newest first."""
    steps_max: int
    """The steps that a filter may take on one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """An event type of the catalogue."""

    id: str
    """Its name, which is also its identifier."""
    name: str
    created_at: datetime
    deprecated: bool
    """Whether applications should stop sending it."""
    description: str | None
    example: Any
    """An example of `data`."""
    schema: Any
    """The JSON Schema of `data`, as it was given; None where any JSON fits."""
    scope: EventTypeScope
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCatalogue:
    """A tenant's own choices."""

    misfits: Conduct | None
    unknown_types: Conduct | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What is done with events that do not fit the catalogue."""

    misfits: Conduct
    """With an event whose `data` does not fit the schema of its type."""
    own: OwnCatalogue
    """The tenant's own choices; where one is None, the server's holds."""
    unknown_types: Conduct
    """With an event whose type is not in the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure of payloads."""

    id: str
    state: ErasureState
    """`erasing`: payloads are being removed. `scrubbing`: they cannot be read any more, and what is left of them
    in the store's files is being overwritten. `finished`."""
    already: int
    """Events that had been erased before."""
    attempts: int
    """Attempts whose response body was erased."""
    cancelled: int
    """Unfinished deliveries that were cancelled for it."""
    created_at: datetime
    erased: int
    """Events whose payload was erased."""
    event: str | None
    """The event whose payload is erased; None where it is an object's."""
    finished_at: datetime | None
    object: str | None
    """The object whose events are erased; None where it is one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSummary:
    """Destinations by state."""

    complete: bool
    """Whether all were counted; false where the tenant has more than 20,000: then the newest were."""
    disabled: int
    enabled: int
    frozen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHeader:
    """One header."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request to a receiver. Its secrets are masked."""

    body: str
    """The body as text; what is not UTF-8 is replaced."""
    body_bytes: int
    changed_since: bool
    """Whether the subscription was changed after the attempt: what was sent may have had other headers or
    another format."""
    headers: list[SentHeader]
    """In the order in which they are sent over HTTP/1.1. Tokens, signatures and the values of a subscription's
    own headers are masked."""
    method: str
    """Always `POST`."""
    rebuilt: bool
    """Always true: requests are not kept. This one is rendered again from the event, by the code that sends."""
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A rate."""

    name: str
    """`requests_per_second` or `events_per_second`."""
    limit: int | None
    """The limit; None if there is none."""
    own: bool
    """Whether it is the tenant's own limit, and not the server's."""
    setting: str
    """The operator's setting for all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """How a portal looks."""

    name: str | None
    accent: str | None
    logo: str | None
    """The address of the logo, relative to the server's."""
    mode: str | None
    """`light` or `dark`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalLink:
    """A portal link, without the link itself."""

    id: str
    access: str | None
    """`read` or `manage`."""
    created_at: datetime
    expires_at: datetime
    """Until when it can be used."""
    session_expires_at: datetime | None
    """When the session that it opened ends at the latest; None until it is used."""
    tenant: str | None
    theme: Theme
    used_at: datetime | None
    """When it was used; None until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalLinkCreated(PortalLink):
    """A portal link that was just made."""

    url: str = field(repr=False)
    """The link. It works once and is not shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """Something that is wrong."""

    count: int
    """How many the target was told of."""
    kind: str
    """What it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTarget:
    """A target of alerts."""

    name: str
    """Its name in the settings."""
    failures: int
    """Consecutive failures."""
    firing: list[FiringAlert]
    """What it was told and is not over."""
    kind: str
    """`webhook`, `slack` or `email`."""
    last_message_at: datetime | None
    """When the last one was sent."""
    messages: int
    """Messages that were sent."""
    next_try_at: datetime | None
    """When the next try is made, after a failure."""
    to: str
    """Where it is: the origin of a URL, or addresses. Secrets are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTestResult:
    """The outcome of a test message."""

    duration_ms: int
    """How long it took."""
    error: str | None
    """Why it failed."""
    kind: str
    """`webhook`, `slack` or `email`."""
    outcome: str
    """`sent` where the target accepted the message, else `failed`."""
    target: str
    """The target's name in the settings."""
    to: str
    """Where it is. Secrets are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk, in bytes."""

    data_bytes: int
    """What the data directory takes."""
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One queue."""

    depth: int
    """Deliveries in it, of all nodes; what is in flight is not."""
    in_flight: int
    """Attempts in flight, of the node that answers."""
    oldest_seconds: float | None
    """For how long its oldest delivery is due, in the shards of the node that answers; None where none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The two queues."""

    first: Lane
    retry: Lane | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MassFailureState:
    """Whether transitions to disabled and frozen are suspended, because most destinations of this node fail at
    once."""

    suspended: bool
    suspended_since: datetime | None
    """Since when; None where they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node."""

    name: str | None
    """Its name; None for the only one."""
    seen_at: datetime | None
    """When it last renewed its shards; None for the only one."""
    shards: int
    """How many of the 256 shards it owns."""
    this: bool
    """Whether it is the one that answers."""
    version: str | None
    """The version of its program; None where that is too old to say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The node that answers, and what all nodes have together."""

    clock_ahead_ms: int
    """By how much the server's time is ahead of its machine's clock."""
    disk: Disk | None
    lanes: Lanes
    mass_failure: MassFailureState
    nodes: list[Node]
    """Every node that is alive, by name; one without a name where the store has room for one node only."""
    now: datetime
    """The server's time now."""
    started_at: datetime
    store: str
    """`embedded` or `postgres`."""
    time_scale: int
    """What the policy's durations are divided by; 1 but for demonstrations."""
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    help: str
    """What it is."""
    key: str
    live: bool
    """Whether a running server takes a change of it (SIGHUP); else it needs a restart."""
    origin: str
    """Where it comes from: `default`, `file`, `env` or `flag`."""
    place: str
    """The same, exactly: file and line, variable or flag."""
    value: Any
    """As it would be written in the file; None where it is not set, `***` where it is a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup."""

    state: BackupState
    bytes: int
    """Bytes written so far."""
    error: str | None
    """Why it failed."""
    finished_at: datetime | None
    started_at: datetime
    to: str
    """The directory."""
