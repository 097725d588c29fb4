package postrider_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	postrider "github.com/postrider/postrider/clients/go"
	"github.com/postrider/postrider/clients/go/examples/nethttp"
)

var ctx = context.Background()

func refused(t *testing.T, err error) *postrider.ProblemError {
	t.Helper()
	var problem *postrider.ProblemError
	if !errors.As(err, &problem) {
		t.Fatalf("not a problem: %v", err)
	}
	return problem
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Errorf("%v, expected %v", found, expected)
	}
}

func TestEventArrivesSignedWithTheSecretThatWasShown(t *testing.T) {
	client, _ := freshTenant(t)
	receiver := newReceiver(t)
	subscription := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: receiver.URL, Types: []string{"task.*"},
	}))(t)
	sent := must(client.Events.Send(ctx, postrider.NewEvent{
		Type: "task.updated", Data: map[string]string{"ключ": "<☃>"}, Object: "t1", Time: time.Now(),
		Old: json.RawMessage("null"),
	}))(t)
	equal(t, sent.Deliveries, 1)
	request := receiver.take(t)
	verified := must(postrider.Verify(request.body, request.header, subscription.Secret.Reveal()))(t)
	if !bytes.Contains(request.body, []byte(`"<☃>"`)) {
		t.Errorf("the data was not sent as it is: %s", request.body)
	}
	until(t, func() bool {
		return must(client.Deliveries.Get(ctx, verified.ID))(t).State == postrider.Delivered
	})
	delivery := must(client.Deliveries.Get(ctx, verified.ID))(t)
	equal(t, delivery.EventID, sent.ID)
	equal(t, delivery.AttemptLog[0].Outcome, postrider.AttemptDelivered)
	event := must(client.Events.Get(ctx, sent.ID))(t)
	equal(t, string(event.Data), `{"ключ":"<☃>"}`)
	equal(t, len(event.Deliveries), 1)
}

func TestBothSecretsVerifyDuringARotation(t *testing.T) {
	client, _ := freshTenant(t)
	receiver := newReceiver(t)
	old := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{URL: receiver.URL, Types: []string{"*"}}))(t)
	rotated := must(client.Subscriptions.RotateSecret(ctx, old.ID, 60))(t)
	equal(t, rotated.RetiringSecrets, 1)
	equal(t, must(client.Subscriptions.Test(ctx, old.ID))(t).Outcome, postrider.AttemptDelivered)
	request := receiver.take(t)
	equal(t, len(strings.Split(request.header.Get("webhook-signature"), " ")), 2)
	for _, secret := range []postrider.Secret{old.Secret, rotated.Secret} {
		must(postrider.Verify(request.body, request.header, secret.Reveal()))(t)
	}
	forged := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if _, err := postrider.Verify(request.body, request.header, forged); err == nil {
		t.Error("a third secret verified")
	}
}

func TestEd25519SubscriptionIsVerifiedWithItsPublicKey(t *testing.T) {
	client, _ := freshTenant(t)
	receiver := newReceiver(t)
	subscription := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: receiver.URL, Types: []string{"*"},
		Secret: postrider.Secret("whsk_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("7"), 32))),
	}))(t)
	must(client.Subscriptions.Test(ctx, subscription.ID))(t)
	request := receiver.take(t)
	must(postrider.Verify(request.body, request.header, subscription.PublicKey))(t)
}

func TestSubscriptionsAreCreatedReadChangedListedAndDeleted(t *testing.T) {
	client, _ := freshTenant(t)
	filter := postrider.All(postrider.Condition("data.n", "gt", 3), postrider.Any(postrider.Changed("data.a"), postrider.Exists("data.b")))
	created := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: "http://127.0.0.1:9/x", Types: []string{"a.b"}, Filter: filter, AuthToken: "token-of-the-receiver",
		Headers: map[string]postrider.Secret{"x-a": "value-1234567"}, RateLimit: 5,
	}))(t)
	equal(t, created.AuthToken, "****iver")
	changed := must(client.Subscriptions.Update(ctx, created.ID, postrider.SubscriptionChange{
		AuthToken: postrider.Null[postrider.Secret](), Types: postrider.Set([]string{"a.*"}), Enabled: postrider.Set(false),
		Headers: postrider.Set(map[string]postrider.Secret{"x-b": "value-7654321"}),
	}))(t)
	equal(t, fmt.Sprint(changed.AuthToken, changed.Types, changed.Enabled, changed.Headers), "[a.*] false map[x-b:****4321]")
	read := must(client.Subscriptions.Get(ctx, created.ID))(t)
	equal(t, *read.RateLimit, 5)
	equal(t, len(read.Filter["all"].([]any)), 2)
	listed := must(client.Subscriptions.List(ctx, postrider.SubscriptionQuery{}).Collect(-1))(t)
	equal(t, len(listed), 1)
	_, err := client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: "http://127.0.0.1:9/x", Types: []string{"a.*"}, Filter: filter, IsDisabled: true,
	})
	twin := refused(t, err)
	equal(t, fmt.Sprintln(twin.Status, twin.Code, twin.ExistingID), "409 twin_subscription "+created.ID+"\n")
	if err := client.Subscriptions.Delete(ctx, created.ID); err != nil {
		t.Fatal(err)
	}
	_, err = client.Subscriptions.Get(ctx, created.ID)
	if !postrider.HasCode(err, "not_found") {
		t.Error(err)
	}
}

