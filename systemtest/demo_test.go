package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/app"
	"firsttap/internal/config"
	"firsttap/internal/demo"
	"firsttap/internal/testkit"
)

const (
	openAtOnce    = 8  // dispatches that the demo's office keeps open
	heightOfDuels = 46 // of the offers that only the two visitors get
)

func TestDemo(t *testing.T) {
	dir := t.TempDir()
	s := showDemo(t, dir)
	if a := send("POST", s.URL+"/v1/session", "", fmt.Sprintf(`{"key":%q}`, s.key)); a.status != 200 || a.header.Get("Set-Cookie") == "" {
		t.Errorf("the link's key does not sign in: %s", a)
	}
	var me [2]Driver
	for i, token := range s.tokens {
		s.get("/v1/me", token, &me[i])
		me[i].Token = token
	}
	if me[0].ID == "" || me[0].ID == me[1].ID {
		t.Errorf("the two drivers are %v", me)
	}

	// The duel, twice: only A and B get the offer, and one of them wins.
	for range 2 {
		var id string
		var answers []Response
		// An offer lasts for 6 s. If the machine stands still, it may expire before they tap: they wait for the next one.
		testkit.Within(t, startOrEnd, "both tap before the offer expires", func() bool {
			id = s.offerForBoth()
			answers = Together(2, func(k int) Response { return Accept(s.Instance, id, me[k], 1) })
			testkit.Eventually(t, "both know how it went", func() bool { // an unknown or provisional result is asked for again, as an app does
				for k, a := range answers {
					if a.err != nil || a.status == 503 || a.Final != nil && !*a.Final {
						answers[k] = Accept(s.Instance, id, me[k], 1)
						return false
					}
				}
				return true
			})
			return answers[0].Code != "DISPATCH_EXPIRED" || answers[1].Code != "DISPATCH_EXPIRED"
		})
		if answers[0].Won() == answers[1].Won() {
			t.Errorf("not exactly one winner: %v", answers)
		}
		var told struct {
			Items []struct {
				DriverID string `json:"driver_id"`
			}
		}
		s.get("/v1/admin/dispatches/"+id+"/offers", s.key, &told)
		for _, o := range told.Items {
			if o.DriverID != me[0].ID && o.DriverID != me[1].ID {
				t.Errorf("%s competes with the visitor", o.DriverID)
			}
		}
	}

	// The simulated drivers win, work and complete.
	testkit.Within(t, 3*testkit.Patience, "a simulated driver has done a job", func() bool {
		var done struct {
			Items []struct {
				AcceptedBy string `json:"accepted_by"`
			}
		}
		s.get("/v1/admin/dispatches?status=COMPLETED", s.key, &done)
		for _, d := range done.Items {
			if d.AcceptedBy != me[0].ID && d.AcceptedBy != me[1].ID {
				return true
			}
		}
		return false
	})
	var board struct{ Counts map[string]int }
	s.get("/v1/admin/board", s.key, &board)
	if n := board.Counts["PENDING"] + board.Counts["SCHEDULED"]; n > openAtOnce+2 {
		t.Errorf("%d dispatches are waiting: the demo has no bound", n)
	}
	if err := s.end(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	testkit.MustHoldFiles(t, dir)
	testkit.MustHoldFiles(t, ".")
}

// offerForBoth waits for an open offer that needs more height than any simulated driver has, and returns the one that expires last.
func (s *shownDemo) offerForBoth() (id string) {
	s.T.Helper()
	type offers struct {
		Items []struct {
			ID, Status string
			Round      int
			Height     float64   `json:"min_working_height_m"`
			ExpiresAt  time.Time `json:"expires_at"`
		}
	}
	testkit.Eventually(s.T, "both drivers see the same offer", func() bool {
		seen := map[string]int{}
		var latest time.Time
		for _, token := range s.tokens {
			var o offers
			s.get("/v1/me/offers", token, &o)
			for _, o := range o.Items {
				if o.Height == heightOfDuels && o.Status == "PENDING" && o.Round == 1 {
					if seen[o.ID]++; seen[o.ID] == 2 && o.ExpiresAt.After(latest) {
						id, latest = o.ID, o.ExpiresAt
					}
				}
			}
		}
		return !latest.IsZero()
	})
	return id
}

// TestDemoTouchesNothingReal runs the command in an environment that names a database, Redis, FCM and more.
func TestDemoTouchesNothingReal(t *testing.T) {
	t.Parallel()
	// A connection to any of them is noticed.
	calls := make(chan string, 100)
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var trapped sync.WaitGroup
	trapped.Go(func() {
		for {
			conn, err := trap.Accept()
			if err != nil {
				return
			}
			calls <- conn.RemoteAddr().String()
			conn.Close()
		}
	})
	t.Cleanup(func() { trap.Close(); trapped.Wait() })
	there := trap.Addr().String()
	dir := t.TempDir()
	d := startDemo(t, dir, "FIRSTTAP_DATABASE_URL=mysql://root:x@"+there+"/production", "FIRSTTAP_REDIS_URL=redis://"+there,
		"FIRSTTAP_ADMIN_KEY=the-real-one-of-another-service-far-away", "FIRSTTAP_JWT_SECRET=the-real-one", "FIRSTTAP_FIREBASE_PROJECT=real",
		"FIRSTTAP_FCM_ENDPOINT=http://"+there, "FIREBASE_AUTH_EMULATOR_HOST="+there, "FIRSTTAP_PUSH=fcm",
		"GOOGLE_APPLICATION_CREDENTIALS=/nowhere", "FIRSTTAP_ADDR=0.0.0.0:0", "FIRSTTAP_OPS_ADDR=0.0.0.0:0",
		"FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS=redis://"+there, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+there,
		"HTTP_PROXY=http://"+there, "HTTPS_PROXY=http://"+there)
	if a := send("GET", d.URL+"/v1/session", "the-real-one-of-another-service-far-away", ""); a.status != 401 {
		t.Errorf("the environment's key opens the demo: %s", a)
	}
	// The drivers are at work, so every connection that it would make has been made.
	testkit.Eventually(t, "pushes were sent", func() bool {
		var list struct{ Items []struct{ ID string } }
		a := send("GET", d.URL+"/v1/admin/notifications?status=SENT&limit=5", d.key, "")
		return a.status == 200 && json.Unmarshal([]byte(a.body), &list) == nil && len(list.Items) > 0
	})
	want := strings.TrimPrefix(d.URL, "http://")
	if got := listeners(t, d.cmd.Process.Pid); len(got) != 1 || got[0].addr != want {
		t.Errorf("the demo listens on %v, want %s alone", got, want)
	}
	if err := d.end(); err != nil {
		t.Error(err)
	}
	if len(calls) > 0 {
		t.Errorf("%d calls went where the environment leads, one from %s", len(calls), <-calls)
	}
	testkit.MustHoldFiles(t, dir)
	testkit.MustHoldFiles(t, d.cmd.Dir)
}

// TestDemoEndsWithItsTerminal: the demo leaves no process and no file, even if two signals come at once, as from a terminal that closes
// or from timeout(1).
func TestDemoEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // otherwise the demo would ignore it where the tests do, as under nohup
	defer signal.Stop(hangups)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		dir := t.TempDir()
		d := startDemo(t, dir)
		Client.CloseIdleConnections()
		// Both arrive while the demo is stopped, and so together: half a second after the first, the second would kill it.
		d.signal(syscall.SIGSTOP)
		testkit.Eventually(t, "the demo is stopped", func() bool { return threadsAreStopped(d.cmd.Process.Pid) })
		d.signal(s)
		d.signal(syscall.SIGTERM)
		d.signal(syscall.SIGCONT)
		select {
		case <-d.done:
		case <-time.After(startOrEnd): //nolint:forbidigo // it gives up, and fails
			d.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
			testkit.Within(t, startOrEnd, "the demo ends", d.ended)
			t.Fatalf("%s: the demo goes on:\n%s", s, d.log)
		}
		if err := d.end(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		testkit.MustHoldFiles(t, dir)
	}
}

