//go:build linux

package servertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether every thread of the process pid has come to a stop: kill(2) returns before they do.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range stats {
		// "pid (name) state ...", and the name may contain parentheses.
		line, err := os.ReadFile(stat)
		if end := bytes.LastIndexByte(line, ')'); err == nil && !bytes.HasPrefix(line[end+1:], []byte(" T")) {
			return false
		}
	}
	return len(stats) > 0
}
