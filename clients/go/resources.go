package postrider

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	batchEventsMax = 1000
	// Below the server's 16 MiB, so that a batch is never refused for its size alone.
	batchBytesMax = 15 << 20
)

// Tenants, for admin keys.
type Tenants struct{ api *api }

// Create makes a tenant. name may be empty.
func (r *Tenants) Create(ctx context.Context, id, name string) (*Tenant, error) {
	return change[Tenant](ctx, r.api, http.MethodPost, path("tenants"), given("id", id, "name", name))
}

// NewTenant is a tenant to be created. What is empty is left out.
type NewTenant struct {
	ID, Name, Description string
	Metadata              map[string]string
	// Quotas are limits of its own, by the names of Limits.
	Quotas                             map[string]int64
	RequestsPerSecond, EventsPerSecond int
}

// CreateWith makes a tenant with all that describes and limits it.
func (r *Tenants) CreateWith(ctx context.Context, tenant NewTenant) (*Tenant, error) {
	body := given("id", tenant.ID, "name", tenant.Name, "description", tenant.Description,
		"requests_per_second", tenant.RequestsPerSecond, "events_per_second", tenant.EventsPerSecond)
	if tenant.Metadata != nil {
		body["metadata"] = tenant.Metadata
	}
	if tenant.Quotas != nil {
		body["quotas"] = tenant.Quotas
	}
	return change[Tenant](ctx, r.api, http.MethodPost, path("tenants"), body)
}

// TenantChange has the fields of a tenant to be changed. What is not set stays as it is; Metadata and Quotas are
// replaced as a whole.
type TenantChange struct {
	Name, Description                  Change[string]
	Metadata                           Change[map[string]string]
	Quotas                             Change[map[string]int64]
	RequestsPerSecond, EventsPerSecond Change[int]
}

// Update changes some fields of a tenant.
func (r *Tenants) Update(ctx context.Context, id string, changes TenantChange) (*Tenant, error) {
	body := map[string]any{}
	changes.Name.into(body, "name")
	changes.Description.into(body, "description")
	changes.Metadata.into(body, "metadata")
	changes.Quotas.into(body, "quotas")
	changes.RequestsPerSecond.into(body, "requests_per_second")
	changes.EventsPerSecond.into(body, "events_per_second")
	return change[Tenant](ctx, r.api, http.MethodPatch, path("tenants", id), body)
}

// Get gives one tenant.
func (r *Tenants) Get(ctx context.Context, id string) (*Tenant, error) {
	return get[Tenant](ctx, r.api, path("tenants", id), nil)
}

// List lists all tenants.
func (r *Tenants) List(ctx context.Context) *List[Tenant] {
	return newList[Tenant](ctx, r.api, path("tenants"), nil)
}

// Delete removes a tenant that has no subscriptions.
func (r *Tenants) Delete(ctx context.Context, id string) error {
	return remove(ctx, r.api, path("tenants", id))
}

// Keys are API keys, for admin keys.
type Keys struct{ api *api }

// NewKey is a key to be created. What is empty is left out.
type NewKey struct {
	Scopes    []string
	Tenant    string
	Name      string
	ExpiresAt time.Time
}

// Create makes a key. The answer's Secret is shown this once.
func (r *Keys) Create(ctx context.Context, key NewKey) (*KeyCreated, error) {
	body := given("scopes", key.Scopes, "tenant", key.Tenant, "name", key.Name, "expires_at", key.ExpiresAt)
	return change[KeyCreated](ctx, r.api, http.MethodPost, path("keys"), body)
}

// Get gives one key, without the key itself.
func (r *Keys) Get(ctx context.Context, id string) (*Key, error) {
	return get[Key](ctx, r.api, path("keys", id), nil)
}

// KeyQuery says which keys. Scope is "admin" for the admin keys, or empty.
type KeyQuery struct{ Tenant, Scope string }

// List lists keys.
func (r *Keys) List(ctx context.Context, q KeyQuery) *List[Key] {
	return newList[Key](ctx, r.api, path("keys"), query("tenant", q.Tenant, "scope", q.Scope))
}

