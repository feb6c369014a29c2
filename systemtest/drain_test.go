package systemtest

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// TestDrain: after SIGTERM an instance first reports that it is not ready and goes on serving. Then it closes its streams
// with a notice, and exits with 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	const drain = 40 * time.Second // in which a machine that stands still for seconds must answer a few requests
	i := Start(t, ownFile(t), "FIRSTTAP_DRAIN="+drain.String())
	d, id := MakeDrivers(t, i, 1)[0], MakeDispatch(t, i)
	testkit.Eventually(t, "it is ready", i.isReady)
	if parts(t, i) {
		t.Fatal("before SIGTERM it closes connections")
	}
	stream := openStream(t, i, AdminKey, "")
	told := time.Now()
	i.signal(syscall.SIGTERM)
	testkit.Eventually(t, "it is not ready", func() bool {
		r := i.readyz()
		return r.status == 503 && r.Status == "draining"
	})
	if !parts(t, i) {
		t.Error("it keeps connections that it is about to close")
	}
	mustWin(t, i, id, d, 1)
	i.must(200, "GET", "/livez", "", "")
	testkit.Within(t, startOrEnd, "it ends", i.ended)
	if took := time.Since(told); took < drain || i.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("it ended after %s with %d:\n%s", took, i.cmd.ProcessState.ExitCode(), i.log)
	}
	events, comments := stream.rest()
	if len(events) == 0 || events[len(events)-1] != "reconnect" || !strings.HasPrefix(comments[len(comments)-1], "retry: ") {
		t.Errorf("the stream ends with %q, %q", events, comments)
	}
	if n := OpenDatabase(t, i.database(t)).Count("taps WHERE dispatch_id=? AND result='SUCCESS'", id); n != 1 {
		t.Errorf("%d taps in the ledger", n)
	}
}

// parts reports whether the instance closes the connection after its response. The HTTP client hides that header.
func parts(t *testing.T, i *Instance) bool {
	t.Helper()
	resp, err := Client.Get(i.URL + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.Close
}

// TestRequestsFinish: a claim that is being decided or committed at SIGTERM is committed, and its driver gets the response. Another
// instance expands its event at once if this one could not.
func TestRequestsFinish(t *testing.T) {
	t.Parallel()
	for _, match := range []string{"FROM dispatches d JOIN", callOfClaim} {
		t.Run(match, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, mariaDB(t), pushLease+"=1h", stopTimeout+"=10m") // no lease ends while the test goes on
			o := s.holdClaim(t, match)
			stream := openStream(t, s.one, o.drivers[1].Token, "")
			testkit.Eventually(t, "the events before the claim are expanded", func() bool { return o.db.Count("events WHERE next_at IS NOT NULL") == 0 })
			s.proxy.CutReply("UPDATE events SET next_at = NULL") // the claim's event is not expanded
			s.one.signal(syscall.SIGTERM)
			testkit.Eventually(t, "it takes no more requests", func() bool {
				return send("GET", s.one.URL+"/livez", "", "").err != nil
			})
			if events, _ := stream.rest(); !slices.Contains(events, "reconnect") {
				t.Errorf("its streams end with %q while a request is under way", events)
			}
			o.hold.Release()
			o.mustBeWon(0, <-o.answered)
			testkit.Within(t, startOrEnd, "it ends", s.one.ended)
			if n := o.db.taps(o.id); n != 1 {
				t.Errorf("%d taps in the ledger of an instance that has ended", n)
			}
			testkit.Within(t, 3*testkit.Patience, "every event is expanded", func() bool { return o.db.Count("events WHERE next_at IS NOT NULL") == 0 })
		})
	}
}

// TestDrainIsSkipped on Ctrl-C and after a second signal.
func TestDrainIsSkipped(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][]syscall.Signal{
		"interrupted": {syscall.SIGINT}, "told twice": {syscall.SIGTERM, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := Start(t, ownFile(t), "FIRSTTAP_DRAIN=1m")
			for k, s := range signals {
				if k > 0 {
					testkit.Eventually(t, "the first signal arrives", func() bool { return i.readyz().status == 503 })
				}
				i.signal(s)
			}
			testkit.Eventually(t, "it ends", func() bool {
				if len(signals) > 1 {
					_ = i.cmd.Process.Signal(syscall.SIGTERM) // right after the first, it counts as the same
				}
				return i.ended()
			})
			state, _ := i.cmd.ProcessState.Sys().(syscall.WaitStatus)
			if orderly := len(signals) == 1; orderly != (i.cmd.ProcessState.ExitCode() == 0) || orderly == state.Signaled() {
				t.Errorf("it ended with %v", i.cmd.ProcessState)
			}
		})
	}
}

// database is the URL of the instance's database.
func (i *Instance) database(t testing.TB) string {
	t.Helper()
	for _, setting := range i.cmd.Env {
		if url, ok := strings.CutPrefix(setting, "FIRSTTAP_DATABASE_URL="); ok {
			return url
		}
	}
	t.Fatal("the instance has no database of its own")
	return ""
}

// openedStream is a live stream whose lines are read as they arrive.
type openedStream struct {
	t     testing.TB
	lines chan string // closed when the stream is over
}

// openStream opens the caller's live stream of i.
func openStream(t testing.TB, i *Instance, token, lastID string) *openedStream {
	t.Helper()
	path := "/v1/stream"
	if token == AdminKey {
		path = "/v1/admin/stream"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) //nolint:bodyclose // closed by the reader
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("the stream: %v, %v", resp, err)
	}
	s := &openedStream{t: t, lines: make(chan string, 4096)}
	go func() {
		defer close(s.lines)
		defer resp.Body.Close()
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	return s
}

// rest returns the names of the events until the stream's end, and its comments and retries.
func (s *openedStream) rest() (events, comments []string) {
	s.t.Helper()
	end := time.After(testkit.Patience) //nolint:forbidigo // it gives up, and fails
	for {
		select {
		case line, more := <-s.lines:
			if !more {
				return events, comments
			}
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				events = append(events, name)
			} else if strings.HasPrefix(line, ":") || strings.HasPrefix(line, "retry: ") {
				comments = append(comments, line)
			}
		case <-end:
			s.t.Fatal("the stream does not end")
		}
	}
}
