"""Destinations and their circuits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .words import DestinationState
from .policies import DestinationRate, DestinationRecovery

__all__ = [
    "CountThreshold",
    "Counters",
    "Destination",
    "ShareThreshold",
    "Thresholds",
    "TimeThreshold",
    "Transition",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountThreshold:
    """A count on its way to its limit."""

    limit: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareThreshold:
    """Disabled when more than `limit` of more than `grace` attempts failed."""

    attempts: int
    failures: int
    grace: int
    limit: float
    share: float
    """The share that failed so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeThreshold:
    """Frozen when there are more consecutive failures and a longer time without success than these."""

    consecutive_failures: CountThreshold
    seconds_without_success: CountThreshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """How near a destination is to each threshold."""

    disabled_by_consecutive_failures: CountThreshold
    disabled_by_failure_share: ShareThreshold
    frozen_by_consecutive_failures: CountThreshold
    frozen_by_time: TimeThreshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One URL of one tenant."""

    id: str
    state: DestinationState
    url: str
    attempts: int
    """Attempts that settled since the last reset."""
    consecutive_failures: int
    created_at: datetime
    rate_limit: DestinationRate | None = None
    """The most requests per second, with where it comes from; null where there is no limit."""
    recovery: DestinationRecovery | None = None
    """How what waits is sent when it is enabled again, with where that comes from."""
    disabled_at: datetime | None
    failures: int
    frozen_at: datetime | None
    last_success_at: datetime | None
    next_probe_at: datetime | None
    """When the next probe may go; null where none is to come, or one is under way."""
    reason: str | None
    """Why it is not enabled."""
    replay: str | None = None
    """The replay of what died there; only in the answer to ``enable`` with ``dead_since``."""
    successes: int
    thresholds: Thresholds
    waiting: int
    """Deliveries in its retry lane."""
    tenant: str | None = None
    """Only in lists of all tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters since the last reset."""

    attempts: int
    consecutive_failures: int
    failures: int
    successes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of a destination's state."""

    at: datetime
    counters: Counters
    """What the counters said when it happened."""
    evidence: dict[str, Any]
    """Why, as data."""
    from_: DestinationState
    reason: str
    """Why, in words."""
    to: DestinationState
    """The same as `from` where the destination stays disabled: a probe was sent, failed or was lost."""