// Delete revokes a key.
func (r *Keys) Delete(ctx context.Context, id string) error {
	return remove(ctx, r.api, path("keys", id))
}

// Events are what happened.
type Events struct{ api *api }

// NewEvent is an event as the application sends it. What is empty is left out. Data and Old are any JSON;
// json.RawMessage is sent as it is, and json.RawMessage("null") is an Old that is null.
type NewEvent struct {
	Type   string
	Data   any
	Old    any
	Object string
	ID     string
	Time   time.Time
}

func (e NewEvent) wire() map[string]any {
	body := given("type", e.Type, "object", e.Object, "id", e.ID, "time", e.Time)
	body["data"] = e.Data
	if e.Old != nil {
		body["old"] = e.Old
	}
	return body
}

// Send returns when the event and all its deliveries are on stable storage.
func (r *Events) Send(ctx context.Context, event NewEvent) (*EventAccepted, error) {
	return change[EventAccepted](ctx, r.api, http.MethodPost, path("events"), event.wire())
}

// SendBatch sends at most 1000 events in one request, which is accepted whole or refused whole.
func (r *Events) SendBatch(ctx context.Context, events []NewEvent) ([]EventAccepted, error) {
	lines := make([][]byte, 0, len(events))
	for _, event := range events {
		line, err := encode(event.wire())
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return r.sendLines(ctx, lines)
}

// SendAll sends any number of events, in as many batches as are needed, each with its own idempotency key. It gives
// one result for each event, in order; where a batch is refused, those of the batches before it, and the error.
func (r *Events) SendAll(ctx context.Context, events []NewEvent) ([]EventAccepted, error) {
	ctx = context.WithValue(ctx, idempotencyKey{}, nil)
	results := make([]EventAccepted, 0, len(events))
	var lines [][]byte
	size := 0
	flush := func() error {
		accepted, err := r.sendLines(ctx, lines)
		results = append(results, accepted...)
		lines, size = nil, 0
		return err
	}
	for _, event := range events {
		line, err := encode(event.wire())
		if err != nil {
			return results, err
		}
		if len(lines) == batchEventsMax || (len(lines) > 0 && size+len(line) > batchBytesMax) {
			if err := flush(); err != nil {
				return results, err
			}
		}
		lines = append(lines, line)
		size += len(line) + 1
	}
	if len(lines) == 0 {
		return results, nil
	}
	err := flush()
	return results, err
}

func (r *Events) sendLines(ctx context.Context, lines [][]byte) ([]EventAccepted, error) {
	var answer struct {
		Results []EventAccepted `json:"results"`
	}
	c := call{
		method:      http.MethodPost,
		path:        path("events", "batch"),
		body:        bytes.Join(lines, []byte("\n")),
		contentType: "application/x-ndjson",
	}
	if err := r.api.send(ctx, c, &answer); err != nil {
		return nil, err
	}
	return answer.Results, nil
}

// Get gives one event with its payload and its deliveries.
func (r *Events) Get(ctx context.Context, id string) (*EventDetail, error) {
	return get[EventDetail](ctx, r.api, path("events", id), nil)
}

// EventQuery says which events. What is empty is left out.
type EventQuery struct {
	Type         string
	Since, Until time.Time
	Object       string
}

// List lists events, newest first.
func (r *Events) List(ctx context.Context, q EventQuery) *List[EventSummary] {
	values := query("type", q.Type, "object", q.Object, "since", q.Since, "until", q.Until)
	return newList[EventSummary](ctx, r.api, path("events"), values)
}

// Matches says which subscriptions want an event, and why the others do not.
func (r *Events) Matches(ctx context.Context, id string) *List[Match] {
	return newList[Match](ctx, r.api, path("events", id, "matches"), nil)
}

// Deliveries are events owed to subscriptions.
type Deliveries struct{ api *api }

// DeliveryQuery says which deliveries. What is empty is left out.
type DeliveryQuery struct {
	State                                  DeliveryState
	Destination, Subscription, Event, Type string
	Since, Until                           time.Time
	Object                                 string
}

// List lists deliveries, newest first.
func (r *Deliveries) List(ctx context.Context, q DeliveryQuery) *List[Delivery] {
	values := query("state", q.State, "destination", q.Destination, "subscription", q.Subscription,
		"event", q.Event, "type", q.Type, "object", q.Object, "since", q.Since, "until", q.Until)
	return newList[Delivery](ctx, r.api, path("deliveries"), values)
}

// Due says how many waiting deliveries fall due in each of the next 48 hours.
func (r *Deliveries) Due(ctx context.Context) (*RetriesDue, error) {
	return get[RetriesDue](ctx, r.api, path("deliveries", "due"), nil)
}

// Dead gives dead deliveries by destination and reason, at most limit groups, the largest first; 50 for 0.
func (r *Deliveries) Dead(ctx context.Context, limit int) (*DeadLetters, error) {
	return get[DeadLetters](ctx, r.api, path("deliveries", "dead"), query("limit", limit))
}

// Get gives one delivery with its first attempts; see Attempts for all of them.
func (r *Deliveries) Get(ctx context.Context, id string) (*DeliveryDetail, error) {
	return get[DeliveryDetail](ctx, r.api, path("deliveries", id), nil)
}

// Attempts lists the attempts of a delivery, oldest first.
func (r *Deliveries) Attempts(ctx context.Context, id string) *List[Attempt] {
	return newList[Attempt](ctx, r.api, path("deliveries", id, "attempts"), nil)
}

// Request gives what was sent to the receiver in an attempt, made again from the event. Its secrets are masked.
func (r *Deliveries) Request(ctx context.Context, id string, attempt int) (*SentRequest, error) {
	return get[SentRequest](ctx, r.api, path("deliveries", id, "attempts", strconv.Itoa(attempt), "request"), nil)
}

// Explain says where a delivery stands, why, what happens next, and what would help.
func (r *Deliveries) Explain(ctx context.Context, id string) (*Explanation, error) {
	return get[Explanation](ctx, r.api, path("deliveries", id, "explain"), nil)
}

// Retry attempts a delivery that waits now, without waiting for its slot.
func (r *Deliveries) Retry(ctx context.Context, id string) (*Delivery, error) {
	return change[Delivery](ctx, r.api, http.MethodPost, path("deliveries", id, "retry"), nil)
}

// Replay sends a delivery that has ended once more.
func (r *Deliveries) Replay(ctx context.Context, id string) (*Delivery, error) {
	return change[Delivery](ctx, r.api, http.MethodPost, path("deliveries", id, "replay"), nil)
}

// Cancel ends a delivery that has not ended.
func (r *Deliveries) Cancel(ctx context.Context, id string) (*Delivery, error) {
	return change[Delivery](ctx, r.api, http.MethodPost, path("deliveries", id, "cancel"), nil)
}

// Destinations are URLs with their circuits.
type Destinations struct{ api *api }

// DestinationQuery says which destinations. What is empty is left out. Q is a part of the URL.
type DestinationQuery struct {
	State DestinationState
	Q     string
}

// List lists destinations.
func (r *Destinations) List(ctx context.Context, q DestinationQuery) *List[Destination] {
	return newList[Destination](ctx, r.api, path("destinations"), query("state", q.State, "q", q.Q))
}

// Summary says how many destinations there are in each state.
func (r *Destinations) Summary(ctx context.Context) (*DestinationSummary, error) {
	return get[DestinationSummary](ctx, r.api, path("destinations", "summary"), nil)
}

// Figures gives the figures of at most 100 destinations, in the order of ids; all zero for one that does not exist.
func (r *Destinations) Figures(ctx context.Context, ids []string) ([]DestinationFigures, error) {
	values := query("ids", strings.Join(ids, ","))
	return all[DestinationFigures](get[Page[DestinationFigures]](ctx, r.api, path("destinations", "stats"), values))
}

// Get gives one destination.
func (r *Destinations) Get(ctx context.Context, id string) (*Destination, error) {
	return get[Destination](ctx, r.api, path("destinations", id), nil)
}

// Stats gives the attempts of a destination by the hour, for the last hours, at most 168; 24 where hours is 0.
func (r *Destinations) Stats(ctx context.Context, id string, hours int) (*DestinationStats, error) {
	return get[DestinationStats](ctx, r.api, path("destinations", id, "stats"), query("hours", hours))
}

// Timeline lists every change of a destination's state, newest first, with the evidence.
func (r *Destinations) Timeline(ctx context.Context, id string) *List[Transition] {
	return newList[Transition](ctx, r.api, path("destinations", id, "timeline"), nil)
}

// Enable is the only way out of frozen. reason may be empty.
func (r *Destinations) Enable(ctx context.Context, id, reason string) (*Destination, error) {
	return r.EnableWith(ctx, id, Enabling{Reason: reason})
}

// Enabling says why a destination is enabled and what is sent then. What is empty is left out.
type Enabling struct {
	Reason string
	// Waiting is "slots" or "drain"; as the server is configured where it is empty.
	Waiting string
	// DeadSince replays what died there since then. The answer's Replay names the job.
	DeadSince time.Time
}

// EnableWith enables a destination and says what is sent then.
func (r *Destinations) EnableWith(ctx context.Context, id string, enabling Enabling) (*Destination, error) {
	body := given("reason", enabling.Reason, "waiting", enabling.Waiting, "dead_since", enabling.DeadSince)
	return change[Destination](ctx, r.api, http.MethodPost, path("destinations", id, "enable"), body)
}

// Freeze stops all attempts until somebody enables the destination. reason may be empty.
func (r *Destinations) Freeze(ctx context.Context, id, reason string) (*Destination, error) {
	return change[Destination](ctx, r.api, http.MethodPost, path("destinations", id, "freeze"), given("reason", reason))
}

// Replays are bulk replays.
type Replays struct{ api *api }

// NewReplay says which deliveries to replay, and how fast. What is empty is left out. State is Dead (default),
// Delivered or Cancelled; or Waiting: each is attempted once, without waiting for its slot.
type NewReplay struct {
	Destination, Subscription, Type string
	State                           DeliveryState
	Since, Until, EndedSince        time.Time
	PerSecond                       int
}

func (n NewReplay) wire() map[string]any {
	return given("destination", n.Destination, "subscription", n.Subscription, "type", n.Type,
		"state", string(n.State), "since", n.Since, "until", n.Until, "ended_since", n.EndedSince,
		"per_second", n.PerSecond)
}

// Create begins a replay.
func (r *Replays) Create(ctx context.Context, replay NewReplay) (*Replay, error) {
	return change[Replay](ctx, r.api, http.MethodPost, path("replays"), replay.wire())
}

// Count says how many deliveries such a replay would send. Nothing is sent.
func (r *Replays) Count(ctx context.Context, replay NewReplay) (int64, error) {
	body := replay.wire()
	body["dry_run"] = true
	answer, err := change[struct {
		Total int64 `json:"total"`
	}](ctx, r.api, http.MethodPost, path("replays"), body)
	if err != nil {
		return 0, err
	}
	return answer.Total, nil
}

// Get gives one replay with its progress.
func (r *Replays) Get(ctx context.Context, id string) (*Replay, error) {
	return get[Replay](ctx, r.api, path("replays", id), nil)
}

// List lists replays, newest first.
func (r *Replays) List(ctx context.Context) *List[Replay] {
	return newList[Replay](ctx, r.api, path("replays"), nil)
}

// Pause stops a replay until Resume.
func (r *Replays) Pause(ctx context.Context, id string) (*Replay, error) {
	return change[Replay](ctx, r.api, http.MethodPost, path("replays", id, "pause"), nil)
}

// Resume goes on with a paused replay.
func (r *Replays) Resume(ctx context.Context, id string) (*Replay, error) {
	return change[Replay](ctx, r.api, http.MethodPost, path("replays", id, "resume"), nil)
}

// Cancel ends a replay.
func (r *Replays) Cancel(ctx context.Context, id string) (*Replay, error) {
	return change[Replay](ctx, r.api, http.MethodPost, path("replays", id, "cancel"), nil)
}

// Ledger gives accepted = queued + in flight + waiting + delivered + dead + cancelled, of the tenant.
func (c *Client) Ledger(ctx context.Context) (*Ledger, error) {
	return get[Ledger](ctx, c.api, path("ledger"), nil)
}

// LedgerOfAll gives the ledger of all tenants together, for admin keys.
func (c *Client) LedgerOfAll(ctx context.Context) (*Ledger, error) {
	return get[Ledger](ctx, c.api, path("ledger"), query("scope", "all"))
}

// StatsQuery says which time. What is empty is left out. Scope is "all" for all tenants, or empty.
type StatsQuery struct {
	Since, Until time.Time
	StepMinutes  int
	Scope        string
}

// Stats says what happened over time, in spans of equal length.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (*Stats, error) {
	values := query("since", q.Since, "until", q.Until, "step_minutes", q.StepMinutes, "scope", q.Scope)
	return get[Stats](ctx, c.api, path("stats"), values)
}

