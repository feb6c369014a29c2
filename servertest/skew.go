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

// StartRedisSkewed is [StartRedis] with a wall clock that is off by offset, for TIME and for EXPIREAT and the like. The clock's
// rate is not changed. It needs libfaketime, which is "faketime" in FIRSTTAP_TEST_REQUIRE.
func StartRedisSkewed(t testing.TB, offset time.Duration) *Redis {
	t.Helper()
	require(t, "redis", redisInstalled())
	// Redis' jemalloc reads the clock before libfaketime is ready, and hangs. This library replaces it by glibc's malloc.
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

// StartMariaDBSkewed is [StartMariaDB] with a wall clock that is off by offset, for UTC_TIMESTAMP and NOW: see
// [StartRedisSkewed].
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

// skewed returns a prefix for a command that shifts its clock by offset and preloads the libraries.
func skewed(offset time.Duration, libraries ...string) (func() []string, error) {
	// MT is for programs with several threads.
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
