// What the calls of the catalogue, of erasures, portal links, alerts and of the server itself answer with.

package postrider

import (
	"encoding/json"
	"time"
)

// ErasureState says how far an erasure is.
type ErasureState string

// The states of an erasure.
const (
	// Erasing: payloads are being removed.
	Erasing ErasureState = "erasing"
	// Scrubbing: they cannot be read any more; what is left in the files is being overwritten.
	Scrubbing ErasureState = "scrubbing"
	// ErasureFinished: it has ended.
	ErasureFinished ErasureState = "finished"
)

// Conduct says what is done with an event that does not fit the catalogue.
type Conduct string

// What can be done with an event that does not fit.
const (
	Accept Conduct = "accept"
	Flag   Conduct = "flag"
	Refuse Conduct = "refuse"
)

// Whose an event type is.
const (
	ScopeOfTenant = "tenant"
	ScopeOfServer = "server"
)

// EventType: an event type of the catalogue.
type EventType struct {
	// ID: its name, which is also its identifier.
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	// Deprecated: whether applications should stop sending it.
	Deprecated  bool   `json:"deprecated"`
	Description string `json:"description"`
	// Example: an example of `data`.
	Example json.RawMessage `json:"example"`
	// Schema: the JSON Schema of `data`, as it was given; nil where any JSON fits.
	Schema    json.RawMessage `json:"schema"`
	Scope     string          `json:"scope"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// Catalogue: what is done with events that do not fit the catalogue.
type Catalogue struct {
	// Misfits: with an event whose `data` does not fit the schema of its type.
	Misfits Conduct `json:"misfits"`
	// Own: the tenant's own choices; where one is nil, the server's holds.
	Own OwnCatalogue `json:"own"`
	// UnknownTypes: with an event whose type is not in the catalogue.
	UnknownTypes Conduct `json:"unknown_types"`
}

// OwnCatalogue: A tenant's own choices.
type OwnCatalogue struct {
	Misfits      Conduct `json:"misfits"`
	UnknownTypes Conduct `json:"unknown_types"`
}

// Erasure: an erasure of payloads.
type Erasure struct {
	ID string `json:"id"`
	// State: `erasing`: payloads are being removed. `scrubbing`: they cannot be read any more, and what is left of
	// them in the store's files is being overwritten. `finished`.
	State ErasureState `json:"state"`
	// Already: events that had been erased before.
	Already int64 `json:"already"`
	// Attempts: attempts whose response body was erased.
	Attempts int64 `json:"attempts"`
	// Cancelled: unfinished deliveries that were cancelled for it.
	Cancelled int64     `json:"cancelled"`
	CreatedAt time.Time `json:"created_at"`
	// Erased: events whose payload was erased.
	Erased int64 `json:"erased"`
	// Event: the event whose payload is erased; nil where it is an object's.
	Event      string     `json:"event"`
	FinishedAt *time.Time `json:"finished_at"`
	// Object: the object whose events are erased; nil where it is one event.
	Object string `json:"object"`
}

// ConditionVerdict: one condition of a filter.
type ConditionVerdict struct {
	// Holds: whether it holds by itself.
	Holds bool `json:"holds"`
	// Place: where it stands in the filter.
	Place string `json:"place"`
}

// Match: one subscription, and whether it wants the event.
type Match struct {
	Because string `json:"because"`
	// Conditions: its filter's conditions, where all else fits and the filter was asked; empty where it has none, or
	// where that took too many steps.
	Conditions []ConditionVerdict `json:"conditions"`
	// Matched: whether the event, sent now, would be delivered to it.
	Matched        bool   `json:"matched"`
	SubscriptionID string `json:"subscription_id"`
	URL            string `json:"url"`
}

// TriedEvent: what the filter says of one event.
type TriedEvent struct {
	AcceptedAt time.Time `json:"accepted_at"`
	// Conditions: each condition by itself; empty where that took too many steps.
	Conditions []ConditionVerdict `json:"conditions"`
	EventID    string             `json:"event_id"`
	// Matches: whether a subscription with this filter is delivered the event.
	Matches bool `json:"matches"`
	// OverBudget: whether the filter took more steps than it may: the event is delivered unfiltered then.
	OverBudget bool `json:"over_budget"`
	// Steps: the steps that it took.
	Steps int64  `json:"steps"`
	Type  string `json:"type"`
}

// FilterTrialAnswer: what the filter says of each event.
type FilterTrialAnswer struct {
	// Data: in the order in which they were named, or newest first.
	Data []TriedEvent `json:"data"`
	// StepsMax: the steps that a filter may take on one event.
	StepsMax int64 `json:"steps_max"`
}

// DestinationSummary: destinations by state.
type DestinationSummary struct {
	// Complete: whether all were counted; false where the tenant has more than 20,000: then the newest were.
	Complete bool  `json:"complete"`
	Disabled int64 `json:"disabled"`
	Enabled  int64 `json:"enabled"`
	Frozen   int64 `json:"frozen"`
}

// AttemptCounts: attempts of a destination.
type AttemptCounts struct {
	Attempts  int64 `json:"attempts"`
	Delivered int64 `json:"delivered"`
	// Failed: attempts that failed by the destination's fault, or by the network's on the way to it.
	Failed int64 `json:"failed"`
	// OwnFaults: attempts that failed by a fault of the server, which do not count against the destination.
	OwnFaults int64 `json:"own_faults"`
	// P50Ms: the response time that half of the answered attempts did not exceed; nil without any. It may be off by
	// a fifth.
	P50Ms *int64 `json:"p50_ms"`
	// P99Ms: the response time that 99 of 100 answered attempts did not exceed.
	P99Ms *int64 `json:"p99_ms"`
	// SuccessRate: the share of Delivered in Delivered and Failed; nil without any.
	SuccessRate *float64 `json:"success_rate"`
}

// HourOfAttempts: the attempts that began in one hour.
type HourOfAttempts struct {
	AttemptCounts
	// At: the start of the hour.
	At time.Time `json:"at"`
}

// FailureCount: a class of failures.
type FailureCount struct {
	// Class: `status_5xx`, `refused`, `timeout_response` and so on.
	Class string `json:"class"`
	Count int64  `json:"count"`
}

// RecentAttempt: one of the last attempts.
type RecentAttempt struct {
	// Class: `delivered`, or the class of the failure.
	Class      string    `json:"class"`
	DurationMs int64     `json:"duration_ms"`
	StartedAt  time.Time `json:"started_at"`
	// Status: the status of the response; nil if there was none.
	Status *int `json:"status"`
}

// DestinationFigures: what the attempts of a destination came to lately.
type DestinationFigures struct {
	DestinationID string `json:"destination_id"`
	// Last24Hours: the current hour and the 23 before it.
	Last24Hours AttemptCounts `json:"last_24_hours"`
	// Last7Days: the current hour and the 167 before it.
	Last7Days AttemptCounts `json:"last_7_days"`
	// Recent: the last 30 attempts of the last eight days, oldest first.
	Recent []RecentAttempt `json:"recent"`
}

// DestinationStats: statistics of one destination.
type DestinationStats struct {
	// Failures: how attempts failed in these hours, most frequent first.
	Failures []FailureCount `json:"failures"`
	// Figures: the figures that lists show.
	Figures DestinationFigures `json:"figures"`
	// Hours: one entry for each hour, oldest first; the last one is the current hour, so far.
	Hours []HourOfAttempts `json:"hours"`
	Since time.Time        `json:"since"`
	// Total: all of these hours together.
	Total AttemptCounts `json:"total"`
	Until time.Time     `json:"until"`
}

// RetriesDue: when waiting deliveries fall due.
type RetriesDue struct {
	// Complete: whether every count is exact.
	Complete bool `json:"complete"`
	// Hours: the next 48 hours.
	Hours []DueHour `json:"hours"`
	// Later: due after them.
	Later DueCount `json:"later"`
	// Now: the server's time: the first of the hours begins then.
	Now time.Time `json:"now"`
	// Overdue: due before now.
	Overdue DueCount `json:"overdue"`
}

// DueCount: a count of waiting deliveries.
type DueCount struct {
	// Complete: whether the count is exact.
	Complete bool `json:"complete"`
	// Count: how many; at least so many where the count is not complete.
	Count int64 `json:"count"`
}

// DueHour: the waiting deliveries that fall due in one hour.
type DueHour struct {
	// At: the start of the hour.
	At time.Time `json:"at"`
	// Complete: whether the count is exact.
	Complete bool `json:"complete"`
	// Count: how many; at least so many where the count is not complete.
	Count int64 `json:"count"`
}

// DeadLetters: dead deliveries in groups.
type DeadLetters struct {
	// Complete: whether all dead deliveries were counted. Where more are dead, the newest are counted.
	Complete bool `json:"complete"`
	// Counted: how many dead deliveries were counted.
	Counted int64 `json:"counted"`
	// Data: the largest groups, largest first.
	Data []DeadGroup `json:"data"`
	// Groups: how many groups there are, those included that are not in Data.
	Groups int `json:"groups"`
}

// DeadGroup: dead deliveries of one destination with the same reason.
type DeadGroup struct {
	// Count: how many of them were counted.
	Count         int64  `json:"count"`
	DestinationID string `json:"destination_id"`
	// FirstAt: when the first of them died.
	FirstAt time.Time `json:"first_at"`
	// LastAt: when the last of them died.
	LastAt time.Time `json:"last_at"`
	// Reason: exhausted or not_admitted.
	Reason string `json:"reason"`
	// Tenant: whose they are; only in an answer about all tenants.
	Tenant string `json:"tenant,omitempty"`
}

// SentRequest: A request to a receiver. Its secrets are masked.
type SentRequest struct {
	// Body: the body as text; what is not UTF-8 is replaced.
	Body      string `json:"body"`
	BodyBytes int    `json:"body_bytes"`
	// ChangedSince: whether the subscription was changed after the attempt: what was sent may have had other headers
	// or another format.
	ChangedSince bool `json:"changed_since"`
	// Headers: in the order in which they are sent over HTTP/1.1. Tokens, signatures and the values of a
	// subscription's own headers are masked.
	Headers []SentHeader `json:"headers"`
	// Method: always `POST`.
	Method string `json:"method"`
	// Rebuilt: always true: requests are not kept. This one is rendered again from the event, by the code that sends.
	Rebuilt bool   `json:"rebuilt"`
	URL     string `json:"url"`
}

// SentHeader: one header.
type SentHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// RateLimit: A rate.
type RateLimit struct {
	// Name: `requests_per_second` or `events_per_second`.
	Name string `json:"name"`
	// Limit: the limit; nil if there is none.
	Limit *int `json:"limit"`
	// Own: whether it is the tenant's own limit, and not the server's.
	Own bool `json:"own"`
	// Setting: the operator's setting for all tenants.
	Setting string `json:"setting"`
}

// PortalLink: A portal link, without the link itself.
type PortalLink struct {
	ID string `json:"id"`
	// Access: `read` or `manage`.
	Access    string    `json:"access"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt: until when it can be used.
	ExpiresAt time.Time `json:"expires_at"`
	// SessionExpiresAt: when the session that it opened ends at the latest; nil until it is used.
	SessionExpiresAt *time.Time `json:"session_expires_at"`
	Tenant           string     `json:"tenant"`
	Theme            Theme      `json:"theme"`
	// UsedAt: when it was used; nil until then.
	UsedAt *time.Time `json:"used_at"`
}

