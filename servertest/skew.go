package servertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// StartRedisSkewed is [StartRedis] with a wall clock that is off by offset: what TIME says, and what a time of day that a
// client sends is compared with. How fast time passes is not changed. It needs libfaketime, which is "faketime" in
// FIRSTTAP_TEST_REQUIRE.
func StartRedisSkewed(t testing.TB, offset time.Duration) *Redis {
	t.Helper()
	require(t, "redis", redisInstalled())
	// Redis' jemalloc asks for the time before libfaketime is ready to tell it, and hangs. So it gets glibc's own malloc,
	// of which this library is a copy that needs no debugging to be on.
	under, err := skewed(offset, "libc_malloc_debug.so.0")
	require(t, "faketime", err)
	r, err := newRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sweepClocks)
	r.own(t)
	r.Kill()
	command := r.command
	r.command = func(s *server) []string { return slices.Concat(under(), command(s)) }
	r.Start()
	return r
}

// StartMariaDBSkewed is [StartMariaDB] with a wall clock that is off by offset, as of [StartRedisSkewed]: what
// UTC_TIMESTAMP and NOW say.
func StartMariaDBSkewed(t testing.TB, offset time.Duration) *Database {
	t.Helper()
	e, err := installed[mariadb]()
	require(t, mariadb, err)
	under, err := skewed(offset)
	require(t, "faketime", err)
	e.daemon = slices.Concat(under(), e.daemon)
	d, err := newDatabase(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sweepClocks)
	d.own(t)
	return d
}

// skewed returns what to put before a command so that it runs with a clock that is off by offset, and with the libraries
// loaded before its own.
func skewed(offset time.Duration, libraries ...string) (func() []string, error) {
	// The variant for programs with several threads.
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		return nil, errors.New("no libfaketime")
	}
	preload := found[0]
	for _, library := range libraries {
		preload += ":" + library
	}
	return func() []string {
		sweepClocks()
		return []string{
			"env", "LD_PRELOAD=" + preload, fmt.Sprintf("FAKETIME=%+f", offset.Seconds()),
			"FAKETIME_DONT_FAKE_MONOTONIC=1",
		}
	}, nil
}

// sweepClocks removes what libfaketime keeps in shared memory for a process, when that was killed: the next process with
// its id would not start.
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
