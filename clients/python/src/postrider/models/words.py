"""Words that the API knows, and what requests are made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "AttemptOutcome",
    "BackupState",
    "Conduct",
    "DeadRecovery",
    "DeliveryState",
    "DestinationState",
    "ErasureState",
    "EventTypeScope",
    "Filter",
    "Format",
    "MatchReason",
    "MeasuredFrom",
    "NewAttemptPolicy",
    "NewEvent",
    "NewRecoveryPolicy",
    "NewRetryPolicy",
    "NewSubscriptionPolicy",
    "NewTheme",
    "PolicySource",
    "RecoveryMode",
    "ReplayState",
    "Scope",
    "SlotState",
]

DeliveryState = Literal["queued", "in_flight", "waiting", "delivered", "dead", "cancelled"]
DestinationState = Literal["enabled", "disabled", "frozen"]
ReplayState = Literal["running", "paused", "finished", "cancelled"]
AttemptOutcome = Literal["delivered", "failed"]
Scope = Literal["ingest", "manage", "read", "admin"]
Conduct = Literal["accept", "flag", "refuse"]
DeadRecovery = Literal["keep", "replay"]
RecoveryMode = Literal["slots", "drain"]
MeasuredFrom = Literal["first_attempt", "previous_attempt"]
PolicySource = Literal["server", "subscription"]
ErasureState = Literal["erasing", "scrubbing", "finished"]
EventTypeScope = Literal["tenant", "server"]
BackupState = Literal["running", "done", "failed"]
MatchReason = Literal["matched", "over_budget", "created_after", "disabled", "type", "object", "filter"]
SlotState = Literal["delivered", "failed", "spent", "in_flight", "next", "ahead", "unneeded"]
Format = Literal["standard", "cloudevents", "raw", "workfront"]

Filter = dict[str, Any]
"""A filter: ``{"field": "data.status", "op": "eq", "value": "CUR"}``, ``{"all": [...]}`` or ``{"any": [...]}``.

With ``"as": "time"`` beside ``gt``, ``gte``, ``lt`` or ``lte`` both sides are read as times."""


class NewEvent(TypedDict):
    """An event of a batch, as the application sends it."""

    type: str
    data: Any
    old: NotRequired[Any]
    object: NotRequired[str | None]
    id: NotRequired[str | None]
    time: NotRequired[datetime | str | None]


class NewAttemptPolicy(TypedDict, total=False):
    """One attempt."""

    deadline_seconds: float | None
    """For all of it: DNS, connect, TLS, request and response."""


class NewRetryPolicy(TypedDict, total=False):
    """The schedule of retries."""

    max: int | None
    unit_seconds: float | None
    """Retry n falls due (2^n - 1) units after the first attempt."""


class NewRecoveryPolicy(TypedDict, total=False):
    """What happens when the destination recovers."""

    mode: RecoveryMode | None
    dead: DeadRecovery | None
    dead_max_age_seconds: float | None


class NewSubscriptionPolicy(TypedDict, total=False):
    """What a subscription wants otherwise than the server's policy. In a change, what is left out stays as it is."""

    attempt: NewAttemptPolicy | None
    recovery: NewRecoveryPolicy | None
    retry: NewRetryPolicy | None


class NewTheme(TypedDict, total=False):
    """How a portal is to look."""

    accent: str | None
    """``#rrggbb``."""
    logo: str | None
    """A PNG, JPEG or WebP of at most 32 KiB, in base64."""
    mode: Literal["light", "dark"] | None
    name: str | None
    """What stands in place of Postrider's name."""
