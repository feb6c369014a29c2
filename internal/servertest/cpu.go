package servertest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ClockTick is the unit of Linux's processor times; USER_HZ is 100 on every Linux that Go runs on.
const ClockTick = 10 * time.Millisecond

// ProcessorTime returns the user and system time of a process so far, in ClockTicks. It reads Linux's /proc.
func ProcessorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(b))
}

// ProcessorTime returns the user and system time of the server since it was started.
func (s *server) ProcessorTime() (time.Duration, error) { return ProcessorTime(s.child.process.Pid) }

// parseStat reads utime and stime from a line of /proc/<pid>/stat. The command's name may hold spaces and brackets, so
// fields are counted from the last bracket.
func parseStat(line string) (time.Duration, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("/proc/<pid>/stat: too few fields")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * ClockTick, nil
}
