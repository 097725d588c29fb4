package postrider

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	userAgent           = "postrider-go/0.1.0"
	firstWait           = 200 * time.Millisecond
	defaultTimeout      = 35 * time.Second
	defaultRetries      = 4
	defaultRetryWaitMax = 30 * time.Second
)

// Client speaks to one server with one key. It may be used by several goroutines at the same time. Printing it never
// shows the key.
type Client struct {
	Tenants       *Tenants
	Keys          *Keys
	Events        *Events
	Subscriptions *Subscriptions
	Deliveries    *Deliveries
	Destinations  *Destinations
	Replays       *Replays
	EventTypes    *EventTypes
	Erasures      *Erasures
	PortalLinks   *PortalLinks
	Alerts        *Alerts
	Operations    *Operations

	api *api
}

// Option is a setting of a client.
type Option func(*api)

// WithTenant names the tenant to act for. Only for admin keys; "default" where it is left out, and "*" reads lists of
// all tenants.
func WithTenant(tenant string) Option { return func(a *api) { a.tenant = tenant } }

// WithTimeout limits one attempt, until the whole answer has arrived. 35 s where it is left out.
func WithTimeout(timeout time.Duration) Option { return func(a *api) { a.timeout = timeout } }

// WithRetries says how many times a failed request is sent again. 4 where it is left out; 0 for never.
func WithRetries(retries int) Option { return func(a *api) { a.retries = retries } }

// WithRetryWaitMax is the longest wait before a repeat. A longer Retry-After is not waited for. 30 s where it is left
// out.
func WithRetryWaitMax(wait time.Duration) Option { return func(a *api) { a.retryWaitMax = wait } }

// WithHTTPClient sends requests with a copy of this client. Redirects are not followed in any case.
func WithHTTPClient(client *http.Client) Option {
	return func(a *api) { *a.http = *client }
}

// New makes a client of the server at address, such as https://hooks.example.com.
func New(address, key string, options ...Option) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, errors.New("postrider: the server's url must begin with http:// or https:// and name a host")
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("postrider: the server's url must have no credentials, query or fragment")
	}
	key = strings.TrimSpace(key)
	isVisible := func(r rune) bool { return r >= '!' && r <= '~' }
	if key == "" || strings.TrimFunc(key, isVisible) != "" {
		return nil, errors.New("postrider: the key must be visible ASCII characters without spaces")
	}
	a := &api{
		base:         strings.TrimRight(address, "/"),
		key:          func() string { return key },
		timeout:      defaultTimeout,
		retries:      defaultRetries,
		retryWaitMax: defaultRetryWaitMax,
		http:         &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
	}
	for _, option := range options {
		option(a)
	}
	// A redirect is never followed, so that the key goes to no other server.
	a.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return newClient(a), nil
}

func newClient(a *api) *Client {
	return &Client{
		Tenants:       &Tenants{a},
		Keys:          &Keys{a},
		Events:        &Events{a},
		Subscriptions: &Subscriptions{a},
		Deliveries:    &Deliveries{a},
		Destinations:  &Destinations{a},
		Replays:       &Replays{a},
		EventTypes:    &EventTypes{a},
		Erasures:      &Erasures{a},
		PortalLinks:   &PortalLinks{a},
		Alerts:        &Alerts{a},
		Operations:    &Operations{a},
		api:           a,
	}
}

// With makes the same client with other settings. It shares the connections.
func (c *Client) With(options ...Option) *Client {
	other := *c.api
	transport := *c.api.http
	other.http = &transport
	for _, option := range options {
		option(&other)
	}
	other.http.CheckRedirect = c.api.http.CheckRedirect
	return newClient(&other)
}

type idempotencyKey struct{}

// WithIdempotencyKey gives the one mutation that is made with this context a key of your own, so that a repeat after
// a crash of your program is safe too.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// api sends calls to one server with one key.
type api struct {
	base string
	// A function, because fmt cannot ask a private field to mask itself.
	key          func() string
	tenant       string
	timeout      time.Duration
	retries      int
	retryWaitMax time.Duration
	http         *http.Client
}

// call is a request, without what is the same for all.
type call struct {
	method      string
	path        string
	query       url.Values
	body        []byte
	contentType string
}

func (c call) String() string { return c.method + " " + c.path }

// send makes a call and reads its answer into answer, unless that is nil.
func (a *api) send(ctx context.Context, c call, answer any) error {
	key, err := keyOf(ctx, c)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		failed, mayHelp, after := a.attempt(ctx, c, key, answer, attempt)
		if failed == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("postrider: %v: %w", c, err)
		}
		wait, isAllowed := a.wait(attempt, after)
		if !mayHelp || attempt > a.retries || !isAllowed {
			return failed
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("postrider: %v: %w", c, ctx.Err())
		case <-timer.C:
		}
	}
}

