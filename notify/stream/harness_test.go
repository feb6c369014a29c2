package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// testStream is the stream of the hubs, which have no namespace.
const testStream = ":stream"

// runHub starts a hub that ends with the test.
func runHub(t testing.TB, o Options) *Hub {
	h, _ := startHub(t, o)
	return h
}

// patient is how long Redis may take where that is not the subject: a busy machine's stall is no outage.
const patient = 30 * time.Second

func startHub(t testing.TB, o Options) (h *Hub, stop func()) {
	o.RedisTimeout = cmp.Or(o.RedisTimeout, patient)
	h = NewHub(o)
	return h, testkit.Run(t, h.Run)
}

// waiting is how many entries are in the hub's queue.
func waiting(h *Hub) int { return len(h.queue.peek(0, h.options.QueueSize)) }

// told is an event that a client received.
type told struct {
	id, event string
	data      map[string]any
	raw       string
}

func (e told) subject() string { s, _ := e.data["event_id"].(string); return s }

// client reads a stream as a browser does, and keeps the last id.
type client struct {
	t      testing.TB
	stream *Stream
	stop   context.CancelFunc
	ended  chan struct{}
	err    error // once ended

	mu       sync.Mutex
	events   []told
	comments []string
	last     string
	arrived  []time.Time
	encoded  []*byte // where the bytes of each event are
}

// listen serves s until the test ends, in the background.
func listen(t testing.TB, s *Stream, err error) *client {
	t.Helper()
	return listenSlowly(t, s, err, func() error { return nil })
}

// listenSlowly is listen for a client that reads each write after take has returned.
func listenSlowly(t testing.TB, s *Stream, err error, take func() error) *client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &client{t: t, stream: s, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer s.Close()
		c.err = s.Serve(ctx, func(frames [][]byte) error {
			if err := take(); err != nil {
				return err
			}
			return c.read(frames)
		})
	}()
	t.Cleanup(func() { stop(); <-c.ended })
	return c
}

// hangUp ends the stream and returns the id to resume from.
func (c *client) hangUp() string {
	c.stop()
	<-c.ended
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *client) read(frames [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range frames {
		if bytes.Contains(f, []byte("event: ")) {
			c.encoded = append(c.encoded, &f[0])
		}
	}
	events, comments, last := parseStream(c.t, string(bytes.Join(frames, nil)))
	c.events, c.comments = append(c.events, events...), append(c.comments, comments...)
	c.arrived = append(c.arrived, time.Now())
	if last != "" {
		c.last = last
	}
	return nil
}

// parseStream parses whole events by the rules of the HTML standard.
func parseStream(t testing.TB, raw string) (events []told, comments []string, last string) {
	if !strings.HasSuffix(raw, "\n\n") {
		t.Errorf("an event is not whole: %q", raw)
	}
	for block := range strings.SplitSeq(strings.TrimSuffix(raw, "\n\n"), "\n\n") {
		e := told{raw: block}
		for line := range strings.SplitSeq(block, "\n") {
			switch field, value, _ := strings.Cut(line, ": "); field {
			case "id":
				e.id, last = value, value
			case "event":
				e.event = value
			case "data":
				if err := json.Unmarshal([]byte(value), &e.data); err != nil {
					t.Errorf("%q: %v", value, err)
				}
			case "retry":
				comments = append(comments, line)
			default:
				if !strings.HasPrefix(line, ":") {
					t.Errorf("a line %q", line)
				}
				comments = append(comments, line)
			}
		}
		if e.data != nil {
			events = append(events, e)
		}
	}
	return events, comments, last
}

func (c *client) all() []told {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// bytesOf returns where the bytes of each event are that the client got.
func (c *client) bytesOf() []*byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.encoded)
}

// said returns the comments and the retry.
func (c *client) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.comments)
}

func (c *client) lastID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *client) names() (names []string) {
	for _, e := range c.all() {
		names = append(names, e.event)
	}
	return names
}

// has reports whether the client got the event, under any name.
func (c *client) has(id dispatch.EventID) bool {
	return slices.ContainsFunc(c.all(), func(e told) bool { return e.subject() == string(id) })
}

// readsAgain waits until the client got a resync. It fails the test if the client got more of them than there were outages
// of Redis on the hubs, and more than one.
func (c *client) readsAgain(what string, hubs ...*Hub) {
	c.t.Helper()
	testkit.Eventually(c.t, what, func() bool { return c.count("resync") > 0 })
	resyncs, most := c.count("resync"), 0
	for _, h := range append(hubs, c.stream.hub) {
		most += int(testutil.ToFloat64(h.metrics.outages))
	}
	if resyncs > max(1, most) {
		c.t.Errorf("%s: %d resyncs after %d outages", what, resyncs, most)
	}
}