// Limits gives the limits of the tenant, and how near it is to each.
func (c *Client) Limits(ctx context.Context) ([]Limit, error) {
	return all[Limit](get[Page[Limit]](ctx, c.api, path("limits"), nil))
}

// Rates gives the rates of the tenant: requests and events per second.
func (c *Client) Rates(ctx context.Context) ([]RateLimit, error) {
	answer, err := get[struct {
		Rates []RateLimit `json:"rates"`
	}](ctx, c.api, path("limits"), nil)
	if err != nil {
		return nil, err
	}
	return answer.Rates, nil
}

// Policy gives the server's policy, and how far the policy of a subscription may go.
func (c *Client) Policy(ctx context.Context) (*Policy, error) {
	return get[Policy](ctx, c.api, path("policy"), nil)
}

// AuditQuery says which entries. What is empty is left out.
type AuditQuery struct {
	Tenant, Key, Action, Target string
	Since, Until                time.Time
}

// Audit lists who changed what.
func (c *Client) Audit(ctx context.Context, q AuditQuery) *List[AuditEntry] {
	values := query("tenant", q.Tenant, "key", q.Key, "action", q.Action, "target", q.Target,
		"since", q.Since, "until", q.Until)
	return newList[AuditEntry](ctx, c.api, path("audit"), values)
}

