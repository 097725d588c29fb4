package postrider

import (
	"context"
	"net/http"
)

// Subscriptions say who wants to know what, and where.
type Subscriptions struct{ api *api }

// NewSubscription is a subscription to be created. What is empty is left out.
type NewSubscription struct {
	// URL is where deliveries go.
	URL string
	// Types are the event types: task.updated, task.* or *.
	Types []string
	// Object limits it to the events of this object.
	Object string
	// Filter limits it to the events that this filter lets through.
	Filter Filter
	// Format is FormatStandard (default), FormatCloudEvents, FormatRaw or FormatWorkfront.
	Format string
	// Workfront are the options of FormatWorkfront.
	Workfront *NewWorkfrontOptions
	// AuthToken is sent as Authorization: Bearer ….
	AuthToken Secret
	// Headers are added to each request.
	Headers map[string]Secret
	// Secret is whsec_… or whsk_…; the server makes one where it is empty.
	Secret Secret
	// RateLimit is the most requests per second; 0 for no limit.
	RateLimit float64
	// Policy is what it wants otherwise than the server's policy.
	Policy *NewSubscriptionPolicy
	// IsDisabled creates it without new deliveries.
	IsDisabled bool
	// ClientCertificate and ClientKey (PEM) are for mutual TLS.
	ClientCertificate string
	ClientKey         Secret
	// CACertificates (PEM) are the authorities that are believed instead of the usual ones.
	CACertificates string
	// Name, Description and Metadata describe it.
	Name        string
	Description string
	Metadata    map[string]string
	// UID is the application's own identifier, unique in the tenant. With the UID and the fields of one that exists,
	// Create answers that one, without its secret.
	UID string
}

// NewWorkfrontOptions say how events look in FormatWorkfront. What is empty is left out.
type NewWorkfrontOptions struct {
	// Version is v1 or v2 (default).
	Version string `json:"version,omitempty"`
	// Base64 sends both states as base64 texts.
	Base64 bool `json:"base64,omitempty"`
}

func (n NewSubscription) wire() map[string]any {
	body := given("url", n.URL, "types", n.Types, "object", n.Object, "format", n.Format,
		"auth_token", n.AuthToken, "secret", n.Secret, "rate_limit", n.RateLimit,
		"client_certificate", n.ClientCertificate, "client_key", n.ClientKey, "ca_certificates", n.CACertificates,
		"name", n.Name, "description", n.Description, "uid", n.UID)
	if n.Metadata != nil {
		body["metadata"] = n.Metadata
	}
	if n.Filter != nil {
		body["filter"] = n.Filter
	}
	if n.Policy != nil {
		body["policy"] = n.Policy
	}
	if n.Workfront != nil {
		body["workfront"] = n.Workfront
	}
	if n.Headers != nil {
		body["headers"] = revealed(n.Headers)
	}
	if n.IsDisabled {
		body["enabled"] = false
	}
	return body
}

// Change is a field of a change: its zero value leaves the field as it is. See Set and Null.
type Change[T any] struct {
	isSet bool
	value *T
}

// Set changes a field to this value.
func Set[T any](value T) Change[T] { return Change[T]{true, &value} }

// Null removes the value of a field.
func Null[T any]() Change[T] { return Change[T]{true, nil} }

func (c Change[T]) into(body map[string]any, name string) {
	switch {
	case !c.isSet:
	case c.value == nil:
		body[name] = nil
	default:
		switch value := any(*c.value).(type) {
		case Secret:
			body[name] = value.Reveal()
		case map[string]Secret:
			body[name] = revealed(value)
		default:
			body[name] = value
		}
	}
}

