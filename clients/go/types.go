// What the API answers with. The fields are those of the OpenAPI document; a test compares the two. A text that is
// null in an answer is empty here; a number or a time that is null is nil.

package postrider

import (
	"encoding/json"
	"time"
)

// Filter is a filter on events: a Condition, or a group made by All or Any.
type Filter map[string]any

// Condition makes a filter of one condition. op is one of eq, ne, gt, gte, lt, lte, contains, not_contains,
// contains_only.
func Condition(field, op string, value any) Filter {
	return Filter{"field": field, "op": op, "value": value}
}

// TimeCondition makes a filter of one condition that reads the field and the value as times, also with an offset
// without a colon. op is one of gt, gte, lt, lte.
func TimeCondition(field, op, value string) Filter {
	return Filter{"field": field, "op": op, "value": value, "as": "time"}
}

// Changed makes a filter for events in which the field differs between old and data.
func Changed(field string) Filter { return Filter{"field": field, "op": "changed"} }

// Exists makes a filter for events that have the field.
func Exists(field string) Filter { return Filter{"field": field, "op": "exists"} }

// All makes a filter for what passes each of these filters.
func All(filters ...Filter) Filter { return Filter{"all": filters} }

// Any makes a filter for what passes at least one of these filters.
func Any(filters ...Filter) Filter { return Filter{"any": filters} }

// DeliveryState says where a delivery stands.
type DeliveryState string

// The states of a delivery.
const (
	Queued    DeliveryState = "queued"
	InFlight  DeliveryState = "in_flight"
	Waiting   DeliveryState = "waiting"
	Delivered DeliveryState = "delivered"
	Dead      DeliveryState = "dead"
	Cancelled DeliveryState = "cancelled"
)

// DestinationState says whether a destination is attempted: always, every ten minutes, or never.
type DestinationState string

// The states of a destination.
const (
	Enabled  DestinationState = "enabled"
	Disabled DestinationState = "disabled"
	Frozen   DestinationState = "frozen"
)

// ReplayState says where a bulk replay stands.
type ReplayState string

// The states of a bulk replay.
const (
	ReplayRunning   ReplayState = "running"
	ReplayPaused    ReplayState = "paused"
	ReplayFinished  ReplayState = "finished"
	ReplayCancelled ReplayState = "cancelled"
)

// AttemptOutcome says whether an attempt arrived.
type AttemptOutcome string

// The outcomes of an attempt.
const (
	AttemptDelivered AttemptOutcome = "delivered"
	AttemptFailed    AttemptOutcome = "failed"
)

// What a key may do.
const (
	ScopeIngest = "ingest"
	ScopeManage = "manage"
	ScopeRead   = "read"
	ScopeAdmin  = "admin"
)

// How the payload of a delivery looks.
const (
	FormatStandard    = "standard"
	FormatCloudEvents = "cloudevents"
	FormatRaw         = "raw"
	FormatWorkfront   = "workfront"
)

// Tenant: one customer of the application that sends the events.
type Tenant struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	// Description: a longer text than the name.
	Description string `json:"description"`
	// EventsPerSecond: nil where the server's limit holds.
	EventsPerSecond *int              `json:"events_per_second"`
	Metadata        map[string]string `json:"metadata"`
	// Quotas: limits of its own, by name; for all others the server's hold.
	Quotas map[string]int64 `json:"quotas"`
	// RequestsPerSecond: nil where the server's limit holds.
	RequestsPerSecond *int `json:"requests_per_second"`
}

// Key: a key, without the key.
type Key struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	// LastUsedAt: roughly.
	LastUsedAt *time.Time `json:"last_used_at"`
	Scopes     []string   `json:"scopes"`
	// Tenant: empty for an admin key, which is for all tenants.
	Tenant string `json:"tenant"`
}

// KeyCreated: a key that was just created.
type KeyCreated struct {
	Key
	// Secret: the key itself. It is not shown again.
	Secret Secret `json:"key"`
}

// EventAccepted: what became of an event.
type EventAccepted struct {
	// ID: the event's identifier.
	ID string `json:"id"`
	// Deliveries: how many deliveries are owed for it.
	Deliveries int `json:"deliveries"`
	// Duplicate: true where it had been accepted before; nothing new is owed then.
	Duplicate bool `json:"duplicate,omitempty"`
}

