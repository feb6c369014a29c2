package schedule_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// unheard is longer than any step here may take, and bounds the wait for it.
const unheard = 60 * time.Second

// process is an instance in a process of its own, which runs this program again. One goroutine at a time may use it.
type process struct {
	role
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	log   *bytes.Buffer // may be read once it has ended
	gone  chan struct{} // closed when it has ended
	err   error         // how it ended

	killed  time.Time // zero if it was not
	stopped time.Time // since when it stands still, or zero
	stands  []span    // when it stood still
}

type span struct{ from, to time.Time }

// start starts an instance whose clock is off by skew and that reports to j. It ends with the test, and with this process, and has
// no time limit of its own.
func (r role) start(t testing.TB, j *journal, skew time.Duration) *process {
	t.Helper()
	told, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{role: r, t: t, log: &bytes.Buffer{}, gone: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestInstance$", "-test.timeout=0", roleMark, string(told))
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Ptrace: skew != 0}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		// To the kernel, a process's parent is the thread that started it: only this thread may trace the process, and it must
		// not end before the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil && skew != 0 {
			err = setClock(p.cmd.Process.Pid, skew)
		}
		started <- err
		if p.cmd.Process != nil {
			j.read(stdout)
			p.err = p.cmd.Wait()
			close(p.gone)
		}
	}()
	err = <-started
	if p.cmd.Process != nil {
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill() // fails if it has ended
			<-p.gone
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%s: %v: %v", p.Name, s, err)
	}
}

// kill ends the process by SIGKILL. It counts as killed from before the signal on, as this program may stand still after it.
func (p *process) kill() {
	p.t.Helper()
	p.killed = time.Now()
	p.signal(syscall.SIGKILL)
	<-p.gone
}

// stop stops the process by SIGSTOP, from before the signal on as well.
func (p *process) stop() {
	p.t.Helper()
	p.stopped = time.Now()
	p.signal(syscall.SIGSTOP)
}

func (p *process) goOn() {
	p.t.Helper()
	p.stands = append(p.stands, span{p.stopped, time.Now()})
	p.stopped = time.Time{}
	p.signal(syscall.SIGCONT)
}

// quit stops the instance by its normal shutdown, which also leaves no goroutine behind.
func (p *process) quit() {
	p.t.Helper()
	_ = p.stdin.Close() // it may have ended
	select {
	case <-p.gone:
	case <-time.After(unheard): //nolint:forbidigo // it gives up, and fails
		p.signal(syscall.SIGABRT) // prints where its goroutines are
		<-p.gone
	}
}

// check fails the test unless the process was killed or ended normally.
func (p *process) check() {
	p.t.Helper()
	select {
	case <-p.gone:
	default:
		return
	}
	if p.killed.IsZero() && p.err != nil || strings.Contains(p.log.String(), "DATA RACE") {
		p.t.Errorf("%s: %v\n%s", p.Name, p.err, p.log)
	}
}

// journal holds the reports of the instances.
type journal struct {
	mu      sync.Mutex
	reports []report
	added   chan struct{} // closed, and replaced, with each report
}

func newJournal() *journal { return &journal{added: make(chan struct{})} }

// read picks the reports out of what package testing prints, to the end.
func (j *journal) read(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			j.mu.Lock()
			j.reports = append(j.reports, r)
			close(j.added)
			j.added = make(chan struct{})
			j.mu.Unlock()
		}
	}
}

// all returns the reports so far, and a channel that is closed when there is another.
func (j *journal) all() ([]report, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reports[:len(j.reports):len(j.reports)], j.added
}

// await returns the first report after the first n that is wanted.
func (j *journal) await(t testing.TB, after int, what string, wanted func(report) bool) report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), unheard)
	defer cancel()
	for {
		reports, added := j.all()
		for ; after < len(reports); after++ {
			if wanted(reports[after]) {
				return reports[after]
			}
		}
		select {
		case <-added:
		case <-ctx.Done():
			t.Fatalf("no process has reported that %s", what)
		}
	}
}

// count returns the number of reports.
func (j *journal) count() int {
	reports, _ := j.all()
	return len(reports)
}

func (r report) String() string {
	return fmt.Sprintf("%s %s %s %s attempt %d, begun %s %s", clockTime(r.At), r.Who, r.What, clockTime(r.Slot), r.Attempt,
		clockTime(*r.BeganAt), r.Note)
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000") }