// PortalLinkCreated: A portal link that was just made.
type PortalLinkCreated struct {
	PortalLink
	// URL: the link. It works once and is not shown again.
	URL Secret `json:"url"`
}

// Theme: how a portal looks.
type Theme struct {
	Name   string `json:"name"`
	Accent string `json:"accent"`
	// Logo: the address of the logo, relative to the server's.
	Logo string `json:"logo"`
	// Mode: `light` or `dark`.
	Mode string `json:"mode"`
}

// AlertTarget: A target of alerts.
type AlertTarget struct {
	// Name: its name in the settings.
	Name string `json:"name"`
	// Failures: consecutive failures.
	Failures int `json:"failures"`
	// Firing: what it was told and is not over.
	Firing []FiringAlert `json:"firing"`
	// Kind: `webhook`, `slack` or `email`.
	Kind string `json:"kind"`
	// LastMessageAt: when the last one was sent.
	LastMessageAt *time.Time `json:"last_message_at"`
	// Messages: messages that were sent.
	Messages int64 `json:"messages"`
	// NextTryAt: when the next try is made, after a failure.
	NextTryAt *time.Time `json:"next_try_at"`
	// To: where it is: the origin of a URL, or addresses. Secrets are left out.
	To string `json:"to"`
}

// FiringAlert: something that is wrong.
type FiringAlert struct {
	// Count: how many the target was told of.
	Count int64 `json:"count"`
	// Kind: what it is.
	Kind string `json:"kind"`
}

