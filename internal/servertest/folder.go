package servertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const folderPrefix = "firsttap-"

// folder makes a temporary folder whose path is short enough for a unix socket in it.
func folder() (string, error) {
	const longest = 60 // of the 107 bytes a socket's path may have
	base := os.TempDir()
	if len(base) > longest {
		base = "/tmp"
	}
	sweep(base)
	return os.MkdirTemp(base, fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
}

var swept sync.Once

// sweep removes, once per process, the folders in base that killed test processes left behind.
func sweep(base string) {
	swept.Do(func() {
		left, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
		for _, path := range left {
			if abandoned(path) {
				_ = os.RemoveAll(path) // another process may be sweeping too
			}
		}
	})
}

// abandoned reports whether the process that made the folder is gone. A folder of less than an hour counts as in use: its
// process may be in another process namespace.
func abandoned(path string) bool {
	var pid int
	_, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(path), folderPrefix), "%d-", &pid)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || time.Since(info.ModTime()) < time.Hour {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
