package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"firsttap/internal/servertest"
)

// process is a child process. It is killed when this process dies.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// starter starts children from one thread that lives as long as this process: the kernel sends the parent-death signal
// when the thread that forked ends, not the process, and the Go runtime may end other threads.
type starter chan func()

func newStarter() starter {
	s := make(starter)
	go func() {
		runtime.LockOSThread()
		for start := range s {
			start()
		}
	}()
	return s
}

// start runs argv with env added to a nearly empty environment: the user's variables must not tune one contender.
// Its output goes to a file in dir.
func (s starter) start(dir, name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Its own process group: Ctrl-C goes to this process only, which ends the children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	s <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its log has the reason
		close(p.exited)
	}()
	return p, nil
}

// stop ends the process by SIGTERM, or by SIGKILL after 15 s. A second stop does nothing.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.exited:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// await polls ready until it returns nil, the process ends or half a minute has passed.
func (p *process) await(ready func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready:\n%s", p.name, p.tail())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s was not ready in time: %w\n%s", p.name, err, p.tail())
		}
	}
}

// tail returns the end of the process's output.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(bytes.TrimSpace(b))
}

// machineBusy returns the busy time of all processors, including the share that other guests took.
func machineBusy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, errors.New("/proc/stat: too few fields")
	}
	var ticks int64
	for i, f := range fields[1:9] {
		if i == 3 || i == 4 { // idle, iowait
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * servertest.ClockTick, nil
}

// ownCPU returns the user and system time of this process: the cost of the load generator.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ports returns free ports of 127.0.0.1, each once.
type ports struct {
	mu   sync.Mutex
	used map[int]bool
}

func (p *ports) free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, err
		}
		if !p.used[port] {
			if p.used == nil {
				p.used = map[int]bool{}
			}
			p.used[port] = true
			return port, nil
		}
	}
}
