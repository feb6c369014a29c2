package servertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// StartRedisSkewed is [StartRedis] with a wall clock that is off by offset, for TIME and for EXPIREAT and the like. The clock's
// rate is not changed. It needs libfaketime, which is "faketime" in FIRSTTAP_TEST_REQUIRE.
func StartRedisSkewed(t testing.TB, offset time.Duration) *Redis {
	t.Helper()
	// Redis' jemalloc reads the clock before libfaketime is ready, and hangs. This library replaces it by glibc's malloc.
	return startRedis(t, skewed(t, redisProgram(nil, func(*server) []string { return nil }), offset, ":libc_malloc_debug.so.0"))
}

// StartMariaDBSkewed is [StartMariaDB] with a wall clock that is off by offset, for UTC_TIMESTAMP and NOW: see
// [StartRedisSkewed].
func StartMariaDBSkewed(t testing.TB, offset time.Duration) *Database {
	t.Helper()
	e, err := installed[mariadb]()
	require(t, mariadb, err)
	return &Database{startServer(t, skewed(t, databaseProgram(e), offset, ""))}
}

// skewed shifts the program's clock by offset. more are libraries that it loads after libfaketime.
func skewed(t testing.TB, p program, offset time.Duration, more string) program {
	t.Helper()
	// MT is for programs with several threads.
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		require(t, "faketime", errors.New("no libfaketime"))
	}
	t.Cleanup(sweepClocks)
	command := p.command
	p.command = func(s *server) []string {
		sweepClocks()
		return append([]string{
			"env", "LD_PRELOAD=" + found[0] + more, fmt.Sprintf("FAKETIME=%+f", offset.Seconds()), "FAKETIME_DONT_FAKE_MONOTONIC=1",
		}, command(s)...)
	}
	return p
}

// sweepClocks removes the shared memory that libfaketime keeps for killed processes: a later process with the same id
// would not start.
func sweepClocks() {
	for _, pattern := range []string{"/dev/shm/faketime_shm_%d", "/dev/shm/sem.faketime_sem_%d"} {
		left, _ := filepath.Glob(pattern[:len(pattern)-len("%d")] + "*")
		for _, path := range left {
			var pid int
			_, err := fmt.Sscanf(path, pattern, &pid)
			if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				_ = os.Remove(path) // another process may be sweeping too
			}
		}
	}
}
