package systemtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Memory returns the bytes of memory that the process occupies.
func (i *Instance) Memory() int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", i.cmd.Process.Pid))
	var size, resident int64
	if _, bad := fmt.Sscan(string(statm), &size, &resident); err != nil || bad != nil {
		i.T.Fatalf("memory of the process: %q, %v, %v", statm, err, bad)
	}
	return resident * int64(os.Getpagesize())
}

// CPU returns the processor time that the instance has taken.
func (i *Instance) CPU() time.Duration { return ProcessCPU(i.T, i.cmd.Process.Pid) }

// ProcessCPU returns the processor time that the process has taken, with that of its children whose end it has seen.
func ProcessCPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the program's name may have spaces
	fields := strings.Fields(after)
	var ticks int
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ
	return time.Duration(ticks) * time.Second / perSecond
}
