package systemtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// The secrets of the instances.
const (
	AdminKey  = "an-admin-key-for-the-tests-of-firsttap"
	JWTSecret = "a-secret-for-the-tests-of-firsttap"

	// requestTimeout is Client's. The service ends an answer after 30 s.
	requestTimeout = time.Minute

	// startOrEnd bounds the wait for a process that starts or ends: on a busy machine either takes more than a minute.
	startOrEnd = 10 * time.Minute
)

// Instance is a firsttap process.
type Instance struct {
	T    testing.TB
	URL  string
	cmd  *exec.Cmd
	log  *testkit.LogBuffer
	done chan struct{}
}

// Start runs an instance with settings like "FIRSTTAP_REDIS_URL=...", until the test ends.
func Start(t testing.TB, settings ...string) *Instance {
	t.Helper()
	cmd := exec.Command(os.Args[0], "serve")
	cmd.Env = append([]string{
		runAsInstance + "=1", coverage(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
		"FIRSTTAP_ADDR=127.0.0.1:0", "FIRSTTAP_OPS_ADDR=", "FIRSTTAP_ADMIN_KEY=" + AdminKey,
		"FIRSTTAP_JWT_SECRET=" + JWTSecret, "FIRSTTAP_LOG=warn", "FIRSTTAP_DRAIN=0",
		"FIRSTTAP_RATE_LIMIT_DRIVER=100000/s", "FIRSTTAP_RATE_LIMIT_ADMIN=100000/s",
		patientRedis, patientClaims, patientOthers,
		"GORACE=atexit_sleep_ms=0", // with the race detector it would sleep for a second when it has ended
	}, settings...)
	i := launch(t, cmd)
	t.Cleanup(i.end)
	i.awaitURL()
	return i
}

// coverage is the variable that says where a process writes its coverage when it ends, if that is measured.
func coverage() string { return "GOCOVERDIR=" + os.Getenv("GOCOVERDIR") }

// launch starts a process that ends with the test. Even a stopped one does not outlive a killed test process.
func launch(t testing.TB, cmd *exec.Cmd) *Instance {
	t.Helper()
	i := &Instance{T: t, cmd: cmd, log: &testkit.LogBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = i.log, i.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState has the result
		close(i.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only when it has ended already
		<-i.done
		if t.Failed() {
			t.Logf("log of %s at %s:\n%s", cmd.Path, i.URL, i.log)
		}
	})
	return i
}

// ended reports whether the process has ended.
func (i *Instance) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// awaitURL waits until the instance says where it listens.
func (i *Instance) awaitURL() {
	i.T.Helper()
	listens := regexp.MustCompile(`listens on ([^"\s]+)"`)
	testkit.Poll(startOrEnd, func() bool {
		if found := listens.FindStringSubmatch(i.log.String()); found != nil {
			i.URL = found[1]
		}
		return i.URL != "" || i.ended()
	})
	if i.URL == "" {
		i.T.Fatalf("firsttap does not listen:\n%s", i.log)
	}
}

func (i *Instance) signal(s syscall.Signal) {
	i.T.Helper()
	if err := i.cmd.Process.Signal(s); err != nil {
		i.T.Fatal(err)
	}
}

// endBy sends the signal, after which the instance must end with 0.
func (i *Instance) endBy(s syscall.Signal) {
	i.T.Helper()
	i.signal(s)
	i.mustEnd()
}

// mustEnd waits until the instance has ended, which must be with 0.
func (i *Instance) mustEnd() {
	i.T.Helper()
	testkit.Within(i.T, startOrEnd, "the instance ends", i.ended)
	if code := i.cmd.ProcessState.ExitCode(); code != 0 {
		i.T.Errorf("the instance ended with %d:\n%s", code, i.log)
	}
}

// Kill ends the instance by SIGKILL, and returns when it is gone.
func (i *Instance) Kill() {
	i.T.Helper()
	i.signal(syscall.SIGKILL)
	<-i.done
}

func (i *Instance) end() {
	_ = i.cmd.Process.Signal(syscall.SIGCONT)
	_ = i.cmd.Process.Signal(syscall.SIGINT) // which skips the drain
	if !testkit.Poll(startOrEnd, i.ended) {
		i.T.Errorf("%s did not end after SIGINT", i.URL)
	}
	if i.log.Count("DATA RACE") > 0 || i.log.Count("panic") > 0 {
		i.T.Errorf("%s has a data race or a panic", i.URL)
	}
}

// Driver is a driver and a token of theirs.
type Driver struct{ ID, Token string }

// MakeDrivers adds n drivers on duty in Seoul.
func MakeDrivers(t testing.TB, i *Instance, n int) []Driver {
	t.Helper()
	return makeDriversIn(t, i, "seoul", n)
}

func makeDriversIn(t testing.TB, i *Instance, region string, n int) []Driver {
	t.Helper()
	const bulk = 1000 // is the most that a request may have
	var all []Driver
	for len(all) < n {
		a := createDrivers(i, region, min(bulk, n-len(all)))
		made := a.drivers()
		if len(made) == 0 {
			t.Fatalf("drivers: %s", a)
		}
		all = append(all, made...)
	}
	return all
}

func createDrivers(i *Instance, region string, n int) Response {
	var body strings.Builder
	for k := range n {
		if k > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"name":"D%d","phone":"+8210%08d","regions":[%q],"vehicle_class":"45m","on_duty":true}`, k, k, region)
	}
	return send("POST", i.URL+"/v1/admin/drivers/bulk", AdminKey, `{"issue_tokens":true,"drivers":[`+body.String()+`]}`)
}

// drivers are those that the request has made, none if it failed.
func (a Response) drivers() []Driver {
	var made struct{ Items []Driver }
	if json.Unmarshal([]byte(a.body), &made) != nil {
		return nil
	}
	return made.Items
}

// DispatchOptions are a dispatch's settings. Zero means Seoul, open from now on, and work that overlaps with no other's.
type DispatchOptions struct {
	Region                 string
	opens, starts, Expires time.Time
}

// MakeDispatch opens a dispatch in Seoul and returns its id.
func MakeDispatch(t testing.TB, i *Instance) string {
	t.Helper()
	return MakeDispatchWith(t, i, DispatchOptions{})
}

// MakeDispatchWith makes a dispatch and returns its id.
func MakeDispatchWith(t testing.TB, i *Instance, o DispatchOptions) string {
	t.Helper()
	a := createDispatch(i, o)
	if a.status != 201 {
		t.Fatalf("dispatch: %s", a)
	}
	return a.ID
}

func createDispatch(i *Instance, o DispatchOptions) Response {
	return send("POST", i.URL+"/v1/admin/dispatches", AdminKey, dispatchBody(o))
}

func dispatchBody(o DispatchOptions) string {
	if o.starts.IsZero() {
		o.starts = nextHour()
	}
	body := map[string]any{
		"region": cmp.Or(o.Region, "seoul"), "vehicle_class": "45m", "site_address": "Seoul 1",
		"work_starts_at": o.starts.UTC(), "work_ends_at": o.starts.Add(time.Hour).UTC(),
		"fee": map[string]any{"amount": 350000, "currency": "KRW"},
	}
	for name, at := range map[string]time.Time{"opens_at": o.opens, "expires_at": o.Expires} {
		if !at.IsZero() {
			body[name] = at.UTC()
		}
	}
	raw, _ := json.Marshal(body) // texts, numbers and times have no error
	return string(raw)
}

var hours struct {
	sync.Mutex
	next int
}

// nextHour returns an hour that no other call returns.
func nextHour() time.Time {
	hours.Lock()
	defer hours.Unlock()
	hours.next++
	return time.Now().Truncate(time.Hour).Add(time.Duration(hours.next) * time.Hour)
}

// Accept claims the dispatch; round 0 sends no round.
func Accept(i *Instance, id string, d Driver, round int) Response {
	body := ""
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d}`, round)
	}
	return send("POST", i.URL+"/v1/dispatches/"+id+"/accept", d.Token, body)
}

