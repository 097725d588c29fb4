package postrider_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	postrider "github.com/postrider/postrider/clients/go"
)

// server gives the address and the admin key of the real server that clients/check.py has started.
func server(t *testing.T) (string, string) {
	t.Helper()
	address, key := os.Getenv("POSTRIDER_SERVER"), os.Getenv("POSTRIDER_KEY")
	if address == "" || key == "" {
		t.Fatal("POSTRIDER_SERVER and POSTRIDER_KEY are not set: run clients/check.py, which starts a server")
	}
	return address, key
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// freshTenant gives an admin client in a tenant of its own, so that tests do not meet each other.
func freshTenant(t *testing.T) (*postrider.Client, string) {
	t.Helper()
	address, key := server(t)
	admin := must(postrider.New(address, key))(t)
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	tenant := must(admin.Tenants.Create(context.Background(), "go-"+hex.EncodeToString(random), ""))(t)
	return admin.With(postrider.WithTenant(tenant.ID)), tenant.ID
}

type received struct {
	header http.Header
	body   []byte
}

// receiver keeps what it gets and answers as its status says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []received
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: 200}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, received{request.Header, body})
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// take gives the first request, when it has arrived.
func (r *receiver) take(t *testing.T) received {
	t.Helper()
	until(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.got) > 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[0]
}

// until waits for a condition, at most ten seconds.
func until(t *testing.T, isTrue func() bool) {
	t.Helper()
	for n := 0; n < 500; n++ {
		if isTrue() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the condition did not come true within ten seconds")
}

// cuttingProxy is a TCP proxy. It breaks the first cuts connections after size bytes of the answer.
type cuttingProxy struct {
	url      string
	mu       sync.Mutex
	cuts     int
	requests []string
}

func newCuttingProxy(t *testing.T, target string, cuts, size int) *cuttingProxy {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	proxy := &cuttingProxy{url: "http://" + listener.Addr().String(), cuts: cuts}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go proxy.serve(client, strings.TrimPrefix(target, "http://"), size)
		}
	}()
	return proxy
}

func (p *cuttingProxy) serve(client net.Conn, target string, size int) {
	defer client.Close()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer upstream.Close()
	var mu sync.Mutex
	var request []byte
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				upstream.Close()
				return
			}
			mu.Lock()
			request = append(request, buffer[:n]...)
			mu.Unlock()
			_, _ = upstream.Write(buffer[:n])
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := upstream.Read(buffer)
		if err != nil {
			return
		}
		mu.Lock()
		text := string(request)
		request = nil
		mu.Unlock()
		p.mu.Lock()
		p.requests = append(p.requests, text)
		isCut := p.cuts > 0
		p.cuts--
		p.mu.Unlock()
		if isCut {
			if size < n {
				n = size
			}
			_, _ = client.Write(buffer[:n])
			return
		}
		_, _ = client.Write(buffer[:n])
	}
}

var keyPattern = regexp.MustCompile(`(?i)idempotency-key: (\S+)`)

// keys gives the idempotency keys of the requests that were answered, in order, of those that have one.
func (p *cuttingProxy) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for _, request := range p.requests {
		if match := keyPattern.FindStringSubmatch(request); match != nil {
			keys = append(keys, match[1])
		}
	}
	return keys
}

func distinct(texts []string) int {
	set := map[string]bool{}
	for _, text := range texts {
		set[text] = true
	}
	return len(set)
}
