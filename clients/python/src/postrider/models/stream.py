"""What the live stream tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .records import Attempt, Delivery
from .destinations import Transition

__all__ = [
    "AttemptEvent",
    "ClosedEvent",
    "DeadEvent",
    "FilterOverBudgetEvent",
    "LaggedEvent",
    "StreamEvent",
    "TransitionEvent",
    "UnknownEvent",
    "WarningEvent",
]


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """An attempt was made."""

    delivery: Delivery
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class TransitionEvent:
    """A destination changed its state."""

    destination_id: str
    url: str
    transition: Transition


@dataclass(frozen=True, slots=True)
class DeadEvent:
    """A delivery used up its retries."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class WarningEvent:
    """A destination is in trouble."""

    destination_id: str
    url: str
    warning: Any


@dataclass(frozen=True, slots=True)
class FilterOverBudgetEvent:
    """A filter took more steps than it may, and events were delivered unfiltered."""

    subscription_id: str
    events: int
    last_event_id: str
    since: datetime


@dataclass(frozen=True, slots=True)
class LaggedEvent:
    """The reader was too slow: so many events were missed, and the stream ends."""

    missed: int


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """The key was revoked or has expired, and the stream ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a newer server."""

    event: str
    data: dict[str, Any]


StreamEvent = (
    AttemptEvent
    | TransitionEvent
    | DeadEvent
    | WarningEvent
    | FilterOverBudgetEvent
    | LaggedEvent
    | ClosedEvent
    | UnknownEvent
)