// AlertTestResult: the outcome of a test message.
type AlertTestResult struct {
	// DurationMS: how long it took.
	DurationMS int64 `json:"duration_ms"`
	// Error: why it failed.
	Error string `json:"error"`
	// Kind: `webhook`, `slack` or `email`.
	Kind string `json:"kind"`
	// Outcome: `sent` where the target accepted the message, else `failed`.
	Outcome string `json:"outcome"`
	// Target: the target's name in the settings.
	Target string `json:"target"`
	// To: where it is. Secrets are left out.
	To string `json:"to"`
}

// Backup: A backup.
type Backup struct {
	State string `json:"state"`
	// Bytes: bytes written so far.
	Bytes int64 `json:"bytes"`
	// Error: why it failed.
	Error      string     `json:"error"`
	FinishedAt *time.Time `json:"finished_at"`
	StartedAt  time.Time  `json:"started_at"`
	// To: the directory.
	To string `json:"to"`
}

// Setting: one setting.
type Setting struct {
	// Help: what it is.
	Help string `json:"help"`
	Key  string `json:"key"`
	// Live: whether a running server takes a change of it (SIGHUP); else it needs a restart.
	Live bool `json:"live"`
	// Origin: where it comes from: `default`, `file`, `env` or `flag`.
	Origin string `json:"origin"`
	// Place: the same, exactly: file and line, variable or flag.
	Place string `json:"place"`
	// Value: as it would be written in the file; nil where it is not set, `***` where it is a secret.
	Value json.RawMessage `json:"value"`
}