// TestFilter tries a filter on an event. Nothing is stored and nothing is sent.
func (c *Client) TestFilter(ctx context.Context, filter Filter, event NewEvent) (*FilterVerdict, error) {
	body := map[string]any{"filter": filter, "event": event.wire()}
	return change[FilterVerdict](ctx, c.api, http.MethodPost, path("filters", "test"), body)
}

// FilterTrial is a filter, and which accepted events to try it on: those with these EventIDs, or the newest ones (20,
// or Recent), of one Type where that is given.
type FilterTrial struct {
	Filter   Filter   `json:"filter"`
	EventIDs []string `json:"event_ids,omitempty"`
	Recent   int      `json:"recent,omitempty"`
	Type     string   `json:"type,omitempty"`
}

// TryFilter tries a filter on events that were accepted. Nothing is stored and nothing is sent.
func (c *Client) TryFilter(ctx context.Context, trial FilterTrial) (*FilterTrialAnswer, error) {
	return change[FilterTrialAnswer](ctx, c.api, http.MethodPost, path("filters", "test", "events"), trial)
}

// given makes a body of names and values. What is empty is left out.
func given(namesAndValues ...any) map[string]any {
	body := map[string]any{}
	for n := 0; n < len(namesAndValues); n += 2 {
		name := namesAndValues[n].(string)
		switch value := namesAndValues[n+1].(type) {
		case string:
			if value != "" {
				body[name] = value
			}
		case Secret:
			if value != "" {
				body[name] = value.Reveal()
			}
		case time.Time:
			if !value.IsZero() {
				body[name] = rfc3339(value)
			}
		case int:
			if value != 0 {
				body[name] = value
			}
		case float64:
			if value != 0 {
				body[name] = value
			}
		default:
			body[name] = value
		}
	}
	return body
}
