package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/servertest"
)

const (
	asProcess = "FIRSTTAP_TEST_MAIN"
	adminKey  = "an-admin-key-for-the-tests-of-firsttap"
	jwtSecret = "a-secret-for-the-tests-of-firsttap"
	// hung is how long nothing here may take: a request that is not answered by then has been forgotten.
	hung = 20 * time.Second
)

// TestMain is also the program itself: instances are processes, so that tests can stop and kill them.
func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(servertest.Main(m))
}

// instance is a firsttap process.
type instance struct {
	t    testing.TB
	url  string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
}

type logBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *logBuffer) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintln(&b.all, line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// start runs an instance with settings like "FIRSTTAP_REDIS_URL=...", until the test ends.
func start(t testing.TB, settings ...string) *instance {
	t.Helper()
	cmd := exec.Command(os.Args[0], "serve")
	cmd.Env = append([]string{
		asProcess + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
		"FIRSTTAP_ADDR=127.0.0.1:0", "FIRSTTAP_OPS_ADDR=", "FIRSTTAP_ADMIN_KEY=" + adminKey,
		"FIRSTTAP_JWT_SECRET=" + jwtSecret, "FIRSTTAP_LOG=warn", "FIRSTTAP_DRAIN=0",
		"FIRSTTAP_RATE_LIMIT_DRIVER=100000/s", "FIRSTTAP_RATE_LIMIT_ADMIN=100000/s",
	}, settings...)
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	// Stopped or not, an instance must not outlive a test process that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, cmd: cmd, log: &logBuffer{}, done: make(chan struct{})}
	listening := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			i.log.add(lines.Text())
			if _, url, ok := strings.Cut(lines.Text(), "listens on "); ok {
				listening <- url
			}
		}
	}()
	go func() {
		cmd.Wait()
		w.Close()
		close(i.done)
	}()
	t.Cleanup(i.end)
	select {
	case i.url = <-listening:
	case <-i.done:
		t.Fatalf("firsttap ended at once:\n%s", i.log)
	case <-time.After(hung):
		t.Fatalf("firsttap does not listen:\n%s", i.log)
	}
	return i
}

func (i *instance) signal(s syscall.Signal) {
	i.t.Helper()
	if err := i.cmd.Process.Signal(s); err != nil {
		i.t.Fatal(err)
	}
}

func (i *instance) kill() {
	i.t.Helper()
	i.signal(syscall.SIGKILL)
	<-i.done
}

func (i *instance) end() {
	i.cmd.Process.Signal(syscall.SIGCONT)
	i.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-i.done:
	case <-time.After(hung):
		i.cmd.Process.Kill()
		<-i.done
		i.t.Errorf("firsttap did not end when it was told to:\n%s", i.log)
	}
	if log := i.log.String(); i.t.Failed() || strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
		i.t.Errorf("log of %s:\n%s", i.url, log)
	}
}

// answer is what came back, with the fields that tests look at.
type answer struct {
	status int
	header http.Header
	body   string
	Code   string
	Final  *bool
	Result string
	Round  int
	Status string
	ID     string
	// Replayed is nil where the answer does not say.
	Replayed *bool
	Claim    struct{ ID string }
	Outcome  string
	Version  int
	err      error
}

func (a answer) String() string { return fmt.Sprintf("%d %s %v", a.status, a.body, a.err) }

func (a answer) won() bool { return a.status == 200 && a.Result == "SUCCESS" }

var client = &http.Client{Timeout: hung, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

func send(method, url, token, body string) answer { return sendWith(method, url, token, body) }

// sendWith sends headers besides: name, value, name, value.
func sendWith(method, url, token, body string, headers ...string) (a answer) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a = answer{status: resp.StatusCode, header: resp.Header, body: string(raw), err: err}
	json.Unmarshal(raw, &a)
	return a
}

type person struct{ ID, Token string }

func makeDrivers(t testing.TB, i *instance, n int) []person {
	t.Helper()
	return makeDriversIn(t, i, "seoul", n)
}