// mustWin makes the driver win the dispatch, and returns the response.
func mustWin(t testing.TB, i *Instance, id string, d Driver, round int) Response {
	t.Helper()
	a := Accept(i, id, d, round)
	if !a.Won() {
		t.Fatalf("%s should win round %d of %s and got %s", d.ID, round, id, a)
	}
	return a
}

// mustBeTaken checks that the driver is refused for good, because another has won.
func mustBeTaken(t testing.TB, i *Instance, id string, d Driver) {
	t.Helper()
	if a := Accept(i, id, d, 1); a.Code != "ALREADY_TAKEN" || !*a.Final {
		t.Fatalf("another driver has won %s, and %s got %s", id, d.ID, a)
	}
}

// startTwo starts two instances over one database.
func startTwo(t testing.TB, url string, settings ...string) ([]*Instance, *Database) {
	t.Helper()
	settings = append(settings, "FIRSTTAP_DATABASE_URL="+url)
	return []*Instance{Start(t, settings...), Start(t, settings...)}, OpenDatabase(t, url)
}

// ownRedis is the setting of a Redis of the test's own.
func ownRedis(t testing.TB) string {
	t.Helper()
	return "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()
}

// ownFile is the setting of an SQLite database of the test's own.
func ownFile(t testing.TB) string {
	t.Helper()
	return "FIRSTTAP_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "my.db")
}

// get requests the path and decodes the response, which must be 200.
func (i *Instance) get(path, token string, into any) {
	i.T.Helper()
	a := i.must(200, "GET", path, token, "")
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		i.T.Fatalf("GET %s: %v: %s", path, err, a)
	}
}

// must sends the request, which must get that status, and returns the response.
func (i *Instance) must(status int, method, path, token, body string, headers ...string) Response {
	i.T.Helper()
	a := sendWith(method, i.URL+path, token, body, headers...)
	if a.status != status {
		i.T.Fatalf("%s %s should be answered with %d: %s", method, path, status, a)
	}
	return a
}

// isReady reports whether /readyz is 200.
func (i *Instance) isReady() bool { return i.readyz().status == 200 }

func (i *Instance) readyz() Response { return send("GET", i.URL+"/readyz", "", "") }

// textOf is the first text with that name in a JSON document.
func textOf(document, name string) string {
	_, rest, _ := strings.Cut(document, `"`+name+`":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

// withdraw gives the driver's claim back.
func withdraw(i *Instance, id string, d Driver) Response {
	return send("POST", i.URL+"/v1/dispatches/"+id+"/withdraw", d.Token, `{"reason_code":"BREAKDOWN"}`)
}

// Together sends n requests at the same time, request(0) to request(n-1), and returns the responses.
//
// It does not use the idle connections of earlier requests. The client dials more of them than it needs, and the server closes one
// that has carried no request for 5 s: a POST sent at that moment would end in an EOF, and net/http does not repeat it.
func Together(n int, request func(k int) Response) []Response {
	Client.CloseIdleConnections()
	responses := make([]Response, n)
	testkit.Together(n, func(k int) { responses[k] = request(k) })
	return responses
}
