package postrider

import (
	"context"
	"net/http"
	"time"
)

// How long Wait and WaitErased wait between two questions.
const waitPause = 500 * time.Millisecond

// EventTypes are the catalogue: event types, and what is done with events that do not fit them.
type EventTypes struct{ api *api }

// NewEventType is an event type to be added. What is empty is left out. Schema is the JSON Schema of the data, and
// Example must fit it; json.RawMessage is sent as it is. Scope is ScopeOfTenant (default) or, for admin keys,
// ScopeOfServer.
type NewEventType struct {
	Name            string
	Description     string
	Schema, Example any
	Deprecated      bool
	Scope           string
}

// Create adds an event type to the catalogue.
func (r *EventTypes) Create(ctx context.Context, kind NewEventType) (*EventType, error) {
	body := given("name", kind.Name, "description", kind.Description, "scope", kind.Scope)
	if kind.Schema != nil {
		body["schema"] = kind.Schema
	}
	if kind.Example != nil {
		body["example"] = kind.Example
	}
	if kind.Deprecated {
		body["deprecated"] = true
	}
	return change[EventType](ctx, r.api, http.MethodPost, path("event-types"), body)
}

// Get gives one event type by its name. An empty scope is the tenant's own, or else the server's.
func (r *EventTypes) Get(ctx context.Context, name, scope string) (*EventType, error) {
	return get[EventType](ctx, r.api, path("event-types", name), query("scope", scope))
}

// List lists event types by name. An empty scope is the tenant's own and the server's.
func (r *EventTypes) List(ctx context.Context, scope string) *List[EventType] {
	return newList[EventType](ctx, r.api, path("event-types"), query("scope", scope))
}

// EventTypeChange has the fields of an event type to be changed. What is not set stays as it is.
type EventTypeChange struct {
	Description     Change[string]
	Schema, Example Change[any]
	Deprecated      Change[bool]
}

// Update changes some fields of an event type. scope may be empty.
func (r *EventTypes) Update(ctx context.Context, name, scope string, changes EventTypeChange) (*EventType, error) {
	body := map[string]any{}
	changes.Description.into(body, "description")
	changes.Schema.into(body, "schema")
	changes.Example.into(body, "example")
	changes.Deprecated.into(body, "deprecated")
	return changeOf[EventType](ctx, r.api, http.MethodPatch, path("event-types", name), query("scope", scope), body)
}

// Delete removes an event type. Its events and the subscriptions to it stay. scope may be empty.
func (r *EventTypes) Delete(ctx context.Context, name, scope string) error {
	c := call{method: http.MethodDelete, path: path("event-types", name), query: query("scope", scope)}
	return r.api.send(ctx, c, nil)
}

// Catalogue says what is done with events of unknown types, and with those that do not fit their schema.
func (r *EventTypes) Catalogue(ctx context.Context) (*Catalogue, error) {
	return get[Catalogue](ctx, r.api, path("catalogue"), nil)
}

// CatalogueChange changes what is done with events that do not fit. Null takes the server's choice.
type CatalogueChange struct{ UnknownTypes, Misfits Change[Conduct] }

// UpdateCatalogue changes what is done with events that do not fit.
func (r *EventTypes) UpdateCatalogue(ctx context.Context, changes CatalogueChange) (*Catalogue, error) {
	body := map[string]any{}
	changes.UnknownTypes.into(body, "unknown_types")
	changes.Misfits.into(body, "misfits")
	return change[Catalogue](ctx, r.api, http.MethodPatch, path("catalogue"), body)
}

// Erasures remove payloads.
type Erasures struct{ api *api }

// OfEvent erases the payload of one event. It returns when the work is recorded.
func (r *Erasures) OfEvent(ctx context.Context, id string) (*Erasure, error) {
	return change[Erasure](ctx, r.api, http.MethodPost, path("erasures"), map[string]any{"event": id})
}

// OfObject erases the payloads of all events of an object that were accepted before.
func (r *Erasures) OfObject(ctx context.Context, object string) (*Erasure, error) {
	return change[Erasure](ctx, r.api, http.MethodPost, path("erasures"), map[string]any{"object": object})
}

// Get gives one erasure with its progress.
func (r *Erasures) Get(ctx context.Context, id string) (*Erasure, error) {
	return get[Erasure](ctx, r.api, path("erasures", id), nil)
}