// TestDemoEndsWithItsService: the simulated drivers do not go on without a service.
func TestDemoEndsWithItsService(t *testing.T) {
	dir := t.TempDir()
	s := showDemo(t, dir)
	for _, l := range listeners(t, os.Getpid()) {
		if "http://"+l.addr == s.URL {
			if err := syscall.Shutdown(l.fd, syscall.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		}
	}
	testkit.Within(t, startOrEnd, "the demo ends by itself", s.ended)
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "the demo's service has ended") {
		t.Errorf("%v", err)
	}
	testkit.MustHoldFiles(t, dir)
}

// TestDemoThatIsCalledOff ends before it has begun.
func TestDemoThatIsCalledOff(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := app.Run(ctx, []string{"demo", "--addr", "localhost:0"}, testkit.Settings(), config.Timeouts{}, &out); err != nil || strings.Contains(out.String(), "#key=") {
		t.Errorf("%v\n%s", err, out.String())
	}
	testkit.MustHoldFiles(t, dir)
}

func TestDemoIsForThisMachineAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, addr := range []string{
		":8080", ":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1.example.com:0", "8080", "127.0.0.1", "127.0.0.1:99999",
		"128.0.0.1:0", "[::ffff:192.0.2.1]:0", "localhost.:0", " 127.0.0.1:0",
	} {
		out, err := command(t, testkit.Settings(), "demo", "--addr", addr)
		if err == nil || !strings.Contains(err.Error(), "--addr") {
			t.Errorf("%q: %v\n%s", addr, err, out)
		}
	}
	for addr, want := range map[string]string{"localhost:1": "127.0.0.1:1", "127.1.2.3:0": "127.1.2.3:0", "[::1]:80": "[::1]:80"} {
		if got, err := demo.Loopback(addr); got != want || err != nil {
			t.Errorf("%s is %s, %v; want %s", addr, got, err, want)
		}
	}
	testkit.MustHoldFiles(t, dir)
}

func TestDemoArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"8080"}, {"--addr"}, {"--nonsense"}, {"--addr", "127.0.0.1:0", "now"}} {
		if out, err := command(t, testkit.Settings(), append([]string{"demo"}, args...)...); err == nil {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	if out, err := command(t, testkit.Settings(), "demo", "-h"); err != nil || !strings.Contains(out, "-addr") {
		t.Errorf("-h: %q, %v", out, err)
	}
	if _, err := command(t, testkit.Settings("FIRSTTAP_LOG", "loud"), "demo"); err == nil || !strings.Contains(err.Error(), "FIRSTTAP_LOG") {
		t.Errorf("a bad setting: %v", err)
	}
}

// TestDemoWhereThePortIsTaken picks another port in place of the default one, and fails if the user named the port.
func TestDemoWhereThePortIsTaken(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	patience, stop := context.WithTimeout(t.Context(), startOrEnd)
	defer stop()
	if err := app.Run(patience, []string{"demo", "--addr", taken.Addr().String()}, testkit.Settings(), config.Timeouts{}, io.Discard); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
	c, err := demo.ReadConfig(testkit.Settings())
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = taken.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s := follow(t, &Instance{T: t}, cancel, func(out io.Writer) error {
		return demo.Demo{Start: app.ServeInBackground, Config: c, AnyPort: true, Pace: 25, Stdout: out}.Run(ctx)
	})
	if s.URL == "http://"+c.Addr || !strings.HasPrefix(s.URL, "http://127.0.0.1:") {
		t.Errorf("it is at %s", s.URL)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	testkit.MustHoldFiles(t, dir)
}