// attempt sends a call once. It says whether the same request may succeed later, and when the server wants it.
func (a *api) attempt(
	ctx context.Context, c call, key string, answer any, attempt int,
) (failed error, mayHelp bool, after *time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	request, err := a.request(ctx, c, key)
	if err != nil {
		return err, false, nil
	}
	response, err := a.http.Do(request)
	if err != nil {
		return &ConnectionError{c.String(), attempt, err}, true, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return &ConnectionError{c.String(), attempt, err}, true, nil
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		problem := problem(response, body, attempt)
		mayHelp := problem.Status == 408 || problem.Status == 429 || problem.Status >= 500
		return problem, mayHelp, problem.RetryAfter
	}
	if answer == nil {
		return nil, false, nil
	}
	if err := json.Unmarshal(body, answer); err != nil {
		// Without its cause, which may repeat a part of the answer.
		return &ConnectionError{c.String(), attempt, errors.New("the answer is not the JSON that was expected")}, true, nil
	}
	return nil, false, nil
}

func (a *api) request(ctx context.Context, c call, key string) (*http.Request, error) {
	address := a.base + c.path
	if len(c.query) > 0 {
		address += "?" + c.query.Encode()
	}
	var body io.Reader
	if c.body != nil {
		body = bytes.NewReader(c.body)
	}
	request, err := http.NewRequestWithContext(ctx, c.method, address, body)
	if err != nil {
		return nil, fmt.Errorf("postrider: %v: cannot make the request", c)
	}
	request.Header.Set("Authorization", "Bearer "+a.key())
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	if a.tenant != "" {
		request.Header.Set("Postrider-Tenant", a.tenant)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	if c.contentType != "" {
		request.Header.Set("Content-Type", c.contentType)
	}
	return request, nil
}

// wait says how long to wait before the next attempt, and whether that is allowed.
func (a *api) wait(attempt int, after *time.Duration) (time.Duration, bool) {
	backoff := a.retryWaitMax
	if attempt < 20 && firstWait<<(attempt-1) < backoff {
		backoff = firstWait << (attempt - 1)
	}
	jittered := backoff/2 + time.Duration(random()*float64(backoff/2))
	if after == nil {
		return jittered, true
	}
	// Later by the jitter and never earlier: the server has said when.
	return *after + jittered, *after <= a.retryWaitMax
}

// keyOf gives the idempotency key of a call: the caller's, or a new one; none for what changes nothing.
func keyOf(ctx context.Context, c call) (string, error) {
	if c.method == http.MethodGet {
		return "", nil
	}
	if key, isGiven := ctx.Value(idempotencyKey{}).(string); isGiven {
		return key, nil
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("postrider: no random numbers: %w", err)
	}
	return hex.EncodeToString(random[:]), nil
}

// random gives a number from 0 to 1. It does not use math/rand, whose numbers are the same in every process before
// Go 1.20.
func random() float64 {
	var bytes [8]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		return 1
	}
	return float64(binary.BigEndian.Uint64(bytes[:])>>11) / (1 << 53)
}

// encode writes JSON without changing <, > and & in texts.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("postrider: cannot write the request: %w", err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

func get[T any](ctx context.Context, a *api, path string, query url.Values) (*T, error) {
	answer := new(T)
	if err := a.send(ctx, call{method: http.MethodGet, path: path, query: query}, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// change sends a mutation. body is nil where the call has none.
func change[T any](ctx context.Context, a *api, method, path string, body any) (*T, error) {
	return changeOf[T](ctx, a, method, path, nil, body)
}

// changeOf sends a mutation whose query says which thing is meant.
func changeOf[T any](ctx context.Context, a *api, method, path string, query url.Values, body any) (*T, error) {
	c := call{method: method, path: path, query: query}
	if body != nil {
		encoded, err := encode(body)
		if err != nil {
			return nil, err
		}
		c.body, c.contentType = encoded, "application/json"
	}
	answer := new(T)
	if err := a.send(ctx, c, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func remove(ctx context.Context, a *api, path string) error {
	return a.send(ctx, call{method: http.MethodDelete, path: path}, nil)
}

// path joins the parts of a path. A part that is empty or a dot would call another path: it becomes one that nothing
// has.
func path(parts ...string) string {
	joined := "/v1"
	for _, part := range parts {
		switch part {
		case "", ".", "..":
			part = "-"
		}
		joined += "/" + url.PathEscape(part)
	}
	return joined
}