// List lists erasures, newest first.
func (r *Erasures) List(ctx context.Context) *List[Erasure] {
	return newList[Erasure](ctx, r.api, path("erasures"), nil)
}

// WaitErased returns when the payloads cannot be read any more, or when the context ends.
func (r *Erasures) WaitErased(ctx context.Context, id string) (*Erasure, error) {
	return r.wait(ctx, id, func(state ErasureState) bool { return state != Erasing })
}

// Wait returns when nothing of the payloads is left in the store's files, or when the context ends. The server
// overwrites those together for all erasures of some minutes (erasure.scrub_interval).
func (r *Erasures) Wait(ctx context.Context, id string) (*Erasure, error) {
	return r.wait(ctx, id, func(state ErasureState) bool { return state == ErasureFinished })
}

func (r *Erasures) wait(ctx context.Context, id string, hasEnded func(ErasureState) bool) (*Erasure, error) {
	for {
		erasure, err := r.Get(ctx, id)
		if err != nil || hasEnded(erasure.State) {
			return erasure, err
		}
		timer := time.NewTimer(waitPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// PortalLinks open the page for one tenant, once and without a key.
type PortalLinks struct{ api *api }

// NewPortalLink is a link to be made. Access is "read" or "manage". ExpiresIn is in seconds, 600 where it is left out.
type NewPortalLink struct {
	Access    string    `json:"access"`
	ExpiresIn int64     `json:"expires_in,omitempty"`
	Theme     *NewTheme `json:"theme,omitempty"`
}

// NewTheme says how a portal is to look. What is empty is left out. Accent is #rrggbb, Logo a picture in base64, Mode
// "light" or "dark", and Name stands in place of Postrider's.
type NewTheme struct {
	Accent string `json:"accent,omitempty"`
	Logo   string `json:"logo,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Name   string `json:"name,omitempty"`
}

// Create makes a link. The answer's URL is shown this once.
func (r *PortalLinks) Create(ctx context.Context, link NewPortalLink) (*PortalLinkCreated, error) {
	return change[PortalLinkCreated](ctx, r.api, http.MethodPost, path("portal-links"), link)
}

// List lists links, without the links themselves.
func (r *PortalLinks) List(ctx context.Context) *List[PortalLink] {
	return newList[PortalLink](ctx, r.api, path("portal-links"), nil)
}

// Revoke ends a link and the session that it opened.
func (r *PortalLinks) Revoke(ctx context.Context, id string) error {
	return remove(ctx, r.api, path("portal-links", id))
}

// Alerts are the targets of the operator's alerts, for admin keys.
type Alerts struct{ api *api }

// List gives the targets, and what each was told.
func (r *Alerts) List(ctx context.Context) ([]AlertTarget, error) {
	return all[AlertTarget](get[Page[AlertTarget]](ctx, r.api, path("alerts"), nil))
}

// Test sends a test message to one target, or to all of them where it is empty, and says how each went.
func (r *Alerts) Test(ctx context.Context, target string) ([]AlertTestResult, error) {
	body := given("target", target)
	return all[AlertTestResult](change[Page[AlertTestResult]](ctx, r.api, http.MethodPost, path("alerts", "test"), body))
}

// Operations are about the server itself, for admin keys.
type Operations struct{ api *api }

// Server tells of nodes, lanes, disk and clock.
func (r *Operations) Server(ctx context.Context) (*Server, error) {
	return get[Server](ctx, r.api, path("server"), nil)
}

// Settings gives every setting, and where it comes from. Secrets are masked.
func (r *Operations) Settings(ctx context.Context) ([]Setting, error) {
	return all[Setting](get[Page[Setting]](ctx, r.api, path("config"), nil))
}

// Backup gives the last backup.
func (r *Operations) Backup(ctx context.Context) (*Backup, error) {
	return get[Backup](ctx, r.api, path("backup"), nil)
}

// StartBackup writes a backup to a directory of the server's machine: an absolute path, new or empty.
func (r *Operations) StartBackup(ctx context.Context, to string) (*Backup, error) {
	return change[Backup](ctx, r.api, http.MethodPost, path("backup"), map[string]any{"to": to})
}

// all gives the entries of an answer that has all of them at once.
func all[T any](page *Page[T], err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return page.Data, nil
}
