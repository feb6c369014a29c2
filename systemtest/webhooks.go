package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// PrivateWebhooks is the setting of an instance that sends webhooks to this machine.
const PrivateWebhooks = "FIRSTTAP_WEBHOOK_ALLOW_PRIVATE=true"

// Receiver is a system that gets webhooks, at a path for each endpoint.
type Receiver struct {
	server *httptest.Server
	ended  chan struct{}

	mu       sync.Mutex
	arrivals []Arrival
	// onArrival is called with each delivery before it is answered; nil for nothing.
	onArrival func(Arrival)
	hanging   map[string]bool
}

// Arrival is a request that a Receiver got.
type Arrival struct {
	At       time.Time
	Endpoint string // its path
	Event    string
	Type     string
	Dispatch string // "" for a test
	header   http.Header
	body     []byte
}

// StartReceiver starts a system that gets webhooks, until the test ends.
func StartReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{ended: make(chan struct{}), hanging: map[string]bool{}}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() { close(r.ended); r.server.Close() })
	return r
}

// URL is the endpoint at path, such as /a.
func (r *Receiver) URL(path string) string { return r.server.URL + path }

// Hang makes the endpoint at path answer nothing from now on.
func (r *Receiver) Hang(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hanging[path] = true
}

// OnArrival has call called with each delivery before it is answered.
func (r *Receiver) OnArrival(call func(Arrival)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onArrival = call
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var content struct {
		Type string
		Data struct{ Dispatch struct{ ID string } }
	}
	if err == nil {
		err = json.Unmarshal(body, &content)
	}
	if err != nil { // the sender is gone, or wrote nonsense; either is no delivery
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a := Arrival{
		At: time.Now(), Endpoint: req.URL.Path, Event: req.Header.Get("webhook-id"), Type: content.Type, Dispatch: content.Data.Dispatch.ID,
		header: req.Header, body: body,
	}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, a)
	call, hangs := r.onArrival, r.hanging[a.Endpoint]
	r.mu.Unlock()
	if call != nil {
		call(a)
	}
	if hangs {
		select {
		case <-req.Context().Done():
		case <-r.ended:
		}
	}
}

// Arrivals returns what has arrived at the endpoint, in its order; "" for all endpoints.
func (r *Receiver) Arrivals(endpoint string) (found []Arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.arrivals {
		if endpoint == "" || a.Endpoint == endpoint {
			found = append(found, a)
		}
	}
	return found
}

// Webhook is an endpoint that is registered.
type Webhook struct{ ID, Secret string }

// MakeWebhook registers an endpoint that gets all events.
func MakeWebhook(t testing.TB, i *Instance, url string) (made Webhook) {
	t.Helper()
	a := send("POST", i.URL+"/v1/admin/webhooks", AdminKey, fmt.Sprintf(`{"url":%q,"events":["*"]}`, url))
	if err := json.Unmarshal([]byte(a.body), &made); a.status != 201 || err != nil {
		t.Fatalf("webhook: %s, %v", a, err)
	}
	return made
}
