"""The policy of the server, of a subscription, and of a destination."""

from __future__ import annotations

from dataclasses import dataclass

from .words import DeadRecovery, MeasuredFrom, PolicySource, RecoveryMode

__all__ = [
    "AttemptPolicy",
    "CircuitPolicy",
    "DestinationRate",
    "DestinationRecovery",
    "EffectivePolicy",
    "MassFailurePolicy",
    "Policy",
    "RecoveryPolicy",
    "Retention",
    "RetryPolicy",
    "SubscriptionAttemptPolicy",
    "SubscriptionPolicy",
    "SubscriptionPolicyLimits",
    "SubscriptionRecoveryPolicy",
    "SubscriptionRetryPolicy",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPolicy:
    """One attempt."""

    deadline_seconds: float
    """For all of it: DNS, connect, TLS, request and response."""
    response_body_bytes_max: int
    """What is kept of a response's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitPolicy:
    """When a destination is disabled, probed and frozen."""

    disable_consecutive: int
    """Disabled at so many consecutive failures."""
    disable_grace: int
    """... and there were more attempts than these."""
    disable_share: float
    """Disabled when more than this share of the attempts failed, 0 to 1 ..."""
    freeze_after_seconds: float
    """... when the last success is longer ago than this."""
    freeze_consecutive: int
    """Frozen at so many consecutive failures in any time."""
    freeze_over_consecutive: int
    """Frozen over so many consecutive failures ..."""
    probe_interval_seconds: float
    """The time between two probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MassFailurePolicy:
    """When so many destinations begin to fail at once that transitions are suspended."""

    destinations_min: int
    """It takes at least so many destinations."""
    hold_max_seconds: float
    """Transitions are suspended no longer than this."""
    share: float
    """It takes more than this share of them, 0 to 1."""
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPolicy:
    """How waiting deliveries are sent when a destination recovers."""

    dead: DeadRecovery | None = None
    dead_max_age_seconds: float | None = None
    """Deliveries that were accepted longer ago are kept in any case."""
    dead_per_second: int | None = None
    """So many of the others are replayed in a second."""
    mode: RecoveryMode
    ramp_step_seconds: float
    """How long a step of the ramp lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept."""

    finished_seconds: float
    """Finished deliveries with their events and attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The schedule of the retries."""

    jitter: float
    """By which share of its delay a retry may be moved later, 0 to 1."""
    max: int
    """How many retries there are."""
    measured_from: MeasuredFrom
    offsets_ms: list[int]
    """When each retry falls due after the first attempt, without jitter; with `previous_attempt` the delay after
    the attempt before it."""
    unit_seconds: float
    """Retry n falls due (2^n - 1) units after the first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPolicyLimits:
    """How far the policy of a subscription may go."""

    attempt_deadline_seconds_max: float
    """The longest `attempt.deadline_seconds`."""
    dead_max_age_seconds_max: float
    """The largest `recovery.dead_max_age_seconds`."""
    rate_limit_max: int | None
    """The most requests a second to any destination; None for no limit."""
    retry_max: int
    """The largest `retry.max`."""
    retry_span_seconds_max: float
    """The longest time from the first attempt to the last retry."""
    retry_unit_seconds_min: float
    """The shortest `retry.unit_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy that is in force. A server with `--time-scale` shows the durations as it uses them."""

    attempt: AttemptPolicy
    circuit: CircuitPolicy
    mass_failure: MassFailurePolicy
    recovery: RecoveryPolicy
    retention: Retention
    retry: RetryPolicy
    subscription_limits: SubscriptionPolicyLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAttemptPolicy:
    """As `attempt` in `GET /v1/policy`; None where the server's value holds."""

    deadline_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRetryPolicy:
    """As `retry` in `GET /v1/policy`; None where the server's value holds."""

    max: int | None
    unit_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRecoveryPolicy:
    """As `recovery` in `GET /v1/policy`; None where the server's value holds."""

    dead: DeadRecovery | None
    dead_max_age_seconds: float | None
    mode: RecoveryMode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPolicy:
    """What a subscription wants otherwise; None where the server's policy holds."""

    attempt: SubscriptionAttemptPolicy
    recovery: SubscriptionRecoveryPolicy
    retry: SubscriptionRetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicy:
    """What holds for the deliveries of a subscription: its own policy within the operator's limits, and the
    server's for the rest. Its recovery mode and its rate are its destination's: `GET /v1/destinations/{id}`."""

    attempt_deadline_seconds: float
    """The time limit of an attempt."""
    dead: DeadRecovery
    """What becomes of what died of an outage."""
    dead_max_age_seconds: float
    """Deliveries that were accepted longer ago are kept in any case."""
    retry: RetryPolicy
    """The schedule of retries. A server with `--time-scale` shows it as it uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationRate:
    """The most requests a second to a destination, and where that comes from: of several the smallest holds."""

    from_: PolicySource
    per_second: float
    subscription_id: str | None
    """The subscription that it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationRecovery:
    """How what waits is sent when a destination recovers, and where that comes from: `slots` goes before
    `drain`, and a subscription's wish before the server's."""

    from_: PolicySource
    mode: RecoveryMode
    subscription_id: str | None
    """The subscription that it comes from."""
