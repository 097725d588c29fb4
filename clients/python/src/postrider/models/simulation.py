"""What policies would do in an outage."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "LateBy",
    "SimulatedChange",
    "SimulatedPlan",
    "SimulatedSample",
    "SimulationAnswer",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateBy:
    """By how much the late ones were late; None where none was."""

    max: float | None
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChange:
    """One change of the circuit."""

    state: str
    """`enabled`, `disabled` or `frozen`."""
    at_seconds: float
    why: str
    """`failure_share`, `consecutive_failures`, `no_success`, `success`, `by_hand` or `other`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSample:
    """One point of the course of time."""

    at_seconds: float
    backlog: int
    dead: int
    delivered: int
    failed_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlan:
    """What one policy does."""

    name: str
    """`subscription`, `yours`, `server`, `default`, `replay`, `svix` or `stripe`."""
    accepted: int
    """Deliveries from the beginning of the outage to the end of the forecast."""
    back_at_seconds: float | None
    """When the first one arrived after the outage; None where none does."""
    dead: int
    dead_never_attempted: int
    delivered: int
    failed_attempts: int
    """Attempts that failed, probes included."""
    failed_probes: int
    late: int
    """Delivered, but not by the first attempt."""
    late_by_seconds: LateBy
    peak_at_seconds: float
    peak_backlog: int
    """The most that ever waited, and when."""
    peak_per_minute: int
    """The most deliveries that arrived in a minute, on the average of one sample."""
    recovered_at_seconds: float | None
    """When nothing was waiting any more; None where that never happens by itself."""
    replayed: int = 0
    """Those that had died and were replayed when the URL was back; they arrived."""
    samples: list[SimulatedSample]
    """The course of time."""
    timeline: list[SimulatedChange]
    """Changes of the circuit, probes aside."""
    waiting: int
    """Those that wait at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAnswer:
    """What comes of it. Times are seconds from the beginning of the outage."""

    deliveries: int
    enabled_after_seconds: float | None
    healthy_before_seconds: float
    outage_seconds: float
    per_seconds: float
    plans: list[SimulatedPlan]
    """One for each policy and preset, in the order in which they were asked for."""