func TestProblemNamesItsCodeItsFieldAndWhatToDo(t *testing.T) {
	client, _ := freshTenant(t)
	_, err := client.Events.SendBatch(ctx, []postrider.NewEvent{{Type: "a.b", Data: 1}, {Type: "a b", Data: 1}})
	problem := refused(t, err)
	equal(t, fmt.Sprint(problem.Status, problem.Code, problem.Field, problem.Attempts), "422invalid_field[1].type1")
	if !strings.HasPrefix(err.Error(), "postrider: 422 invalid_field ([1].type): not an event type") {
		t.Error(err)
	}
	_, err = client.TestFilter(ctx, postrider.Condition("data.a", "eqq", 1), postrider.NewEvent{Type: "a.b"})
	equal(t, refused(t, err).Field, "filter.op")
	verdict := must(client.TestFilter(ctx, postrider.Condition("data", "eq", 1), postrider.NewEvent{Type: "a.b", Data: 1}))(t)
	equal(t, verdict.Matches, true)
	due := postrider.NewEvent{Type: "a.b", Data: map[string]string{"due": "2026-11-16T12:00:00.000-0800"}}
	verdict = must(client.TestFilter(ctx, postrider.TimeCondition("data.due", "gt", "2026-11-16T19:59:59Z"), due))(t)
	equal(t, verdict.Matches, true)
}

func TestBatchesAreSplitAndListsYieldEachEntryOnce(t *testing.T) {
	client, _ := freshTenant(t)
	var events []postrider.NewEvent
	for n := 0; n < 2345; n++ {
		events = append(events, postrider.NewEvent{Type: "batch.sent", Data: n, ID: fmt.Sprintf("e-%d", n)})
	}
	results := must(client.Events.SendAll(postrider.WithIdempotencyKey(ctx, "not for batches"), events))(t)
	equal(t, len(results), 2345)
	equal(t, results[2000].ID, "e-2000")
	list := client.Events.List(ctx, postrider.EventQuery{Type: "batch.sent"}).PageSize(500)
	seen := map[string]bool{}
	count := 0
	for list.Next() {
		seen[list.Value().ID] = true
		count++
	}
	equal(t, fmt.Sprint(count, len(seen), list.Err()), "2345 2345 <nil>")
	equal(t, list.Next(), false)
	equal(t, len(must(client.Events.List(ctx, postrider.EventQuery{}).PageSize(2).Collect(3))(t)), 3)
	equal(t, len(must(client.Events.List(ctx, postrider.EventQuery{}).PageSize(7).Page(""))(t).Data), 7)
	again := must(client.Events.Send(ctx, postrider.NewEvent{Type: "batch.sent", Data: 5, ID: "e-5"}))(t)
	equal(t, again.Duplicate, true)
	bad := append(events[:1500:1500], postrider.NewEvent{Type: "not a type"})
	results, err := client.Events.SendAll(ctx, bad)
	equal(t, len(results), 1000)
	equal(t, refused(t, err).Field, "[500].type")
}

func TestBatchBeyond16MiBIsSplitByItsBytes(t *testing.T) {
	client, _ := freshTenant(t)
	events := make([]postrider.NewEvent, 20)
	for n := range events {
		events[n] = postrider.NewEvent{Type: "large.sent", Data: strings.Repeat("x", 900_000)}
	}
	equal(t, len(must(client.Events.SendAll(ctx, events))(t)), 20)
}

