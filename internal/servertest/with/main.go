// Command with runs a command while the servers are up that tests share:
//
//	go run ./internal/servertest/with COMMAND [ARGUMENTS]
//
// It starts one Redis, MariaDB and MySQL, those that are installed, and the command finds their addresses in its environment. Without
// them each package's tests start their own. When the command has ended, so do the servers and what the command has left running.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"firsttap/internal/servertest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command []string) error {
	if len(command) == 0 {
		return errors.New("usage: with COMMAND [ARGUMENTS]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := useMemory(); err != nil {
		return err
	}
	environ, end, err := servertest.StartShared()
	if err != nil {
		return err
	}
	defer end()

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), environ...)
	// All that the command starts is a group, which a signal reaches as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if nothing of the group is left
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}

// useMemory puts the data of servers and tests into memory if that has room: a kill of a process loses nothing of it either.
func useMemory() error {
	const memory, room = "/dev/shm", 4 << 30
	var free syscall.Statfs_t
	known := syscall.Statfs(memory, &free) == nil
	if os.Getenv("TMPDIR") != "" || !known || free.Bavail*uint64(free.Bsize) < room {
		return nil
	}
	return errors.Join(os.Setenv("GOTMPDIR", os.TempDir()), os.Setenv("TMPDIR", memory))
}
