package postrider_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	postrider "github.com/postrider/postrider/clients/go"
)

// sampled gives a client of the server that answers with samples: full, old or new.
func sampled(t *testing.T, form string) *postrider.Client {
	t.Helper()
	base := os.Getenv("POSTRIDER_SAMPLES")
	if base == "" {
		t.Fatal("POSTRIDER_SAMPLES is not set: run clients/check.py")
	}
	return must(postrider.New(base+"/"+form, "k", postrider.WithRetries(0)))(t)
}

// ok notes the error of a call.
func ok[T any](t *testing.T) func(T, error) {
	return func(_ T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

func collected[T any](t *testing.T, list *postrider.List[T]) {
	t.Helper()
	if entries, err := list.Collect(-1); err != nil || len(entries) != 1 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// TestEveryCallReadsTheAnswersOfThisAnOlderAndANewerServer makes every call with everything that it takes. The check
// of the clients notes what is called.
func TestEveryCallReadsTheAnswersOfThisAnOlderAndANewerServer(t *testing.T) {
	for _, form := range []string{"full", "old", "new"} {
		t.Run(form, func(t *testing.T) {
			ctx, c := context.Background(), sampled(t, form)
			callRecords(ctx, t, c)
			callDeliveries(ctx, t, c)
			callOperations(ctx, t, c, form)
			callFigures(ctx, t, c)
			stream := must(c.StreamOf(ctx, postrider.StreamQuery{
				Outcome: postrider.AttemptFailed, Destination: "d", WithoutBodies: true,
			}))(t)
			defer stream.Close()
			told := []string{}
			for stream.Next() {
				told = append(told, stream.Event().Name)
			}
			if len(told) == 0 || told[len(told)-1] != "attempt" {
				t.Errorf("the stream told %v", told)
			}
		})
	}
}

func callRecords(ctx context.Context, t *testing.T, c *postrider.Client) {
	at, texts := time.Unix(1, 0), map[string]string{"a": "b"}
	quotas := map[string]int64{"keys": 1}
	ok[*postrider.Tenant](t)(c.Tenants.CreateWith(ctx, postrider.NewTenant{
		ID: "t", Name: "n", Description: "d", Metadata: texts, Quotas: quotas, RequestsPerSecond: 1, EventsPerSecond: 1,
	}))
	ok[*postrider.Tenant](t)(c.Tenants.Create(ctx, "t", "n"))
	ok[*postrider.Tenant](t)(c.Tenants.Update(ctx, "t", postrider.TenantChange{
		Name: postrider.Null[string](), Description: postrider.Set("d"), Metadata: postrider.Set(texts),
		Quotas: postrider.Set(quotas), RequestsPerSecond: postrider.Set(1), EventsPerSecond: postrider.Null[int](),
	}))
	ok[*postrider.Tenant](t)(c.Tenants.Get(ctx, "t"))
	collected(t, c.Tenants.List(ctx))
	noError(t, c.Tenants.Delete(ctx, "t"))
	ok[*postrider.KeyCreated](t)(c.Keys.Create(ctx, postrider.NewKey{Scopes: []string{"read"}, Tenant: "t", Name: "n", ExpiresAt: at}))
	ok[*postrider.Key](t)(c.Keys.Get(ctx, "k"))
	collected(t, c.Keys.List(ctx, postrider.KeyQuery{Tenant: "t", Scope: "admin"}))
	noError(t, c.Keys.Delete(ctx, "k"))
	event := postrider.NewEvent{Type: "a.b", Data: 1, Old: 2, Object: "o", ID: "i", Time: at}
	ok[*postrider.EventAccepted](t)(c.Events.Send(ctx, event))
	ok[[]postrider.EventAccepted](t)(c.Events.SendBatch(ctx, []postrider.NewEvent{event}))
	ok[*postrider.EventDetail](t)(c.Events.Get(ctx, "e"))
	collected(t, c.Events.List(ctx, postrider.EventQuery{Type: "t", Object: "o", Since: at, Until: at}))
	collected(t, c.Events.Matches(ctx, "e"))
	secrets := map[string]postrider.Secret{"a": "b"}
	three, filter := 3, postrider.Exists("data.a")
	policy := postrider.NewSubscriptionPolicy{Retry: postrider.NewRetryPolicy{Max: &three}}
	ok[*postrider.SubscriptionWithSecret](t)(c.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: "u", Types: []string{"*"}, Object: "o", Filter: filter, Format: postrider.FormatWorkfront,
		Workfront: &postrider.NewWorkfrontOptions{Version: "v1"}, AuthToken: "t", Headers: secrets, Secret: "s",
		RateLimit: 1, Policy: &policy, IsDisabled: true, ClientCertificate: "c", ClientKey: "k", CACertificates: "a",
		Name: "n", Description: "d", Metadata: texts, UID: "u",
	}))
	ok[*postrider.Subscription](t)(c.Subscriptions.Get(ctx, "s"))
	collected(t, c.Subscriptions.List(ctx, postrider.SubscriptionQuery{Destination: "d", UID: "u", Q: "q", Metadata: "a:b"}))
	ok[*postrider.Subscription](t)(c.Subscriptions.Update(ctx, "s", postrider.SubscriptionChange{
		URL: postrider.Set("u"), Types: postrider.Set([]string{"*"}), Object: postrider.Null[string](),
		Filter: postrider.Set(filter), Format: postrider.Set("raw"),
		Workfront: postrider.Set(postrider.NewWorkfrontOptions{}), AuthToken: postrider.Null[postrider.Secret](),
		Headers: postrider.Set(secrets), RateLimit: postrider.Null[float64](), Policy: postrider.Set(policy),
		Enabled: postrider.Set(true), ClientCertificate: postrider.Null[string](),
		ClientKey: postrider.Null[postrider.Secret](), CACertificates: postrider.Null[string](),
		Name: postrider.Set("n"), Description: postrider.Set("d"), Metadata: postrider.Set(texts), UID: postrider.Set("u"),
	}))
	ok[*postrider.SubscriptionWithSecret](t)(c.Subscriptions.RotateSecret(ctx, "s", 1))
	ok[*postrider.TestOutcome](t)(c.Subscriptions.Test(ctx, "s"))
	noError(t, c.Subscriptions.Delete(ctx, "s"))
}

func callDeliveries(ctx context.Context, t *testing.T, c *postrider.Client) {
	at := time.Unix(1, 0)
	collected(t, c.Deliveries.List(ctx, postrider.DeliveryQuery{
		State: postrider.Dead, Destination: "d", Subscription: "s", Event: "e", Type: "t", Object: "o", Since: at, Until: at,
	}))
	ok[*postrider.RetriesDue](t)(c.Deliveries.Due(ctx))
	ok[*postrider.DeadLetters](t)(c.Deliveries.Dead(ctx, 1))
	ok[*postrider.DeliveryDetail](t)(c.Deliveries.Get(ctx, "d"))
	collected(t, c.Deliveries.Attempts(ctx, "d"))
	ok[*postrider.SentRequest](t)(c.Deliveries.Request(ctx, "d", 1))
	ok[*postrider.Explanation](t)(c.Deliveries.Explain(ctx, "d"))
	ok[*postrider.Delivery](t)(c.Deliveries.Retry(ctx, "d"))
	ok[*postrider.Delivery](t)(c.Deliveries.Replay(ctx, "d"))
	ok[*postrider.Delivery](t)(c.Deliveries.Cancel(ctx, "d"))
	collected(t, c.Destinations.List(ctx, postrider.DestinationQuery{State: postrider.Frozen, Q: "q"}))
	ok[*postrider.DestinationSummary](t)(c.Destinations.Summary(ctx))
	ok[[]postrider.DestinationFigures](t)(c.Destinations.Figures(ctx, []string{"d", "e"}))
	ok[*postrider.DestinationStats](t)(c.Destinations.Stats(ctx, "d", 1))
	ok[*postrider.Destination](t)(c.Destinations.Get(ctx, "d"))
	collected(t, c.Destinations.Timeline(ctx, "d"))
	ok[*postrider.Destination](t)(c.Destinations.EnableWith(ctx, "d", postrider.Enabling{Reason: "r", Waiting: "drain", DeadSince: at}))
	ok[*postrider.Destination](t)(c.Destinations.Freeze(ctx, "d", "r"))
	replay := postrider.NewReplay{
		Destination: "d", Subscription: "s", Type: "t", State: postrider.Waiting, Since: at, Until: at, EndedSince: at, PerSecond: 1,
	}
	ok[*postrider.Replay](t)(c.Replays.Create(ctx, replay))
	ok[int64](t)(c.Replays.Count(ctx, replay))
	ok[*postrider.Replay](t)(c.Replays.Get(ctx, "r"))
	collected(t, c.Replays.List(ctx))
	ok[*postrider.Replay](t)(c.Replays.Pause(ctx, "r"))
	ok[*postrider.Replay](t)(c.Replays.Resume(ctx, "r"))
	ok[*postrider.Replay](t)(c.Replays.Cancel(ctx, "r"))
}

func callOperations(ctx context.Context, t *testing.T, c *postrider.Client, form string) {
	server := postrider.ScopeOfServer
	ok[*postrider.EventType](t)(c.EventTypes.Create(ctx, postrider.NewEventType{
		Name: "a.b", Description: "d", Schema: map[string]any{}, Example: 1, Deprecated: true, Scope: server,
	}))
	ok[*postrider.EventType](t)(c.EventTypes.Get(ctx, "a.b", server))
	collected(t, c.EventTypes.List(ctx, server))
	ok[*postrider.EventType](t)(c.EventTypes.Update(ctx, "a.b", server, postrider.EventTypeChange{
		Description: postrider.Null[string](), Schema: postrider.Null[any](), Example: postrider.Set[any](1),
		Deprecated: postrider.Set(false),
	}))
	noError(t, c.EventTypes.Delete(ctx, "a.b", server))
	ok[*postrider.Catalogue](t)(c.EventTypes.Catalogue(ctx))
	ok[*postrider.Catalogue](t)(c.EventTypes.UpdateCatalogue(ctx, postrider.CatalogueChange{
		UnknownTypes: postrider.Set(postrider.Flag), Misfits: postrider.Null[postrider.Conduct](),
	}))
	ok[*postrider.Erasure](t)(c.Erasures.OfEvent(ctx, "e"))
	ok[*postrider.Erasure](t)(c.Erasures.OfObject(ctx, "o"))
	ok[*postrider.Erasure](t)(c.Erasures.WaitErased(ctx, "e"))
	if form != "new" {
		ok[*postrider.Erasure](t)(c.Erasures.Wait(ctx, "e"))
	}
	collected(t, c.Erasures.List(ctx))
	link := must(c.PortalLinks.Create(ctx, postrider.NewPortalLink{
		Access: "read", ExpiresIn: 60, Theme: &postrider.NewTheme{Accent: "#123456"},
	}))(t)
	if link.URL.Reveal() != "text" || !strings.Contains(fmt.Sprintf("%+v", link), "URL:[secret]") {
		t.Errorf("the link is shown: %+v", link)
	}
	collected(t, c.PortalLinks.List(ctx))
	noError(t, c.PortalLinks.Revoke(ctx, "p"))
	ok[[]postrider.AlertTarget](t)(c.Alerts.List(ctx))
	ok[[]postrider.AlertTestResult](t)(c.Alerts.Test(ctx, "t"))
	ok[*postrider.Server](t)(c.Operations.Server(ctx))
	ok[[]postrider.Setting](t)(c.Operations.Settings(ctx))
	ok[*postrider.Backup](t)(c.Operations.Backup(ctx))
	ok[*postrider.Backup](t)(c.Operations.StartBackup(ctx, "/b"))
}

func callFigures(ctx context.Context, t *testing.T, c *postrider.Client) {
	at, filter := time.Unix(1, 0), postrider.Exists("data.a")
	ok[*postrider.Ledger](t)(c.LedgerOfAll(ctx))
	ok[*postrider.Stats](t)(c.Stats(ctx, postrider.StatsQuery{Since: at, Until: at, StepMinutes: 1, Scope: "all"}))
	ok[[]postrider.Limit](t)(c.Limits(ctx))
	ok[[]postrider.RateLimit](t)(c.Rates(ctx))
	ok[*postrider.Policy](t)(c.Policy(ctx))
	collected(t, c.Audit(ctx, postrider.AuditQuery{Tenant: "t", Key: "k", Action: "a", Target: "x", Since: at, Until: at}))
	ok[*postrider.FilterVerdict](t)(c.TestFilter(ctx, filter, postrider.NewEvent{Type: "a.b", Data: 1}))
	ok[*postrider.FilterTrialAnswer](t)(c.TryFilter(ctx, postrider.FilterTrial{
		Filter: filter, EventIDs: []string{"e"}, Recent: 1, Type: "t",
	}))
	ok[*postrider.SimulationAnswer](t)(c.Simulate(ctx, postrider.Simulation{
		Deliveries: 1, PerSeconds: 1, OutageSeconds: 1, HealthyBeforeSeconds: 1, AnswerMS: 1, EnableAfterSeconds: 1,
		Policy: map[string]any{"retry": map[string]any{"max": 1}}, Presets: []string{"server"}, Subscription: "s", Samples: 10,
	}))
}

func TestAnOlderServerLacksWhatCameLater(t *testing.T) {
	old := must(sampled(t, "old").Subscriptions.Get(context.Background(), "s"))(t)
	if old.ID != "text" || old.EffectivePolicy != nil || old.Policy != nil || old.UID != "" {
		t.Errorf("%+v", old)
	}
	later := must(sampled(t, "new").Subscriptions.Get(context.Background(), "s"))(t)
	if later.EffectivePolicy == nil || later.EffectivePolicy.Dead != "from_the_future" {
		t.Errorf("%+v", later.EffectivePolicy)
	}
}