func TestDeliveryIsExplainedCancelledReplayedAndListedWithItsAttempts(t *testing.T) {
	client, _ := freshTenant(t)
	receiver := newReceiver(t)
	receiver.answer(500)
	subscription := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{URL: receiver.URL, Types: []string{"*"}}))(t)
	event := must(client.Events.Send(ctx, postrider.NewEvent{Type: "a.b"}))(t)
	query := postrider.DeliveryQuery{Event: event.ID, State: postrider.Waiting, Since: time.Now().Add(-time.Minute)}
	var waiting []postrider.Delivery
	until(t, func() bool {
		waiting = must(client.Deliveries.List(ctx, query).Collect(-1))(t)
		return len(waiting) == 1
	})
	id := waiting[0].ID
	explained := must(client.Deliveries.Explain(ctx, id))(t)
	if !strings.HasPrefix(explained.Summary, "waiting for retry 1") || !explained.Next.At.Equal(*waiting[0].NextAttemptAt) {
		t.Error(explained)
	}
	must(client.Deliveries.Retry(ctx, id))(t)
	until(t, func() bool { return must(client.Deliveries.Get(ctx, id))(t).Attempts == 2 })
	equal(t, must(client.Deliveries.Cancel(ctx, id))(t).State, postrider.Cancelled)
	_, err := client.Deliveries.Cancel(ctx, id)
	equal(t, refused(t, err).Code, "wrong_state")
	receiver.answer(204)
	must(client.Deliveries.Replay(ctx, id))(t)
	until(t, func() bool { return must(client.Deliveries.Get(ctx, id))(t).State == postrider.Delivered })
	attempts := must(client.Deliveries.Attempts(ctx, id).PageSize(1).Collect(-1))(t)
	equal(t, fmt.Sprint(len(attempts), *attempts[0].Status, *attempts[2].Status), "3 500 204")

	replay := postrider.NewReplay{Subscription: subscription.ID, State: postrider.Delivered, PerSecond: 100}
	equal(t, must(client.Replays.Count(ctx, replay))(t), 1)
	job := must(client.Replays.Create(ctx, replay))(t)
	until(t, func() bool { return must(client.Replays.Get(ctx, job.ID))(t).State == postrider.ReplayFinished })
	equal(t, len(must(client.Replays.List(ctx).Collect(-1))(t)), 1)
	for _, act := range []func(context.Context, string) (*postrider.Replay, error){
		client.Replays.Pause, client.Replays.Resume, client.Replays.Cancel,
	} {
		_, err := act(ctx, job.ID)
		equal(t, refused(t, err).Status, 409)
	}
	ledger := must(client.Ledger(ctx))(t)
	equal(t, ledger.Accepted, ledger.Queued+ledger.InFlight+ledger.Waiting+ledger.Delivered+ledger.Dead+ledger.Cancelled)
	equal(t, ledger.Accepted, 1)
	if must(client.LedgerOfAll(ctx))(t).Accepted < 1 {
		t.Error("the ledger of all tenants has less than that of one")
	}
	stats := must(client.Stats(ctx, postrider.StatsQuery{StepMinutes: 60, Since: time.Now().Add(-time.Hour)}))(t)
	var accepted int64
	for _, span := range stats.Data {
		accepted += span.Accepted
	}
	equal(t, accepted, 1)
}

func TestDestinationsAreListedFrozenEnabledAndTellTheirTimeline(t *testing.T) {
	client, _ := freshTenant(t)
	id := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: "http://127.0.0.1:9/y", Types: []string{"*"},
	}))(t).DestinationID
	equal(t, must(client.Destinations.Freeze(ctx, id, "maintenance"))(t).State, postrider.Frozen)
	equal(t, must(client.Destinations.Enable(ctx, id, ""))(t).State, postrider.Enabled)
	equal(t, must(client.Destinations.Get(ctx, id))(t).Thresholds.DisabledByFailureShare.Grace, 100)
	equal(t, len(must(client.Destinations.List(ctx, postrider.DestinationQuery{}).Collect(-1))(t)), 1)
	timeline := must(client.Destinations.Timeline(ctx, id).Collect(-1))(t)
	equal(t, fmt.Sprintln(len(timeline), timeline[0].From, timeline[0].To), "2 frozen enabled\n")
	stats := must(client.Destinations.Stats(ctx, id, 2))(t)
	equal(t, fmt.Sprintln(len(stats.Hours), stats.Total.Attempts, stats.Total.SuccessRate == nil), "2 0 true\n")
	equal(t, must(client.Destinations.Figures(ctx, []string{id}))(t)[0].DestinationID, id)
}

