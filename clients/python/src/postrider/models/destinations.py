"""Destinations and their circuits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .words import DestinationState
from .policies import DestinationRate, DestinationRecovery

__all__ = [
    "AttemptCounts",
    "CountThreshold",
    "Counters",
    "Destination",
    "DestinationFigures",
    "DestinationStats",
    "FailureCount",
    "HourOfAttempts",
    "RecentAttempt",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCounts:
    """Attempts of a destination."""

    attempts: int
    delivered: int
    failed: int
    """Attempts that failed by the destination's fault, or by the network's on the way to it."""
    own_faults: int
    """Attempts that failed by a fault of the server, which do not count against the destination."""
    p50_ms: int | None
    """The response time that half of the answered attempts did not exceed; None without any. It may be off by a fifth."""
    p99_ms: int | None
    """The response time that 99 of 100 answered attempts did not exceed."""
    success_rate: float | None
    """The share of `delivered` in `delivered` and `failed`; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOfAttempts(AttemptCounts):
    """The attempts that began in one hour."""

    at: datetime
    """The start of the hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """A class of failures."""

    class_: str
    """`status_5xx`, `refused`, `timeout_response` and so on."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentAttempt:
    """One of the last attempts."""

    class_: str
    """`delivered`, or the class of the failure."""
    duration_ms: int
    started_at: datetime
    status: int | None
    """The status of the response; None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationFigures:
    """What the attempts of a destination came to lately."""

    destination_id: str
    last_24_hours: AttemptCounts
    """The current hour and the 23 before it."""
    last_7_days: AttemptCounts
    """The current hour and the 167 before it."""
    recent: list[RecentAttempt]
    """The last 30 attempts of the last eight days, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStats:
    """Statistics of one destination."""

    failures: list[FailureCount]
    """How attempts failed in these hours, most frequent first."""
    figures: DestinationFigures
    """The figures that lists show."""
    hours: list[HourOfAttempts]
    """One entry for each hour, oldest first; the last one is the current hour, so far."""
    since: datetime
    total: AttemptCounts
    """All of these hours together."""
    until: datetime