// EventSummary: an event in a list, without its payload.
type EventSummary struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// AcceptedAt: when it was accepted.
	AcceptedAt time.Time `json:"accepted_at"`
	// DeliveryCount: how many deliveries are owed for it.
	DeliveryCount int `json:"delivery_count"`
	// ErasedAt: when its payload was erased; nil where it was not.
	ErasedAt *time.Time `json:"erased_at"`
	// Flagged: why it did not fit the catalogue when it was accepted; nil where it did, or where that was not checked.
	Flagged *Misfit `json:"flagged"`
	Object  string  `json:"object"`
	// Time: when it happened.
	Time time.Time `json:"time"`
	// Tenant: only in lists of all tenants.
	Tenant string `json:"tenant,omitempty"`
}

// Misfit: why an event does not fit the catalogue.
type Misfit struct {
	// Detail: what was expected; empty once the payload is erased.
	Detail string `json:"detail"`
	// Pointer: where in the data, as a JSON pointer; empty where the fault has no place.
	Pointer string `json:"pointer"`
	// Reason: unknown_type, payload or too_much_work.
	Reason string `json:"reason"`
}

// EventDetail: one event with its payload and its deliveries.
type EventDetail struct {
	EventSummary
	// Data: the new state.
	Data json.RawMessage `json:"data"`
	// Deliveries: the newest thousand.
	Deliveries []Delivery `json:"deliveries"`
	// DeliveriesCursor: give this as cursor to `/v1/deliveries?event=…` to get the deliveries that are not in Deliveries;
	// empty where it has all of them.
	DeliveriesCursor string `json:"deliveries_cursor"`
	// Old: the state before; null where none was given.
	Old json.RawMessage `json:"old"`
}

// Certificate: a certificate, without anything that would be of use to others.
type Certificate struct {
	// ExpiresAt: until when it holds.
	ExpiresAt time.Time `json:"expires_at"`
	// Fingerprint: SHA-256 of the certificate, in hexadecimal digits.
	Fingerprint string `json:"fingerprint"`
	// Subject: whose it is.
	Subject string `json:"subject"`
}

