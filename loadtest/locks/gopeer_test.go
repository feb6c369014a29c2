package locks

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"firsttap/internal/redisclient"
	"firsttap/lock"
)

// The keys of an installation's jobs in Redis: the prefix is fixed, and the environment is FIRSTTAP_NAMESPACE.
const (
	keysPrefix      = "job-lock"
	keysEnvironment = "firsttap"
)

// holder is what a Go peer holds.
type holder struct {
	in     *bufio.Scanner
	locker *lock.Locker
	held   map[string]*lock.Lease
}

// runGoPeer answers the lines of the standard input, until it ends. args are table with a DSN, or redis with an address.
func runGoPeer(args []string) error {
	strategy, err := openStrategyOf(args)
	if err != nil {
		return err
	}
	h := &holder{bufio.NewScanner(os.Stdin), lock.New(strategy, lock.Options{}), map[string]*lock.Lease{}}
	for h.in.Scan() {
		answer, err := h.answer(strings.Fields(h.in.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
	return nil
}

func openStrategyOf(args []string) (lock.Strategy, error) {
	if args[0] == "table" {
		db, err := sql.Open("mysql", args[1])
		return lock.NewTable(db, lock.MySQL), err
	}
	client, err := redisclient.Dial("redis://"+args[1], time.Second)
	return lock.NewRedis(client, lock.ShedLockKeys(keysPrefix, keysEnvironment)), err
}

func (h *holder) answer(words []string) (string, error) {
	numbers := make([]int, len(words))
	for i, w := range words {
		numbers[i], _ = strconv.Atoi(w) // what is no number is a name
	}
	switch words[0] {
	case "lock":
		return h.lock(words[1], holdOf(numbers[2], numbers[3], numbers[4]))
	case "unlock":
		return h.unlock(words[1])
	case "turns":
		return h.turns(numbers[1], words[2])
	case "race":
		return h.race(words[1], numbers[2], numbers[3], holdOf(numbers[4], numbers[5], 0))
	}
	return "", fmt.Errorf("unknown command %q", words[0])
}

func holdOf(atMost, atLeast, wait int) lock.Hold {
	hold := lock.Renewed(ttl, time.Hour)
	if atMost > 0 {
		hold = lock.Between(time.Duration(atLeast)*time.Millisecond, time.Duration(atMost)*time.Millisecond)
	}
	hold.Wait = time.Duration(wait) * time.Millisecond
	return hold
}

func (h *holder) lock(name string, hold lock.Hold) (string, error) {
	lease, err := h.locker.Acquire(context.Background(), name, hold)
	now := time.Now().UnixMicro()
	if errors.Is(err, lock.ErrHeld) {
		return "busy", nil
	}
	if err != nil {
		return "", err
	}
	h.held[name] = lease
	return fmt.Sprint("held ", now), nil
}

func (h *holder) unlock(name string) (string, error) {
	lease := h.held[name]
	delete(h.held, name)
	now := time.Now().UnixMicro()
	err := lease.Release(context.Background())
	if errors.Is(err, lock.ErrLost) {
		return "lost", nil
	}
	return fmt.Sprint("free ", now), err
}

func (h *holder) turns(times int, name string) (string, error) {
	start := time.Now()
	for range times {
		lease, err := h.locker.Acquire(context.Background(), name, holdOf(0, 0, 0))
		if err == nil {
			err = lease.Release(context.Background())
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprint("took ", time.Since(start).Microseconds()), nil
}

func (h *holder) race(prefix string, names, contenders int, hold lock.Hold) (string, error) {
	var won atomic.Int64
	var asked, running sync.WaitGroup
	asked.Add(contenders)
	failed := make([]error, contenders)
	gate := make(chan struct{})
	for k := range contenders {
		running.Go(func() {
			var mine []*lock.Lease
			<-gate
			for n := range names {
				lease, err := h.locker.Acquire(context.Background(), prefix+strconv.Itoa(n), hold)
				if err == nil {
					mine = append(mine, lease)
				} else if !errors.Is(err, lock.ErrHeld) {
					failed[k] = err
				}
			}
			asked.Done()
			asked.Wait()
			for _, lease := range mine {
				failed[k] = errors.Join(failed[k], lease.Release(context.Background()))
			}
			won.Add(int64(len(mine)))
		})
	}
	fmt.Println("ready")
	h.in.Scan()
	start := time.Now()
	close(gate)
	running.Wait()
	return fmt.Sprint("won ", won.Load(), " ", time.Since(start).Microseconds()), errors.Join(failed...)
}
