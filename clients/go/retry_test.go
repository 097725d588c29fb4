package postrider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	postrider "github.com/postrider/postrider/clients/go"
)

func TestPostWhoseAnswerIsCutIsRepeatedAndHasItsEffectOnce(t *testing.T) {
	address, key := server(t)
	for _, size := range []int{0, 1, 100, 250} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			_, tenant := freshTenant(t)
			proxy := newCuttingProxy(t, address, 2, size)
			client := must(postrider.New(proxy.url, key, postrider.WithTenant(tenant)))(t)
			subscription := must(client.Subscriptions.Create(ctx, postrider.NewSubscription{
				URL: "http://127.0.0.1:9/cut", Types: []string{"*"},
			}))(t)
			equal(t, fmt.Sprint(len(proxy.keys()), distinct(proxy.keys())), "3 1")
			listed := must(client.Subscriptions.List(ctx, postrider.SubscriptionQuery{}).Collect(-1))(t)
			equal(t, len(listed), 1)
			equal(t, listed[0].ID, subscription.ID)
			equal(t, strings.HasPrefix(subscription.Secret.Reveal(), "whsec_"), true)
		})
	}
}

func TestEventWhoseAnswerIsCutIsAcceptedOnce(t *testing.T) {
	address, key := server(t)
	direct, tenant := freshTenant(t)
	must(direct.Subscriptions.Create(ctx, postrider.NewSubscription{URL: "http://127.0.0.1:9/cut", Types: []string{"*"}}))(t)
	proxy := newCuttingProxy(t, address, 1, 20)
	client := must(postrider.New(proxy.url, key, postrider.WithTenant(tenant)))(t)
	must(client.Events.Send(ctx, postrider.NewEvent{Type: "a.b"}))(t)
	equal(t, len(proxy.keys()), 2)
	must(client.Events.SendBatch(ctx, []postrider.NewEvent{{Type: "a.b"}, {Type: "a.b"}}))(t)
	equal(t, len(must(client.Events.List(ctx, postrider.EventQuery{}).Collect(-1))(t)), 3)
	equal(t, must(client.Ledger(ctx))(t).Accepted, 3)
	equal(t, distinct(proxy.keys()), 2)
}

type answer struct {
	status     int
	retryAfter string
	body       string
	isBroken   bool
	hangs      time.Duration
}

var accepted = answer{status: 202, body: `{"id":"e","deliveries":0}`}

func problem(status int, retryAfter string) answer {
	body := fmt.Sprintf(`{"type":"/","title":"t","status":%d,"code":"code_%d","detail":"d","field":null}`, status, status)
	return answer{status: status, retryAfter: retryAfter, body: body}
}

type scripted struct {
	mu   sync.Mutex
	keys []string
	at   []time.Time
}

func (s *scripted) count() int { return len(s.seen()) }

// seen gives the idempotency keys of the requests so far.
func (s *scripted) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

// script serves these answers, one after the other, and the last one for ever.
func script(t *testing.T, answers ...answer) (*scripted, *postrider.Client) {
	t.Helper()
	s := &scripted{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := len(s.keys)
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		s.at = append(s.at, time.Now())
		s.mu.Unlock()
		if n >= len(answers) {
			n = len(answers) - 1
		}
		one := answers[n]
		time.Sleep(one.hangs)
		if one.isBroken {
			panic(http.ErrAbortHandler)
		}
		if one.retryAfter != "" {
			w.Header().Set("Retry-After", one.retryAfter)
		}
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(one.status)
		_, _ = w.Write([]byte(one.body))
	}))
	t.Cleanup(server.Close)
	// A transport without reused connections, so that net/http repeats nothing by itself.
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	client := must(postrider.New(server.URL+"/", "k", postrider.WithRetries(2), postrider.WithHTTPClient(plain),
		postrider.WithRetryWaitMax(2500*time.Millisecond)))(t)
	return s, client
}

var event = postrider.NewEvent{Type: "a.b"}

func TestWhatMaySucceedLaterIsRepeatedWithTheSameKey(t *testing.T) {
	for _, failure := range []answer{
		problem(429, ""), problem(503, ""), problem(500, ""), problem(408, ""), {status: 502, body: "<html>"}, {isBroken: true},
	} {
		s, client := script(t, failure, failure, accepted)
		must(client.Events.Send(ctx, event))(t)
		equal(t, fmt.Sprint(s.count(), distinct(s.seen()), s.seen()[0] != ""), "3 1 true")
	}
}