func (c *client) count(name string) (n int) {
	for _, e := range c.names() {
		if e == name {
			n++
		}
	}
	return n
}

// greeted waits for the first write to the client.
func (c *client) greeted() *client {
	testkit.Eventually(c.t, "the greeting", func() bool { return len(c.said()) > 0 })
	return c
}

// job is an open dispatch in Seoul.
func job() dispatch.Dispatch {
	now := time.Now()
	d, _ := dispatch.New(dispatch.NewID(now), "", dispatch.Terms{
		Region: "seoul", VehicleClass: "45m", WorkStartsAt: now.Add(time.Hour), WorkEndsAt: now.Add(2 * time.Hour),
	}, dispatch.Window{OpensAt: now, ExpiresAt: now.Add(10 * time.Minute)}, "key_1", now)
	return d
}

// kim is a driver who is eligible for it.
func kim(change ...func(*dispatch.Driver)) dispatch.Driver {
	v := dispatch.Driver{ID: dispatch.NewDriverID(time.Now()), Regions: []string{"incheon", "seoul"}, VehicleClass: "45m", OnDuty: true, Version: 1}
	for _, c := range change {
		c(&v)
	}
	return v
}

func offDuty(v *dispatch.Driver)   { v.OnDuty = false }
func elsewhere(v *dispatch.Driver) { v.Regions = []string{"busan"} }

// happens publishes one event of the dispatch and returns it.
func happens(h *Hub, d dispatch.Dispatch, t dispatch.EventType, driver dispatch.DriverID) dispatch.Event {
	now := time.Now()
	e := dispatch.Event{
		ID: dispatch.NewEventID(now), Type: t, Dispatch: d.ID, Round: d.Round, Driver: driver,
		Actor: "key_1", ReasonCode: "BECAUSE", At: now,
	}
	if driver != "" {
		e.Actor = string(driver)
	}
	h.Publish(d, []dispatch.Event{e})
	return e
}

// opens publishes the opening of a dispatch, and waits until the clients have it.
func opens(h *Hub, clients ...*client) dispatch.Event {
	e := happens(h, job(), dispatch.EventOpened, "")
	for _, c := range clients {
		c.get(e)
	}
	return e
}

// delivered publishes openings until the clients have one. A resync may stand for an event that was published just before it.
func delivered(t testing.TB, h *Hub, clients ...*client) {
	t.Helper()
	resyncs := func() (n int) {
		for _, c := range clients {
			n += c.count("resync")
		}
		return n
	}
	for range 20 {
		before, e, all := resyncs(), opens(h), false
		testkit.Eventually(t, "an event is delivered, or a resync stands for it", func() bool {
			all = !slices.ContainsFunc(clients, func(c *client) bool { return !c.has(e.ID) })
			return all || resyncs() > before
		})
		if all {
			return
		}
	}
	t.Fatal("a resync follows every event")
}

// get waits until the client has the events.
func (c *client) get(events ...dispatch.Event) {
	c.t.Helper()
	for _, e := range events {
		testkit.Eventually(c.t, "an event is delivered", func() bool { return c.has(e.ID) })
	}
}

// openDriver opens the stream of a driver who is as v says.
func openDriver(t testing.TB, h *Hub, v dispatch.Driver, lastEventID string) (*Stream, error) {
	return h.OpenDriver(t.Context(), v.ID, lastEventID, func(context.Context) (dispatch.Driver, error) { return v, nil })
}

func driverStream(t testing.TB, h *Hub, v dispatch.Driver, lastEventID string) *client {
	t.Helper()
	s, err := openDriver(t, h, v, lastEventID)
	return listen(t, s, err).greeted().resumedFrom(lastEventID)
}

func adminStream(t testing.TB, h *Hub, lastEventID string) *client {
	t.Helper()
	s, err := h.OpenAdmin(t.Context(), fmt.Sprintf("key_%p", h), lastEventID)
	return listen(t, s, err).greeted().resumedFrom(lastEventID)
}

// resumedFrom makes the client keep the id that it came with until it gets another, as a browser does.
func (c *client) resumedFrom(lastEventID string) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == "" {
		c.last = lastEventID
	}
	return c
}