// SubscriptionChange has the fields of a subscription to be changed. What is not set stays as it is.
type SubscriptionChange struct {
	URL               Change[string]
	Types             Change[[]string]
	Object            Change[string]
	Filter            Change[Filter]
	Format            Change[string]
	Workfront         Change[NewWorkfrontOptions]
	AuthToken         Change[Secret]
	Headers           Change[map[string]Secret]
	RateLimit         Change[float64]
	Policy            Change[NewSubscriptionPolicy]
	Enabled           Change[bool]
	ClientCertificate Change[string]
	ClientKey         Change[Secret]
	CACertificates    Change[string]
	Name              Change[string]
	Description       Change[string]
	Metadata          Change[map[string]string]
	UID               Change[string]
}

func (s SubscriptionChange) wire() map[string]any {
	body := map[string]any{}
	s.URL.into(body, "url")
	s.Types.into(body, "types")
	s.Object.into(body, "object")
	s.Filter.into(body, "filter")
	s.Format.into(body, "format")
	s.Workfront.into(body, "workfront")
	s.AuthToken.into(body, "auth_token")
	s.Headers.into(body, "headers")
	s.RateLimit.into(body, "rate_limit")
	s.Policy.into(body, "policy")
	s.Enabled.into(body, "enabled")
	s.ClientCertificate.into(body, "client_certificate")
	s.ClientKey.into(body, "client_key")
	s.CACertificates.into(body, "ca_certificates")
	s.Name.into(body, "name")
	s.Description.into(body, "description")
	s.Metadata.into(body, "metadata")
	s.UID.into(body, "uid")
	return body
}

func revealed(headers map[string]Secret) map[string]string {
	texts := make(map[string]string, len(headers))
	for name, value := range headers {
		texts[name] = value.Reveal()
	}
	return texts
}

// Create makes a subscription. The answer's Secret is shown this once.
func (r *Subscriptions) Create(ctx context.Context, subscription NewSubscription) (*SubscriptionWithSecret, error) {
	return change[SubscriptionWithSecret](ctx, r.api, http.MethodPost, path("subscriptions"), subscription.wire())
}

// Get gives one subscription.
func (r *Subscriptions) Get(ctx context.Context, id string) (*Subscription, error) {
	return get[Subscription](ctx, r.api, path("subscriptions", id), nil)
}

// SubscriptionQuery says which subscriptions. What is empty is left out. Q is a part of the name, description, UID,
// URL or a value of the metadata; Metadata is key:value.
type SubscriptionQuery struct{ Destination, UID, Q, Metadata string }

// List lists subscriptions.
func (r *Subscriptions) List(ctx context.Context, q SubscriptionQuery) *List[Subscription] {
	values := query("destination", q.Destination, "uid", q.UID, "q", q.Q, "metadata", q.Metadata)
	return newList[Subscription](ctx, r.api, path("subscriptions"), values)
}

// Update changes some fields of a subscription.
func (r *Subscriptions) Update(ctx context.Context, id string, changes SubscriptionChange) (*Subscription, error) {
	return change[Subscription](ctx, r.api, http.MethodPatch, path("subscriptions", id), changes.wire())
}

// Delete removes a subscription. What is still owed to it is cancelled.
func (r *Subscriptions) Delete(ctx context.Context, id string) error {
	return remove(ctx, r.api, path("subscriptions", id))
}

// RotateSecret makes a new secret. The one before signs along for overlapSeconds; a day where that is negative.
func (r *Subscriptions) RotateSecret(
	ctx context.Context, id string, overlapSeconds int64,
) (*SubscriptionWithSecret, error) {
	body := map[string]any{}
	if overlapSeconds >= 0 {
		body["overlap_seconds"] = overlapSeconds
	}
	return change[SubscriptionWithSecret](ctx, r.api, http.MethodPost, path("subscriptions", id, "secret", "rotate"), body)
}

// Test sends a test event now and says how it went.
func (r *Subscriptions) Test(ctx context.Context, id string) (*TestOutcome, error) {
	return change[TestOutcome](ctx, r.api, http.MethodPost, path("subscriptions", id, "test"), nil)
}
