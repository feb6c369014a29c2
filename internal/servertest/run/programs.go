package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// programs returns the folder for the compiled test programs. The checkout keeps it, in bin/tests, so that the go command links only
// what has changed since the last run; `make clean` removes it. A run that finds another one there has a folder of its own, which
// release removes.
func programs(ctx context.Context, o options) (dir string, release func(), err error) {
	root, err := goOutput(ctx, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(strings.TrimSpace(root), "bin", "tests")
	if o.soak {
		dir = filepath.Join(dir, "soak") // compiled with other tags
	}
	if o.cover {
		dir = filepath.Join(dir, "cover")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", nil, err
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return dir, func() { lock.Close() }, nil
	}
	lock.Close()
	dir, err = os.MkdirTemp(cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "tests-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// whole compiles into the folder. Where that was cut off before, a program may be the beginning of one, which the go command takes for
// the whole: then all are compiled again.
func whole(dir string, compile func() error) error {
	begun := filepath.Join(dir, "begun")
	if _, err := os.Stat(begun); err == nil {
		for _, race := range []bool{false, true} {
			if err := errors.Join(os.RemoveAll(folder(dir, race, false)), os.RemoveAll(folder(dir, race, true))); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		return err
	}
	err := compile()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) && !ended.Exited() {
		return err // by a signal
	}
	return errors.Join(err, os.Remove(begun))
}
