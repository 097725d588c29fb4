package postrider

import (
	"context"
	"net/http"
)

// Simulation: one URL, evenly spaced deliveries, one outage. What is empty is left out.
type Simulation struct {
	// Deliveries: so many, in PerSeconds (1 where it is left out).
	Deliveries int64 `json:"deliveries"`
	PerSeconds int64 `json:"per_seconds,omitempty"`
	// OutageSeconds: how long every attempt fails.
	OutageSeconds int64 `json:"outage_seconds"`
	// HealthyBeforeSeconds: how long everything was well before; a day where it is left out.
	HealthyBeforeSeconds int64 `json:"healthy_before_seconds,omitempty"`
	// AnswerMS: how long an answer takes; 100 where it is left out.
	AnswerMS int64 `json:"answer_ms,omitempty"`
	// EnableAfterSeconds: how long after the outage somebody enables the URL, should it be frozen.
	EnableAfterSeconds int64 `json:"enable_after_seconds,omitempty"`
	// Policy: a policy to try, in the form of GET /v1/policy, as the plan "yours".
	Policy map[string]any `json:"policy,omitempty"`
	// Presets: what to compare with: server, default, replay, svix, stripe.
	Presets []string `json:"presets,omitempty"`
	// Subscription: one whose policy is tried, as the plan "subscription".
	Subscription string `json:"subscription,omitempty"`
	// Samples: points of the course of time, 10 to 1000; 600 where it is left out.
	Samples int `json:"samples,omitempty"`
}

// Simulate says what policies would do in an outage. Nothing is stored and nothing is sent.
func (c *Client) Simulate(ctx context.Context, simulation Simulation) (*SimulationAnswer, error) {
	return change[SimulationAnswer](ctx, c.api, http.MethodPost, path("simulate"), simulation)
}

// SimulationAnswer: what comes of it. Times are seconds from the beginning of the outage.
type SimulationAnswer struct {
	Deliveries           int64    `json:"deliveries"`
	EnabledAfterSeconds  *float64 `json:"enabled_after_seconds"`
	HealthyBeforeSeconds float64  `json:"healthy_before_seconds"`
	OutageSeconds        float64  `json:"outage_seconds"`
	PerSeconds           float64  `json:"per_seconds"`
	// Plans: one for each policy and preset, in the order in which they were asked for.
	Plans []SimulatedPlan `json:"plans"`
}

// SimulatedPlan: what one policy does.
type SimulatedPlan struct {
	// Name: `subscription`, `yours`, `server`, `default`, `replay`, `svix` or `stripe`.
	Name string `json:"name"`
	// Accepted: deliveries from the beginning of the outage to the end of the forecast.
	Accepted int64 `json:"accepted"`
	// BackAtSeconds: when the first one arrived after the outage; nil where none does.
	BackAtSeconds      *float64 `json:"back_at_seconds"`
	Dead               int64    `json:"dead"`
	DeadNeverAttempted int64    `json:"dead_never_attempted"`
	Delivered          int64    `json:"delivered"`
	// FailedAttempts: attempts that failed, probes included.
	FailedAttempts int64 `json:"failed_attempts"`
	FailedProbes   int64 `json:"failed_probes"`
	// Late: delivered, but not by the first attempt.
	Late          int64   `json:"late"`
	LateBySeconds LateBy  `json:"late_by_seconds"`
	PeakAtSeconds float64 `json:"peak_at_seconds"`
	// PeakBacklog: the most that ever waited, and when.
	PeakBacklog int64 `json:"peak_backlog"`
	// PeakPerMinute: the most deliveries that arrived in a minute, on the average of one sample.
	PeakPerMinute int64 `json:"peak_per_minute"`
	// RecoveredAtSeconds: when nothing was waiting any more; nil where that never happens by itself.
	RecoveredAtSeconds *float64 `json:"recovered_at_seconds"`
	// Replayed: those that had died and were replayed when the URL was back; they arrived.
	Replayed int64 `json:"replayed"`
	// Samples: the course of time.
	Samples []SimulatedSample `json:"samples"`
	// Timeline: changes of the circuit, probes aside.
	Timeline []SimulatedChange `json:"timeline"`
	// Waiting: those that wait at the end.
	Waiting int64 `json:"waiting"`
}

// LateBy: by how much the late ones were late; nil where none was.
type LateBy struct {
	Max *float64 `json:"max"`
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

// SimulatedChange: one change of the circuit.
type SimulatedChange struct {
	// State: `enabled`, `disabled` or `frozen`.
	State     string  `json:"state"`
	AtSeconds float64 `json:"at_seconds"`
	// Why: `failure_share`, `consecutive_failures`, `no_success`, `success`, `by_hand` or `other`.
	Why string `json:"why"`
}

// SimulatedSample: one point of the course of time.
type SimulatedSample struct {
	AtSeconds      float64 `json:"at_seconds"`
	Backlog        int64   `json:"backlog"`
	Dead           int64   `json:"dead"`
	Delivered      int64   `json:"delivered"`
	FailedAttempts int64   `json:"failed_attempts"`
}
