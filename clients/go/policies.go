// The policy of the server, of a subscription, and of a destination.

package postrider

// Policy: the policy that is in force. A server with `--time-scale` shows the durations as it uses them.
type Policy struct {
	Attempt            AttemptPolicy             `json:"attempt"`
	Circuit            CircuitPolicy             `json:"circuit"`
	MassFailure        MassFailurePolicy         `json:"mass_failure"`
	Recovery           RecoveryPolicy            `json:"recovery"`
	Retention          Retention                 `json:"retention"`
	Retry              RetryPolicy               `json:"retry"`
	SubscriptionLimits *SubscriptionPolicyLimits `json:"subscription_limits"`
}

// AttemptPolicy: one attempt.
type AttemptPolicy struct {
	// DeadlineSeconds: for all of it: DNS, connect, TLS, request and response.
	DeadlineSeconds float64 `json:"deadline_seconds"`
	// ResponseBodyBytesMax: what is kept of a response's body.
	ResponseBodyBytesMax int `json:"response_body_bytes_max"`
}

// CircuitPolicy: when a destination is disabled, probed and frozen.
type CircuitPolicy struct {
	// DisableConsecutive: disabled at so many consecutive failures.
	DisableConsecutive int64 `json:"disable_consecutive"`
	// DisableGrace: ... and there were more attempts than these.
	DisableGrace int64 `json:"disable_grace"`
	// DisableShare: disabled when more than this share of the attempts failed, 0 to 1 ...
	DisableShare float64 `json:"disable_share"`
	// FreezeAfterSeconds: ... when the last success is longer ago than this.
	FreezeAfterSeconds float64 `json:"freeze_after_seconds"`
	// FreezeConsecutive: frozen at so many consecutive failures in any time.
	FreezeConsecutive int64 `json:"freeze_consecutive"`
	// FreezeOverConsecutive: frozen over so many consecutive failures ...
	FreezeOverConsecutive int64 `json:"freeze_over_consecutive"`
	// ProbeIntervalSeconds: the time between two probes.
	ProbeIntervalSeconds float64 `json:"probe_interval_seconds"`
}

// MassFailurePolicy: when so many destinations begin to fail at once that transitions are suspended.
type MassFailurePolicy struct {
	// DestinationsMin: it takes at least so many destinations.
	DestinationsMin int `json:"destinations_min"`
	// HoldMaxSeconds: transitions are suspended no longer than this.
	HoldMaxSeconds float64 `json:"hold_max_seconds"`
	// Share: it takes more than this share of them, 0 to 1.
	Share         float64 `json:"share"`
	WindowSeconds float64 `json:"window_seconds"`
}

// RecoveryPolicy: how waiting deliveries are sent when a destination recovers.
type RecoveryPolicy struct {
	Dead string `json:"dead"`
	// DeadMaxAgeSeconds: deliveries that were accepted longer ago are kept in any case.
	DeadMaxAgeSeconds float64 `json:"dead_max_age_seconds"`
	// DeadPerSecond: so many of the others are replayed in a second.
	DeadPerSecond int    `json:"dead_per_second"`
	Mode          string `json:"mode"`
	// RampStepSeconds: how long a step of the ramp lasts.
	RampStepSeconds float64 `json:"ramp_step_seconds"`
}

// Retention: how long things are kept.
type Retention struct {
	// FinishedSeconds: finished deliveries with their events and attempts.
	FinishedSeconds float64 `json:"finished_seconds"`
}

// RetryPolicy: the schedule of the retries.
type RetryPolicy struct {
	// Jitter: by which share of its delay a retry may be moved later, 0 to 1.
	Jitter float64 `json:"jitter"`
	// Max: how many retries there are.
	Max          int    `json:"max"`
	MeasuredFrom string `json:"measured_from"`
	// OffsetsMS: when each retry falls due after the first attempt, without jitter; with `previous_attempt` the delay
	// after the attempt before it.
	OffsetsMS []int64 `json:"offsets_ms"`
	// UnitSeconds: retry n falls due (2^n - 1) units after the first attempt.
	UnitSeconds float64 `json:"unit_seconds"`
}

