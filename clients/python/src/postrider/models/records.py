"""Tenants, keys, events, subscriptions and deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .words import AttemptOutcome, DeliveryState, SlotState
from .policies import EffectivePolicy, SubscriptionPolicy

__all__ = [
    "Attempt",
    "Certificate",
    "Delivery",
    "DeliveryDetail",
    "EventAccepted",
    "EventDetail",
    "EventSummary",
    "Explanation",
    "Key",
    "KeyCreated",
    "Misfit",
    "NextStep",
    "Outcome",
    "RetryPlace",
    "Schedule",
    "ScheduleSlot",
    "Standing",
    "Subscription",
    "SubscriptionWithSecret",
    "Tenant",
    "TestOutcome",
    "Timings",
    "Unblock",
    "Wait",
    "WorkfrontOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One customer of the application that sends the events."""

    id: str
    name: str | None
    created_at: datetime
    description: str | None = None
    events_per_second: int | None = None
    """Null where the server's limit holds."""
    metadata: dict[str, str] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    """Limits of its own, by name; for all others the server's hold."""
    requests_per_second: int | None = None
    """Null where the server's limit holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key, without the key."""

    id: str
    name: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """Roughly."""
    scopes: list[str]
    tenant: str | None
    """Null for an admin key, which is for all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreated(Key):
    """A key that was just created."""

    key: str = field(repr=False)
    """The key itself. It is not shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAccepted:
    """What became of an event."""

    id: str
    """The event's identifier."""
    deliveries: int
    """How many deliveries are owed for it."""
    duplicate: bool = False
    """True where it had been accepted before; nothing new is owed then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why an event does not fit the catalogue."""

    detail: str
    """What was expected; empty once the payload is erased."""
    pointer: str | None
    """Where in the data, as a JSON pointer; None where the fault has no place."""
    reason: str
    """``unknown_type``, ``payload`` or ``too_much_work``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSummary:
    """An event in a list, without its payload."""

    id: str
    type: str
    accepted_at: datetime
    """When it was accepted."""
    delivery_count: int
    """How many deliveries are owed for it."""
    erased_at: datetime | None = None
    """When its payload was erased; None where it was not."""
    flagged: Misfit | None = None
    """Why it did not fit the catalogue when it was accepted; None where it did, or where that was not checked."""
    object: str | None
    time: datetime
    """When it happened."""
    tenant: str | None = None
    """Only in lists of all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event owed to one subscription."""

    id: str
    """What the receiver sees as `webhook-id`."""
    state: DeliveryState
    type: str
    attempts: int
    """How often it was attempted, probes and replays included."""
    created_at: datetime
    destination_id: str
    event_id: str
    finished_at: datetime | None
    next_attempt_at: datetime | None
    """When it is attempted next, if the destination permits."""
    reason: str | None
    """Why, where it is dead or cancelled."""
    subscription_id: str
    tenant: str | None = None
    """Only in lists of all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDetail(EventSummary):
    """One event with its payload and its deliveries."""

    data: Any
    """The new state."""
    deliveries: list[Delivery]
    """The newest thousand."""
    old: Any
    """The state before; null where none was given."""
    deliveries_cursor: str | None = None
    """Give this as `cursor` to `/v1/deliveries?event=…` to get the deliveries that are not in `deliveries`; null if it has
    all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate, without anything that would be of use to others."""

    expires_at: datetime
    """Until when it holds."""
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal digits."""
    subject: str
    """Whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkfrontOptions:
    """How events look in the format `workfront`."""

    base64: bool
    """Whether both states are sent as base64 texts."""
    version: str
    """`v1` or `v2`."""
    version_changed_at: datetime | None
    """When the version was last changed; every event is sent in both versions for five minutes then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription."""

    id: str
    url: str
    auth_token: str | None
    """The last four characters of the token, the rest masked; all masked where it is short."""
    ca_certificates: list[Certificate]
    """The authorities that are believed instead of the usual ones; none: the usual ones."""
    client_certificate: Certificate | None
    """The certificate that is shown to the receiver. Its key is never shown."""
    created_at: datetime
    destination_id: str
    enabled: bool
    filter: dict[str, Any] | None
    format: str
    """`standard`, `cloudevents`, `raw` or `workfront`."""
    headers: dict[str, str]
    """Names of the headers, each with the last four characters of its value, the rest masked; all masked
    where it is short."""
    object: str | None
    public_key: str | None
    """What verifies signatures, where the secret is a `whsk_` one."""
    rate_limit: float | None
    retiring_secrets: int
    """How many older secrets still sign along."""
    secret_overlap_ends_at: datetime | None = None
    """When the last older secret stops signing along; null where none does."""
    effective_policy: EffectivePolicy | None = None
    """What holds for its deliveries; None where the server is too old to say so."""
    policy: SubscriptionPolicy | None = None
    """What it wants otherwise than the server's policy."""
    types: list[str]
    updated_at: datetime
    workfront: WorkfrontOptions | None = None
    """The options of the format `workfront`; null for the others."""
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    tenant: str | None = None
    """Only in lists of all tenants."""
    uid: str | None = None
    """The application's own identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionWithSecret(Subscription):
    """A subscription with its secret, which is shown this once."""

    secret: str = field(default="", repr=False)
    """The signing secret. It is not shown again; empty where the subscription with this ``uid`` was there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long each phase took, in milliseconds."""

    connect_ms: int | None
    connection: str
    """`fresh`, `reused` or `resent`."""
    dns_ms: int | None
    response_ms: int | None
    tls_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a request ended."""

    duration_ms: int
    error: str | None
    """The kind of failure: `status 500`, `refused`, `reset`, `dns`, `tls`, `timeout (connect)`, `blocked`,
    `protocol`, or a fault of our own."""
    outcome: AttemptOutcome
    response_body: str | None
    """The first 16 KiB of the answer's body."""
    response_body_end: str | None
    """Whether that was all of it: `whole`, `cut`, `late` or `broken`."""
    started_at: datetime
    status: int | None
    """The status that was answered; null where there was no answer."""
    timings: Timings
    detail: str | None = None
    """For admin keys only: what helps to find the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome(Outcome):
    """How a test went."""

    subscription_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Outcome):
    """One HTTP request made for a delivery."""

    number: int
    """From 1."""
    turn: str
    """`first`, `retry` or `probe`."""
    retry: int | None = None
    """Which retry it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSlot:
    """One slot of a schedule."""

    attempt: int | None
    """The number of the attempt that was made in it."""
    due_at: datetime
    """When it falls or fell due, by the policy as it is now."""
    number: int
    """Retry n; 0 for the first attempt."""
    state: SlotState
    """`delivered`, `failed`, `spent`, `in_flight`, `next`, `ahead` or `unneeded`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The schedule that a delivery follows, or followed last: a replay begins a new one."""

    asked_for_at: datetime | None
    """When an attempt is made that somebody asked for before the next slot; it takes no slot."""
    exact: bool
    """Whether `started_at` is known. False before the first attempt, and where a replay that has ended had none."""
    own_policy: bool = False
    """Whether the subscription has a schedule of its own."""
    replay: bool
    """Whether it began with a replay."""
    slots: list[ScheduleSlot]
    """Slot 0, the first attempt, then one for each retry."""
    started_at: datetime
    """What the slots are counted from: the first attempt, else acceptance or the replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDetail(Delivery):
    """A delivery with the record of what was tried."""

    attempt_log: list[Attempt]
    """The attempts, oldest first."""
    attempt_log_cursor: str | None
    """Give this as `cursor` to `/v1/deliveries/{id}/attempts` to get the attempts that are not in
    `attempt_log`; null where it has all of them."""
    schedule: Schedule | None = None
    """The slots that it follows; None where the server is too old to say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What happens next."""

    at: datetime | None
    """When; null where it depends on something else than time."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something that a delivery waits for. What does not belong to its reason is null."""

    at: datetime | None
    """When the next request may be sent; null where that is not known."""
    destinations: int | None
    """Destinations of its tenant that come before it."""
    in_flight: int | None
    """Attempts, or bytes, that are in flight."""
    limit: int | None
    """How many may be."""
    per_second: float | None
    """Requests a second."""
    reason: str
    """`destination_limit`, `destination_rate`, `tenant_limit`, `tenant_bytes`, `total_limit`, `turn` or
    `pause`."""
    tenants: int | None
    """Tenants that come before it."""
    what: str
    """The same, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a delivery that is due waits for."""

    ahead: int
    """Deliveries of its destination that are sent before it; at least so many where it is stored."""
    stored: bool
    """Whether it is still in the store, behind all that is in memory."""
    waits_for: list[Wait]
    """What the first of them waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblock:
    """Something that would help."""

    action: str
    """`fix_receiver`, `enable_destination`, `replay` or `resubscribe`."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlace:
    """Which retry of how many."""

    due_at: datetime
    """When its slot falls due. An attempt that somebody asked for comes before it and takes no slot."""
    max: int
    """How many retries there are."""
    number: int
    """Retry n; 0 for the first attempt of a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A delivery, explained in words and data."""

    because: list[str]
    """Why, one sentence each."""
    delivery: Delivery
    next: NextStep | None
    """What happens next; null where nothing does by itself."""
    slot: RetryPlace | None = None
    """The slot that it waits for; null where it waits for none."""
    standing: Standing | None
    """What it waits for where it is due; null where it is not, or where another node sends it."""
    summary: str
    """Where it stands, in a sentence."""
    unblock: list[Unblock]
    """What somebody can do about it; empty where nothing is needed."""