// Subscription: a subscription.
type Subscription struct {
	ID  string `json:"id"`
	URL string `json:"url"`
	// Policy: what it wants otherwise than the server's policy; nil where the server is too old to say so.
	Policy *SubscriptionPolicy `json:"policy"`
	// EffectivePolicy: what holds for its deliveries; nil where the server is too old to say so.
	EffectivePolicy *EffectivePolicy `json:"effective_policy"`
	// AuthToken: the last four characters of the token, the rest masked; all masked where it is short.
	AuthToken string `json:"auth_token"`
	// CACertificates: the authorities that are believed instead of the usual ones; none: the usual ones.
	CACertificates []Certificate `json:"ca_certificates"`
	// ClientCertificate: the certificate that is shown to the receiver. Its key is never shown.
	ClientCertificate *Certificate `json:"client_certificate"`
	CreatedAt         time.Time    `json:"created_at"`
	DestinationID     string       `json:"destination_id"`
	Enabled           bool         `json:"enabled"`
	Filter            Filter       `json:"filter"`
	// Format: `standard`, `cloudevents`, `raw` or `workfront`.
	Format string `json:"format"`
	// Headers: names of the headers, each with the last four characters of its value, the rest masked; all
	// masked where it is short.
	Headers map[string]string `json:"headers"`
	Object  string            `json:"object"`
	// PublicKey: what verifies signatures, where the secret is a `whsk_` one.
	PublicKey string   `json:"public_key"`
	RateLimit *float64 `json:"rate_limit"`
	// RetiringSecrets: how many older secrets still sign along.
	RetiringSecrets int `json:"retiring_secrets"`
	// SecretOverlapEndsAt: when the last older secret stops signing along; nil where none does.
	SecretOverlapEndsAt *time.Time `json:"secret_overlap_ends_at"`
	Types               []string   `json:"types"`
	UpdatedAt           time.Time  `json:"updated_at"`
	// Workfront: the options of the format `workfront`; nil for the others.
	Workfront   *WorkfrontOptions `json:"workfront"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	// Metadata: pairs of the application's own.
	Metadata map[string]string `json:"metadata"`
	// UID: the application's own identifier.
	UID string `json:"uid"`
	// Tenant: only in lists of all tenants.
	Tenant string `json:"tenant,omitempty"`
}

// WorkfrontOptions: how events look in the format `workfront`.
type WorkfrontOptions struct {
	// Base64: whether both states are sent as base64 texts.
	Base64 bool `json:"base64"`
	// Version: `v1` or `v2`.
	Version string `json:"version"`
	// VersionChangedAt: when the version was last changed; every event is sent in both versions for five
	// minutes then.
	VersionChangedAt *time.Time `json:"version_changed_at"`
}

// SubscriptionWithSecret: a subscription with its secret, which is shown this once.
type SubscriptionWithSecret struct {
	Subscription
	// Secret: the signing secret. It is not shown again; empty where the subscription with this UID was there
	// already.
	Secret Secret `json:"secret"`
}

// TestOutcome: how a test went.
type TestOutcome struct {
	RequestResult
	SubscriptionID string `json:"subscription_id"`
}

// Timings: how long each phase took, in milliseconds.
type Timings struct {
	ConnectMS *int64 `json:"connect_ms"`
	// Connection: `fresh`, `reused` or `resent`.
	Connection string `json:"connection"`
	DNSMS      *int64 `json:"dns_ms"`
	ResponseMS *int64 `json:"response_ms"`
	TLSMS      *int64 `json:"tls_ms"`
}

// RequestResult: how a request ended.
type RequestResult struct {
	DurationMS int64 `json:"duration_ms"`
	// Error: the kind of failure: `status 500`, `refused`, `reset`, `dns`, `tls`, `timeout (connect)`,
	// `blocked`, `protocol`, or a fault of our own.
	Error   string         `json:"error"`
	Outcome AttemptOutcome `json:"outcome"`
	// ResponseBody: the first 16 KiB of the answer's body.
	ResponseBody string `json:"response_body"`
	// ResponseBodyEnd: whether that was all of it: `whole`, `cut`, `late` or `broken`.
	ResponseBodyEnd string    `json:"response_body_end"`
	StartedAt       time.Time `json:"started_at"`
	// Status: the status that was answered; nil where there was no answer.
	Status  *int    `json:"status"`
	Timings Timings `json:"timings"`
	// Detail: for admin keys only: what helps to find the cause.
	Detail string `json:"detail,omitempty"`
}

// Delivery: one event owed to one subscription.
type Delivery struct {
	// ID: what the receiver sees as `webhook-id`.
	ID    string        `json:"id"`
	State DeliveryState `json:"state"`
	Type  string        `json:"type"`
	// Attempts: how often it was attempted, probes and replays included.
	Attempts      int        `json:"attempts"`
	CreatedAt     time.Time  `json:"created_at"`
	DestinationID string     `json:"destination_id"`
	EventID       string     `json:"event_id"`
	FinishedAt    *time.Time `json:"finished_at"`
	// NextAttemptAt: when it is attempted next, if the destination permits.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	// Reason: why, where it is dead or cancelled.
	Reason         string `json:"reason"`
	SubscriptionID string `json:"subscription_id"`
	// Tenant: only in lists of all tenants.
	Tenant string `json:"tenant,omitempty"`
}

// DeliveryDetail: a delivery with the record of what was tried.
type DeliveryDetail struct {
	Delivery
	// AttemptLog: the attempts, oldest first.
	AttemptLog []Attempt `json:"attempt_log"`
	// AttemptLogCursor: give this as `cursor` to `/v1/deliveries/{id}/attempts` to get the attempts that are
	// not in `attempt_log`; empty where it has all of them.
	AttemptLogCursor string `json:"attempt_log_cursor"`
	// Schedule: the slots that it follows; nil where the server is too old to say so.
	Schedule *Schedule `json:"schedule"`
}

// Schedule: the schedule that a delivery follows, or followed last: a replay begins a new one.
type Schedule struct {
	// OwnPolicy: whether the subscription has a schedule of its own.
	OwnPolicy bool `json:"own_policy"`
	// AskedForAt: when an attempt is made that somebody asked for before the next slot; it takes no slot.
	AskedForAt *time.Time `json:"asked_for_at"`
	// Exact: whether StartedAt is known. False before the first attempt, and where a replay that has ended had
	// none.
	Exact bool `json:"exact"`
	// Replay: whether it began with a replay.
	Replay bool `json:"replay"`
	// Slots: slot 0, the first attempt, then one for each retry.
	Slots []ScheduleSlot `json:"slots"`
	// StartedAt: what the slots are counted from: the first attempt, else acceptance or the replay.
	StartedAt time.Time `json:"started_at"`
}

// ScheduleSlot: one slot of a schedule.
type ScheduleSlot struct {
	// Attempt: the number of the attempt that was made in it; nil where none was.
	Attempt *int `json:"attempt"`
	// DueAt: when it falls or fell due, by the policy as it is now.
	DueAt time.Time `json:"due_at"`
	// Number: retry n; 0 for the first attempt.
	Number int `json:"number"`
	// State: `delivered`, `failed`, `spent`, `in_flight`, `next`, `ahead` or `unneeded`.
	State string `json:"state"`
}

// Attempt: one HTTP request made for a delivery.
type Attempt struct {
	RequestResult
	// Number: from 1.
	Number int `json:"number"`
	// Turn: `first`, `retry` or `probe`.
	Turn string `json:"turn"`
	// Retry: which retry it was.
	Retry *int `json:"retry,omitempty"`
}

// NextStep: what happens next.
type NextStep struct {
	// At: when; nil where it depends on something else than time.
	At   *time.Time `json:"at"`
	What string     `json:"what"`
}

// Wait: something that a delivery waits for. What does not belong to its reason is nil.
type Wait struct {
	// At: when the next request may be sent; nil where that is not known.
	At *time.Time `json:"at"`
	// Destinations: destinations of its tenant that come before it.
	Destinations *int `json:"destinations"`
	// InFlight: attempts, or bytes, that are in flight.
	InFlight *int `json:"in_flight"`
	// Limit: how many may be.
	Limit *int `json:"limit"`
	// PerSecond: requests a second.
	PerSecond *float64 `json:"per_second"`
	// Reason: `destination_limit`, `destination_rate`, `tenant_limit`, `tenant_bytes`, `total_limit`, `turn` or
	// `pause`.
	Reason string `json:"reason"`
	// Tenants: tenants that come before it.
	Tenants *int `json:"tenants"`
	// What: the same, in a sentence.
	What string `json:"what"`
}

// Standing: what a delivery that is due waits for.
type Standing struct {
	// Ahead: deliveries of its destination that are sent before it; at least so many where it is stored.
	Ahead int `json:"ahead"`
	// Stored: whether it is still in the store, behind all that is in memory.
	Stored bool `json:"stored"`
	// WaitsFor: what the first of them waits for.
	WaitsFor []Wait `json:"waits_for"`
}

// Unblock: something that would help.
type Unblock struct {
	// Action: `fix_receiver`, `enable_destination`, `replay` or `resubscribe`.
	Action string `json:"action"`
	What   string `json:"what"`
}

// Explanation: a delivery, explained in words and data.
type Explanation struct {
	// Because: why, one sentence each.
	Because  []string `json:"because"`
	Delivery Delivery `json:"delivery"`
	// Next: what happens next; nil where nothing does by itself.
	Next *NextStep `json:"next"`
	// Slot: the slot that it waits for; nil where it waits for none.
	Slot *RetryPlace `json:"slot"`
	// Standing: what it waits for where it is due; nil where it is not, or where another node sends it.
	Standing *Standing `json:"standing"`
	// Summary: where it stands, in a sentence.
	Summary string `json:"summary"`
	// Unblock: what somebody can do about it; empty where nothing is needed.
	Unblock []Unblock `json:"unblock"`
}

// RetryPlace: which retry of how many.
type RetryPlace struct {
	// DueAt: when its slot falls due. An attempt that somebody asked for comes before it and takes no slot.
	DueAt time.Time `json:"due_at"`
	// Max: how many retries there are.
	Max int `json:"max"`
	// Number: retry n; 0 for the first attempt of a replay.
	Number int `json:"number"`
}

// CountThreshold: a count on its way to its limit.
type CountThreshold struct {
	Limit int64 `json:"limit"`
	Now   int64 `json:"now"`
}

// ShareThreshold: disabled when more than `limit` of more than `grace` attempts failed.
type ShareThreshold struct {
	Attempts int64   `json:"attempts"`
	Failures int64   `json:"failures"`
	Grace    int64   `json:"grace"`
	Limit    float64 `json:"limit"`
	// Share: the share that failed so far.
	Share float64 `json:"share"`
}

// TimeThreshold: frozen when there are more consecutive failures and a longer time without success than these.
type TimeThreshold struct {
	ConsecutiveFailures   CountThreshold `json:"consecutive_failures"`
	SecondsWithoutSuccess CountThreshold `json:"seconds_without_success"`
}

// Thresholds: how near a destination is to each threshold.
type Thresholds struct {
	DisabledByConsecutiveFailures CountThreshold `json:"disabled_by_consecutive_failures"`
	DisabledByFailureShare        ShareThreshold `json:"disabled_by_failure_share"`
	FrozenByConsecutiveFailures   CountThreshold `json:"frozen_by_consecutive_failures"`
	FrozenByTime                  TimeThreshold  `json:"frozen_by_time"`
}

// Destination: one URL of one tenant.
type Destination struct {
	ID    string           `json:"id"`
	State DestinationState `json:"state"`
	URL   string           `json:"url"`
	// RateLimit: the most requests per second, with where it comes from; nil for no limit.
	RateLimit *DestinationRate `json:"rate_limit"`
	// Recovery: how what waits is sent when it recovers; nil where the server is too old to say so.
	Recovery *DestinationRecovery `json:"recovery"`
	// Attempts: attempts that settled since the last reset.
	Attempts            int64      `json:"attempts"`
	ConsecutiveFailures int64      `json:"consecutive_failures"`
	CreatedAt           time.Time  `json:"created_at"`
	DisabledAt          *time.Time `json:"disabled_at"`
	Failures            int64      `json:"failures"`
	FrozenAt            *time.Time `json:"frozen_at"`
	LastSuccessAt       *time.Time `json:"last_success_at"`
	// NextProbeAt: when the next probe may go; nil where none is to come, or one is under way.
	NextProbeAt *time.Time `json:"next_probe_at"`
	// Reason: why it is not enabled.
	Reason string `json:"reason"`
	// Replay: the replay of what died there; only in the answer to EnableWith with DeadSince.
	Replay     string     `json:"replay"`
	Successes  int64      `json:"successes"`
	Thresholds Thresholds `json:"thresholds"`
	// Waiting: deliveries in its retry lane.
	Waiting int64 `json:"waiting"`
	// Tenant: only in lists of all tenants.
	Tenant string `json:"tenant,omitempty"`
}

// Counters: counters since the last reset.
type Counters struct {
	Attempts            int64 `json:"attempts"`
	ConsecutiveFailures int64 `json:"consecutive_failures"`
	Failures            int64 `json:"failures"`
	Successes           int64 `json:"successes"`
}

// Transition: a change of a destination's state.
type Transition struct {
	At time.Time `json:"at"`
	// Counters: what the counters said when it happened.
	Counters Counters `json:"counters"`
	// Evidence: why, as data.
	Evidence json.RawMessage  `json:"evidence"`
	From     DestinationState `json:"from"`
	// Reason: why, in words.
	Reason string `json:"reason"`
	// To: the same as `from` where the destination stays disabled: a probe was sent, failed or was lost.
	To DestinationState `json:"to"`
}

// ReplayFilter: which deliveries a job replays.
type ReplayFilter struct {
	State        string     `json:"state"`
	Type         string     `json:"type"`
	Destination  string     `json:"destination"`
	EndedSince   *time.Time `json:"ended_since"`
	Since        *time.Time `json:"since"`
	Subscription string     `json:"subscription"`
	Until        *time.Time `json:"until"`
}

// ReplayOutcomes: what became of the deliveries that a bulk replay sent; together they are as many as it sent.
type ReplayOutcomes struct {
	Dead      int64 `json:"dead"`
	Delivered int64 `json:"delivered"`
	// Failed: attempted since, and each time it failed; they wait for their next slots.
	Failed int64 `json:"failed"`
	// Pending: not attempted since.
	Pending int64 `json:"pending"`
	// Withdrawn: cancelled, or sent by a later bulk replay, before they were delivered or dead.
	Withdrawn int64 `json:"withdrawn"`
}

// Replay: a bulk replay.
type Replay struct {
	ID        string      `json:"id"`
	State     ReplayState `json:"state"`
	CreatedAt time.Time   `json:"created_at"`
	// Done: how many it has replayed.
	Done       int64        `json:"done"`
	Filter     ReplayFilter `json:"filter"`
	FinishedAt *time.Time   `json:"finished_at"`
	// Outcomes: what became of the deliveries that it sent; nil where the server does not know, or is older.
	Outcomes  *ReplayOutcomes `json:"outcomes"`
	PerSecond *int            `json:"per_second"`
	// Skipped: when it has finished, how many of Total it did not send.
	Skipped *int64 `json:"skipped"`
	// Total: how many it will replay, as counted at the start.
	Total int64 `json:"total"`
}

// Ledger: `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, always.
type Ledger struct {
	Accepted  int64 `json:"accepted"`
	Cancelled int64 `json:"cancelled"`
	Dead      int64 `json:"dead"`
	Delivered int64 `json:"delivered"`
	InFlight  int64 `json:"in_flight"`
	Queued    int64 `json:"queued"`
	Waiting   int64 `json:"waiting"`
}

// Span: what happened in one span.
type Span struct {
	// Accepted: deliveries accepted.
	Accepted int64 `json:"accepted"`
	// At: begin of the span.
	At time.Time `json:"at"`
	// Dead: deliveries that died.
	Dead int64 `json:"dead"`
	// Delivered: deliveries that arrived.
	Delivered int64 `json:"delivered"`
	// Failed: attempts that failed.
	Failed int64 `json:"failed"`
}

// Stats: what happened over time.
type Stats struct {
	// Arrivals: how long deliveries took lately; nil where none arrived, or where the server is older.
	Arrivals *Arrivals `json:"arrivals"`
	// Data: one entry for each span, oldest first; spans in which nothing happened are zero.
	Data        []Span    `json:"data"`
	Since       time.Time `json:"since"`
	StepMinutes int       `json:"step_minutes"`
	Until       time.Time `json:"until"`
}

// Arrivals: the time from acceptance to arrival, of deliveries that arrived in the last five minutes at their first
// attempt, at the node that answered.
type Arrivals struct {
	// Count: how many arrived.
	Count int64 `json:"count"`
	// P50Ms: the time that half of them did not exceed. It may be off by a fifth, and so may the other.
	P50Ms int64 `json:"p50_ms"`
	// P99Ms: the time that 99 of 100 did not exceed.
	P99Ms int64 `json:"p99_ms"`
}

// Limit: a limit, and how near the tenant is to it.
type Limit struct {
	// Name: what is limited.
	Name string `json:"name"`
	// Limit: how much there may be; nil where there is no limit.
	Limit *int64 `json:"limit"`
	// Setting: the operator's setting.
	Setting string `json:"setting"`
	// Used: how much there is. `unfinished_bytes` is an estimate.
	Used int64 `json:"used"`
	// Own: whether it is the tenant's own limit, and not the server's.
	Own bool `json:"own"`
}

// FilterVerdict: whether the event passes.
type FilterVerdict struct {
	// Matches: whether a subscription with this filter is delivered the event.
	Matches bool `json:"matches"`
	// OverBudget: whether the filter took more steps than it may: the event is delivered unfiltered then.
	OverBudget bool `json:"over_budget"`
	// Steps: the steps that it took: values that were looked at, words of paths, and 64 bytes of compared text
	// each.
	Steps int64 `json:"steps"`
	// StepsMax: the steps that a filter may take on one event.
	StepsMax int64 `json:"steps_max"`
}

// AuditEntry: an entry of the audit log.
type AuditEntry struct {
	ID string `json:"id"`
	// Action: what was done.
	Action string `json:"action"`
	// Actor: `key`, `environment` (the admin key of the environment) or `server`.
	Actor string `json:"actor"`
	// Address: the address that the request came from.
	Address string `json:"address"`
	// At: when the change ended.
	At time.Time `json:"at"`
	// Key: the key's identifier; where it was no key: `environment`, `server`, or `operator` for what the
	// operator did at the machine.
	Key string `json:"key"`
	// KeyName: what people call the key.
	KeyName string `json:"key_name"`
	// Problem: the code of the problem, where it was refused or failed.
	Problem string `json:"problem"`
	// Status: the status of the answer; nil for what no request asked for.
	Status *int `json:"status"`
	// Target: to which one; empty where nothing came to be.
	Target string `json:"target"`
	// TargetKind: to what kind of thing.
	TargetKind string `json:"target_kind"`
	// Tenant: whose thing it was about; empty where it is no tenant's.
	Tenant string `json:"tenant"`
}