// SubscriptionPolicyLimits: how far the policy of a subscription may go.
type SubscriptionPolicyLimits struct {
	// AttemptDeadlineSecondsMax: the longest `attempt.deadline_seconds`.
	AttemptDeadlineSecondsMax float64 `json:"attempt_deadline_seconds_max"`
	// DeadMaxAgeSecondsMax: the largest `recovery.dead_max_age_seconds`.
	DeadMaxAgeSecondsMax float64 `json:"dead_max_age_seconds_max"`
	// RateLimitMax: the most requests a second to any destination; nil for no limit.
	RateLimitMax *int `json:"rate_limit_max"`
	// RetryMax: the largest `retry.max`.
	RetryMax int `json:"retry_max"`
	// RetrySpanSecondsMax: the longest time from the first attempt to the last retry.
	RetrySpanSecondsMax float64 `json:"retry_span_seconds_max"`
	// RetryUnitSecondsMin: the shortest `retry.unit_seconds`.
	RetryUnitSecondsMin float64 `json:"retry_unit_seconds_min"`
}

// SubscriptionPolicy: what a subscription wants otherwise; nil where the server's policy holds.
type SubscriptionPolicy struct {
	Attempt  SubscriptionAttemptPolicy  `json:"attempt"`
	Recovery SubscriptionRecoveryPolicy `json:"recovery"`
	Retry    SubscriptionRetryPolicy    `json:"retry"`
}

// SubscriptionAttemptPolicy: as `attempt` in `GET /v1/policy`; nil where the server's value holds.
type SubscriptionAttemptPolicy struct {
	DeadlineSeconds *float64 `json:"deadline_seconds"`
}

// SubscriptionRetryPolicy: as `retry` in `GET /v1/policy`; nil where the server's value holds.
type SubscriptionRetryPolicy struct {
	Max         *int     `json:"max"`
	UnitSeconds *float64 `json:"unit_seconds"`
}

// SubscriptionRecoveryPolicy: as `recovery` in `GET /v1/policy`; nil where the server's value holds.
type SubscriptionRecoveryPolicy struct {
	Dead              string   `json:"dead"`
	DeadMaxAgeSeconds *float64 `json:"dead_max_age_seconds"`
	Mode              string   `json:"mode"`
}

// EffectivePolicy: what holds for the deliveries of a subscription: its own policy within the operator's limits,
// and the server's for the rest. Its recovery mode and its rate are its destination's: `GET
// /v1/destinations/{id}`.
type EffectivePolicy struct {
	// AttemptDeadlineSeconds: the time limit of an attempt.
	AttemptDeadlineSeconds float64 `json:"attempt_deadline_seconds"`
	// Dead: what becomes of what died of an outage.
	Dead string `json:"dead"`
	// DeadMaxAgeSeconds: deliveries that were accepted longer ago are kept in any case.
	DeadMaxAgeSeconds float64 `json:"dead_max_age_seconds"`
	// Retry: the schedule of retries. A server with `--time-scale` shows it as it uses it.
	Retry RetryPolicy `json:"retry"`
}

// DestinationRate: the most requests a second to a destination, and where that comes from: of several the smallest
// holds.
type DestinationRate struct {
	From      string  `json:"from"`
	PerSecond float64 `json:"per_second"`
	// SubscriptionID: the subscription that it comes from.
	SubscriptionID string `json:"subscription_id"`
}

// DestinationRecovery: how what waits is sent when a destination recovers, and where that comes from: `slots` goes
// before `drain`, and a subscription's wish before the server's.
type DestinationRecovery struct {
	From string `json:"from"`
	Mode string `json:"mode"`
	// SubscriptionID: the subscription that it comes from.
	SubscriptionID string `json:"subscription_id"`
}

// NewSubscriptionPolicy is what a subscription wants otherwise than the server's policy. What is nil or empty is left
// out: the server's value holds, and in a change what the subscription has stays.
type NewSubscriptionPolicy struct {
	Attempt  NewAttemptPolicy  `json:"attempt"`
	Recovery NewRecoveryPolicy `json:"recovery"`
	Retry    NewRetryPolicy    `json:"retry"`
}

// NewAttemptPolicy is one attempt. DeadlineSeconds is for all of it: DNS, connect, TLS, request and response.
type NewAttemptPolicy struct {
	DeadlineSeconds float64 `json:"deadline_seconds,omitempty"`
}

// NewRecoveryPolicy says what happens when the destination recovers. Mode is "slots" or "drain", Dead is "keep" or
// "replay".
type NewRecoveryPolicy struct {
	Mode              string  `json:"mode,omitempty"`
	Dead              string  `json:"dead,omitempty"`
	DeadMaxAgeSeconds float64 `json:"dead_max_age_seconds,omitempty"`
}

// NewRetryPolicy is the schedule of retries: retry n falls due (2^n - 1) units after the first attempt. Max is a
// pointer, because no retry at all is a policy too.
type NewRetryPolicy struct {
	Max         *int    `json:"max,omitempty"`
	UnitSeconds float64 `json:"unit_seconds,omitempty"`
}
