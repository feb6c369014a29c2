package servertest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// child is a running program that is killed when this process dies.
type child struct {
	process *os.Process
	exited  chan struct{} // closed once the program has ended and was waited for
	success bool          // whether it exited with 0, once exited is closed
}

// startChild runs argv in the folder dir, with its output in the file log.
func startChild(argv []string, dir, log string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.SysProcAttr = dieWithParent()

	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that started the child ends, not the process
		// (golang.org/issue/27505), and the runtime ends threads as it likes. So the thread is kept for this goroutine,
		// which stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err == nil {
			c.success = cmd.Wait() == nil
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// kill ends the program, also a frozen one, and returns when it is gone.
func (c *child) kill() {
	_ = c.process.Signal(syscall.SIGKILL) // fails only when it has ended already
	<-c.exited
}

// alive reports whether the program's end has not been seen yet.
func (c *child) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}