func makeDriversIn(t testing.TB, i *instance, region string, n int) []person {
	t.Helper()
	var body strings.Builder
	for k := range n {
		if k > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"name":"D%d","phone":"+8210%08d","regions":[%q],"vehicle_class":"45m","on_duty":true}`, k, k, region)
	}
	a := send("POST", i.url+"/v1/admin/drivers/bulk", adminKey, `{"issue_tokens":true,"drivers":[`+body.String()+`]}`)
	var made struct{ Items []person }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || len(made.Items) != n {
		t.Fatalf("drivers: %s", a)
	}
	return made.Items
}

var hours struct {
	sync.Mutex
	next int
}

// makeDispatch opens a dispatch whose work overlaps with no other's.
func makeDispatch(t testing.TB, i *instance) string {
	t.Helper()
	return makeDispatchAt(t, i, nextHour())
}

// nextHour is an hour that no other caller is given.
func nextHour() time.Time {
	hours.Lock()
	defer hours.Unlock()
	hours.next++
	return time.Now().Truncate(time.Hour).Add(time.Duration(hours.next) * time.Hour)
}

func makeDispatchAt(t testing.TB, i *instance, starts time.Time) string {
	t.Helper()
	a := send("POST", i.url+"/v1/admin/dispatches", adminKey, fmt.Sprintf(`{"region":"seoul","vehicle_class":"45m",
		"site_address":"Seoul 1","work_starts_at":%q,"work_ends_at":%q,"fee":{"amount":350000,"currency":"KRW"}}`,
		starts.UTC().Format(time.RFC3339), starts.Add(time.Hour).UTC().Format(time.RFC3339)))
	if a.status != 201 {
		t.Fatalf("dispatch: %s", a)
	}
	return a.ID
}

func accept(i *instance, id string, d person, round int) answer {
	body := ""
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d}`, round)
	}
	return send("POST", i.url+"/v1/dispatches/"+id+"/accept", d.Token, body)
}

// together calls tap for 0..n-1 from behind one gate.
func together(n int, tap func(k int) answer) []answer {
	answers := make([]answer, n)
	gate := make(chan struct{})
	var done sync.WaitGroup
	for k := range n {
		done.Go(func() {
			<-gate
			answers[k] = tap(k)
		})
	}
	close(gate)
	done.Wait()
	return answers
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, hung, what, ok)
}

// within polls until ok, for as long as patience lasts.
func within(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// await fails the test when c is not closed in time.
func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hung):
		t.Fatalf("never: %s", what)
	}
}

// books is a look into the database past the service.
type books struct {
	t  testing.TB
	db *sql.DB
}

func openBooks(t testing.TB, url string) *books {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return &books{t, db}
	}
	rest := strings.TrimPrefix(url, "mysql://")
	account, rest, _ := strings.Cut(rest, "@")
	addr, name, _ := strings.Cut(rest, "/")
	config := driver.NewConfig()
	config.User, config.Passwd, _ = strings.Cut(account, ":")
	config.Net, config.Addr, config.DBName = "tcp", addr, name
	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return &books{t, db}
}

func (b *books) count(query string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.QueryRow("SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// isWonBy checks that the books say of the round what the winner was told, all of it and once.
func (b *books) isWonBy(id string, round int, winner, claim string) {
	b.t.Helper()
	for what, n := range map[string]int{
		"dispatch": b.count("dispatches WHERE id=? AND round=? AND status='ACCEPTED' AND accepted_by=? AND claim_id=?", id, round, winner, claim),
		"claim":    b.count("claims WHERE dispatch_id=? AND round=? AND outcome='WON' AND driver_id=? AND id=?", id, round, winner, claim),
		"claims":   b.count("claims WHERE dispatch_id=? AND round=?", id, round),
		"event":    b.count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted' AND driver_id=?", id, round, winner),
		"events":   b.count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted'", id, round),
		"outbox":   b.count("outbox o JOIN events e ON e.id=o.event_id WHERE e.dispatch_id=? AND e.round=? AND e.type='dispatch.accepted'", id, round),
	} {
		if n != 1 {
			b.t.Errorf("%s round %d: %d in the books for %s", id, round, n, what)
		}
	}
}

func (b *books) reannounced(id string) int {
	b.t.Helper()
	return b.count(`outbox o JOIN events e ON e.id=o.event_id
		WHERE e.dispatch_id=? AND e.type='dispatch.opened' AND e.reason_code='CLAIM_FAILED'`, id)
}

// onServers runs test on MariaDB and on MySQL.
func onServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("mariadb", func(t *testing.T) { test(t, servertest.MariaDBURL(t)) })
	t.Run("mysql", func(t *testing.T) { test(t, servertest.MySQLURL(t)) })
}
