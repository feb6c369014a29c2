package main

import (
	"bufio"
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
)

const (
	asProcess = "FIRSTTAP_TEST_MAIN"
	adminKey  = "an-admin-key-for-the-tests-of-firsttap"
	jwtSecret = "a-secret-for-the-tests-of-firsttap"
	// hung is how long nothing here may take: a request that is not answered by then has been forgotten.
	hung = 20 * time.Second
)

// instance is a firsttap process.
type instance struct {
	t    testing.TB
	url  string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
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
			fmt.Fprintln(i.log, lines.Text())
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