func TestWhatWasRefusedForGoodIsNotRepeated(t *testing.T) {
	for _, status := range []int{307, 400, 401, 403, 404, 409, 413, 422} {
		s, client := script(t, problem(status, ""))
		_, err := client.Events.Send(ctx, event)
		problem := refused(t, err)
		equal(t, fmt.Sprintln(problem.Status, problem.Code, problem.Attempts, s.count()), fmt.Sprintf("%d code_%d 1 1\n", status, status))
	}
}

func TestRepeatsAreBoundedAndTheErrorSaysHowManyThereWere(t *testing.T) {
	s, client := script(t, problem(503, ""))
	_, err := client.Events.Send(ctx, event)
	equal(t, fmt.Sprint(refused(t, err).Attempts, s.count()), "3 3")
	_, err = client.With(postrider.WithRetries(0)).Events.Send(ctx, event)
	equal(t, fmt.Sprint(refused(t, err).Attempts, s.count()), "1 4")
	s, client = script(t, answer{isBroken: true})
	_, err = client.Events.Send(ctx, event)
	var broken *postrider.ConnectionError
	if !errors.As(err, &broken) || broken.Attempts != 3 || broken.Timeout() || s.count() != 3 {
		t.Error(err)
	}
}

func TestRetryAfterIsWaitedForAndNotWhereItIsTooLong(t *testing.T) {
	s, client := script(t, problem(429, "1"), accepted)
	must(client.Events.Send(ctx, event))(t)
	if s.at[1].Sub(s.at[0]) < time.Second {
		t.Error("the server's wish was not waited for")
	}
	s, client = script(t, problem(503, time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat)), accepted)
	must(client.Events.Send(ctx, event))(t)
	equal(t, s.count(), 2)
	s, client = script(t, problem(429, "3600"), accepted)
	_, err := client.Events.Send(ctx, event)
	equal(t, *refused(t, err).RetryAfter, time.Hour)
	equal(t, s.count(), 1)
}

func TestTimeLimitAndContextEndACall(t *testing.T) {
	s, client := script(t, answer{hangs: 300 * time.Millisecond, isBroken: true})
	_, err := client.With(postrider.WithTimeout(50*time.Millisecond), postrider.WithRetries(1)).Events.Send(ctx, event)
	var late *postrider.ConnectionError
	if !errors.As(err, &late) || !late.Timeout() || late.Attempts != 2 {
		t.Error(err)
	}
	limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = client.Events.Send(limited, event)
	if !errors.Is(err, context.DeadlineExceeded) || s.count() != 3 {
		t.Error(err, s.count())
	}
}

func TestAnswerThatIsNotJSONIsToldWithoutItsText(t *testing.T) {
	_, client := script(t, answer{status: 200, body: "whsec_not-json-at-all"})
	_, err := client.With(postrider.WithRetries(0)).Events.Send(ctx, event)
	var broken *postrider.ConnectionError
	if !errors.As(err, &broken) || strings.Contains(err.Error(), "whsec") {
		t.Error(err)
	}
}

func TestKeyOfTheCallersOwnIsSent(t *testing.T) {
	client, _ := freshTenant(t)
	mine := postrider.WithIdempotencyKey(ctx, "mine")
	first := must(client.Events.Send(mine, event))(t)
	equal(t, must(client.Events.Send(mine, event))(t).ID, first.ID)
	_, err := client.Events.Send(mine, postrider.NewEvent{Type: "a.c"})
	equal(t, refused(t, err).Code, "idempotency_conflict")
}

func TestServerThatIsNotThereIsToldWithoutTheKey(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	client := must(postrider.New(gone.URL, "key-not-to-be-shown", postrider.WithRetries(1)))(t)
	_, err := client.Ledger(ctx)
	var broken *postrider.ConnectionError
	if !errors.As(err, &broken) || broken.Attempts != 2 || strings.Contains(fmt.Sprintf("%+v %#v", err, broken), "key-not") {
		t.Error(err)
	}
}

func TestURLThatCannotBeIsRefusedAtOnce(t *testing.T) {
	for _, address := range []string{"127.0.0.1:8080", "ftp://host", "http://user:pass@host", "http://host/?a=b", "http://"} {
		if _, err := postrider.New(address, "k"); err == nil || strings.Contains(err.Error(), "pass") {
			t.Error(address, err)
		}
	}
}