func TestTenantsAndKeysAreMadeAndRemoved(t *testing.T) {
	client, tenant := freshTenant(t)
	address, _ := server(t)
	created := must(client.Keys.Create(ctx, postrider.NewKey{
		Scopes: []string{postrider.ScopeIngest}, Name: "app", ExpiresAt: time.Now().Add(time.Minute),
	}))(t)
	equal(t, must(client.Keys.Get(ctx, created.ID))(t).Tenant, tenant)
	equal(t, len(must(client.Keys.List(ctx, postrider.KeyQuery{}).PageSize(1).Collect(-1))(t)), 1)
	app := must(postrider.New(address, " "+created.Secret.Reveal()+"\n"))(t)
	must(app.Events.Send(ctx, postrider.NewEvent{Type: "a.b"}))(t)
	_, err := app.Subscriptions.List(ctx, postrider.SubscriptionQuery{}).Collect(-1)
	equal(t, refused(t, err).Code, "missing_scope")
	if err := client.Keys.Delete(ctx, created.ID); err != nil {
		t.Fatal(err)
	}
	_, err = app.Events.Send(ctx, postrider.NewEvent{Type: "a.b"})
	equal(t, refused(t, err).Status, 401)
	isListed := false
	for list := client.Tenants.List(ctx).PageSize(1000); list.Next(); {
		isListed = isListed || list.Value().ID == tenant
	}
	equal(t, isListed, true)
	audit := must(client.Audit(ctx, postrider.AuditQuery{Tenant: tenant, Action: "key.create"}).Collect(-1))(t)
	equal(t, len(audit), 1)
	for _, limit := range must(client.Limits(ctx))(t) {
		if limit.Name == "keys" {
			equal(t, limit.Used, 0)
		}
	}
	if err := client.Tenants.Delete(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	_, err = client.Tenants.Get(ctx, tenant)
	equal(t, refused(t, err).Status, 404)
}

func TestStreamTellsOfAttemptsAndEndsWithItsContext(t *testing.T) {
	client, _ := freshTenant(t)
	receiver := newReceiver(t)
	must(client.Subscriptions.Create(ctx, postrider.NewSubscription{URL: receiver.URL, Types: []string{"*"}}))(t)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream := must(client.Stream(limited))(t)
	defer stream.Close()
	sent := must(client.Events.Send(ctx, postrider.NewEvent{Type: "a.b", Data: "\n\n: € 漢字\u2028"}))(t)
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	event := stream.Event()
	equal(t, fmt.Sprint(event.Name, event.Delivery.EventID, event.Attempt.Outcome), "attempt"+sent.ID+"delivered")
	cancel()
	equal(t, stream.Next(), false)
	if stream.Err() != nil {
		t.Error(stream.Err())
	}
}

func TestStreamEndsWithAReasonWhenItsKeyIsRevoked(t *testing.T) {
	client, _ := freshTenant(t)
	address, _ := server(t)
	key := must(client.Keys.Create(ctx, postrider.NewKey{Scopes: []string{postrider.ScopeRead}}))(t)
	reader := must(postrider.New(address, key.Secret.Reveal()))(t)
	stream := must(reader.Stream(ctx))(t)
	defer stream.Close()
	if err := client.Keys.Delete(ctx, key.ID); err != nil {
		t.Fatal(err)
	}
	if !stream.Next() || stream.Event().Name != "closed" || stream.Event().Reason == "" {
		t.Error(stream.Event(), stream.Err())
	}
	equal(t, stream.Next(), false)
	if stream.Err() != nil {
		t.Error(stream.Err())
	}
	_, err := reader.Stream(ctx)
	equal(t, refused(t, err).Status, 401)
}

func TestNothingPrintsASecret(t *testing.T) {
	client, _ := freshTenant(t)
	address, adminKey := server(t)
	request := postrider.NewSubscription{
		URL: "http://127.0.0.1:9/z", Types: []string{"*"}, AuthToken: "a-token-1234567",
		Headers: map[string]postrider.Secret{"x-a": "a-header-1234567"},
	}
	change := postrider.SubscriptionChange{AuthToken: postrider.Set(postrider.Secret("a-token-1234567"))}
	subscription := must(client.Subscriptions.Create(ctx, request))(t)
	key := must(client.Keys.Create(ctx, postrider.NewKey{Scopes: []string{postrider.ScopeRead}}))(t)
	stranger := must(postrider.New(address, "wrong-key-of-somebody"))(t)
	_, err := stranger.Ledger(ctx)
	problem := refused(t, err)
	shown := ""
	for _, value := range []any{client, *client, subscription, *subscription, key, *key, problem, *problem, request, change, stranger} {
		written, _ := json.Marshal(value)
		shown += fmt.Sprintf("%v %+v %#v %s %q %x", value, value, value, value, value, value) + string(written)
	}
	secrets := []string{adminKey, subscription.Secret.Reveal(), key.Secret.Reveal(), "wrong-key-of-somebody", "a-token-1234567", "a-header-1234567"}
	for _, secret := range secrets {
		if len(secret) < 10 || strings.Contains(shown, secret) || strings.Contains(shown, fmt.Sprintf("%x", secret)) {
			t.Errorf("a secret of %d characters is shown", len(secret))
		}
	}
	if _, err := postrider.New(address, "key with a space\nand more"); err == nil || strings.Contains(err.Error(), "with a") {
		t.Error(err)
	}
}

func TestIdentifiersCannotLeadToAnotherPath(t *testing.T) {
	client, _ := freshTenant(t)
	for _, id := range []string{"../ledger", "a/b", "x?limit=1", "%2e%2e", "", ".", ".."} {
		_, err := client.Events.Get(ctx, id)
		equal(t, refused(t, err).Status, 404)
	}
}

func TestMiddlewareLetsTheRealWebhookThroughAndNoForgedOne(t *testing.T) {
	client, _ := freshTenant(t)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("3"), 32))
	other := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("4"), 32))
	var got []received
	handler := nethttp.Verified(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, received{r.Header, body})
		w.WriteHeader(http.StatusNoContent)
	}), other, secret)
	receiver := httptest.NewServer(handler)
	defer receiver.Close()
	subscription := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
		URL: receiver.URL, Types: []string{"*"}, Secret: postrider.Secret(secret),
	}))(t)
	equal(t, *must(client.Subscriptions.Test(ctx, subscription.ID))(t).Status, 204)
	real := got[0]
	send := func(body string, changes ...string) int {
		request := must(http.NewRequest(http.MethodPost, receiver.URL, strings.NewReader(body)))(t)
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			request.Header.Set(name, real.header.Get(name))
		}
		for n := 0; n < len(changes); n += 2 {
			request.Header.Set(changes[n], changes[n+1])
		}
		response := must(http.DefaultClient.Do(request))(t)
		response.Body.Close()
		return response.StatusCode
	}
	text := string(real.body)
	equal(t, send(text), 204)
	equal(t, send(text+" "), 401)
	equal(t, send(text, "webhook-id", "other"), 401)
	equal(t, send(text, "webhook-timestamp", "1614265330"), 401)
	equal(t, send(text, "webhook-signature", "v1,AAAA"), 401)
	equal(t, send(strings.Repeat("x", 3<<20)), 401)
	equal(t, len(got), 2)
}