// Server: the node that answers, and what all nodes have together.
type Server struct {
	// ClockAheadMS: by how much the server's time is ahead of its machine's clock.
	ClockAheadMS int64            `json:"clock_ahead_ms"`
	Disk         *Disk            `json:"disk"`
	Lanes        Lanes            `json:"lanes"`
	MassFailure  MassFailureState `json:"mass_failure"`
	// Nodes: every node that is alive, by name; one without a name where the store has room for one node only.
	Nodes []Node `json:"nodes"`
	// Now: the server's time now.
	Now       time.Time `json:"now"`
	StartedAt time.Time `json:"started_at"`
	// Store: `embedded` or `postgres`.
	Store string `json:"store"`
	// TimeScale: what the policy's durations are divided by; 1 but for demonstrations.
	TimeScale int    `json:"time_scale"`
	Version   string `json:"version"`
}

// Disk: A disk, in bytes.
type Disk struct {
	// DataBytes: what the data directory takes.
	DataBytes  int64 `json:"data_bytes"`
	FreeBytes  int64 `json:"free_bytes"`
	TotalBytes int64 `json:"total_bytes"`
}

// Lanes: the two queues.
type Lanes struct {
	First Lane  `json:"first"`
	Retry *Lane `json:"retry,omitempty"`
}

// Lane: one queue.
type Lane struct {
	// Depth: deliveries in it, of all nodes; what is in flight is not.
	Depth int64 `json:"depth"`
	// InFlight: attempts in flight, of the node that answers.
	InFlight int `json:"in_flight"`
	// OldestSeconds: for how long its oldest delivery is due, in the shards of the node that answers; nil where none
	// is.
	OldestSeconds *float64 `json:"oldest_seconds"`
}

// MassFailureState: whether transitions to disabled and frozen are suspended, because most destinations of this
// node fail at once.
type MassFailureState struct {
	Suspended bool `json:"suspended"`
	// SuspendedSince: since when; nil where they are not.
	SuspendedSince *time.Time `json:"suspended_since"`
}

// Node: one node.
type Node struct {
	// Name: its name; nil for the only one.
	Name string `json:"name"`
	// SeenAt: when it last renewed its shards; nil for the only one.
	SeenAt *time.Time `json:"seen_at"`
	// Shards: how many of the 256 shards it owns.
	Shards int `json:"shards"`
	// This: whether it is the one that answers.
	This bool `json:"this"`
	// Version: the version of its program; nil where that is too old to say so.
	Version string `json:"version"`
}