func TestASubscriptionWithAUIDIsCreatedOnceWithAPolicyOfItsOwn(t *testing.T) {
	ctx := context.Background()
	client, tenant := freshTenant(t)
	three := 3
	wanted := postrider.NewSubscription{
		URL: "http://127.0.0.1:9/u", Types: []string{"*"}, UID: "crm",
		Policy: &postrider.NewSubscriptionPolicy{Retry: postrider.NewRetryPolicy{Max: &three}},
	}
	first := must(client.Subscriptions.Create(ctx, wanted))(t)
	again := must(client.Subscriptions.Create(ctx, wanted))(t)
	equal(t, again.ID, first.ID)
	equal(t, again.Secret.Reveal(), "")
	equal(t, *first.Policy.Retry.Max, 3)
	equal(t, first.EffectivePolicy.Retry.Max, 3)
	reset := must(client.Subscriptions.Update(ctx, "crm", postrider.SubscriptionChange{
		Policy: postrider.Null[postrider.NewSubscriptionPolicy](),
	}))(t)
	equal(t, reset.EffectivePolicy.Retry.Max, must(client.Policy(ctx))(t).Retry.Max)
	found := client.Subscriptions.List(ctx, postrider.SubscriptionQuery{UID: "crm"})
	equal(t, len(must(found.Collect(-1))(t)), 1)
	quotas := map[string]int64{"subscriptions": 1}
	changed := must(client.Tenants.Update(ctx, tenant, postrider.TenantChange{Quotas: postrider.Set(quotas)}))(t)
	equal(t, changed.Quotas["subscriptions"], int64(1))
	everybody := client.With(postrider.WithTenant("*"))
	all := must(everybody.Destinations.List(ctx, postrider.DestinationQuery{}).PageSize(1000).Collect(-1))(t)
	tenants := map[string]string{}
	for _, one := range all {
		tenants[one.ID] = one.Tenant
	}
	equal(t, tenants[first.DestinationID], tenant)
}
