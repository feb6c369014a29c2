package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/lock"
)

// The examples use Memory; other strategies work the same.

func ExampleLocker_Do() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()

	err := locker.Do(context.Background(), "settle", lock.Renewed(30*time.Second, time.Hour), func(ctx context.Context) error {
		// ctx ends when the lease is lost: return then, and write nothing more.
		fmt.Println("settling alone")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// settling alone
	// <nil>
}

func ExampleLocker_Acquire() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, err := locker.Acquire(ctx, "report", lock.Fixed(30*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.Acquire(ctx, "report", lock.Fixed(30*time.Second))
	var held *lock.HeldError
	fmt.Println(errors.Is(err, lock.ErrHeld), errors.As(err, &held) && held.Owner == lease.Owner())
	fmt.Println(lease.Release(ctx))
	// Output:
	// true true
	// <nil>
}

// The keys of a name have a hash tag, so that a Cluster keeps them on the same server.
func ExampleTaggedKeys() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"redis-0:6379", "redis-1:6379"}, ContextTimeoutEnabled: true})
	defer client.Close()
	locker := lock.New(lock.NewRedis(client, lock.TaggedKeys("lock")), lock.Options{})
	defer locker.Close()

	err := locker.Do(context.Background(), "settle", lock.Renewed(30*time.Second, time.Hour), func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
}

func ExampleFixed() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()

	err := locker.Do(context.Background(), "job", lock.Fixed(500*time.Millisecond), func(ctx context.Context) error {
		<-ctx.Done() // longer than the lease
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, lock.ErrExpired), errors.Is(err, lock.ErrLost))
	// Output: true true
}

func ExampleRenewed() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()

	// The lease is renewed while the work runs, but ends after AtMost.
	err := locker.Do(context.Background(), "job", lock.Renewed(30*time.Second, 100*time.Millisecond), func(ctx context.Context) error {
		<-ctx.Done() // hangs
		return nil
	})
	fmt.Println(err)
	// Output: lock: lost: held for too long
}

func ExampleExpected() {
	hold := lock.Expected(20 * time.Second)
	fmt.Println(hold.TTL, hold.RenewEvery, hold.AtMost)
	// Output: 30s 10s 3m20s
}

func ExampleBetween() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()
	ctx := context.Background()
	hold := lock.Between(time.Minute, 10*time.Minute)

	quick := func(context.Context) error { return nil }
	fmt.Println(locker.Do(ctx, "every-hour", hold, quick))
	// The job is finished, but the name is still held, so an instance whose clock is late does not repeat the job.
	fmt.Println(errors.Is(locker.Do(ctx, "every-hour", hold, quick), lock.ErrHeld))
	// Output:
	// <nil>
	// true
}

func ExampleHold_wait() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()
	ctx := context.Background()
	first, err := locker.Acquire(ctx, "ledger", lock.Fixed(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}

	var waiting sync.WaitGroup
	waiting.Go(func() {
		hold := lock.Fixed(time.Minute)
		hold.Wait = 10 * time.Second
		fmt.Println("second:", locker.Do(ctx, "ledger", hold, func(context.Context) error { return nil }))
	})
	fmt.Println("first:", first.Release(ctx))
	waiting.Wait()
	// Unordered output:
	// first: <nil>
	// second: <nil>
}

func ExampleLease_Heartbeat() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()

	hold := lock.Hold{TTL: 30 * time.Second, RenewEvery: 20 * time.Millisecond, Heartbeat: 50 * time.Millisecond}
	err := locker.Do(context.Background(), "import", hold, func(ctx context.Context) error {
		for range 3 {
			lock.FromContext(ctx).Heartbeat() // for example after each row
		}
		<-ctx.Done() // hangs: no more heartbeats
		return nil
	})
	fmt.Println(err)
	// Output: lock: lost: no progress
}

func ExampleLeader_Campaign() {
	memory := lock.NewMemory()
	ctx := context.Background()
	leader := func(instance string) *lock.Leader {
		return lock.New(memory, lock.Options{Instance: instance}).Leader("scheduler", time.Second, 30*time.Second)
	}
	seoul, busan := leader("seoul"), leader("busan")
	run := func(context.Context) error { fmt.Println("slot run"); return nil }

	fmt.Println(seoul.Campaign(ctx, run))
	// The lead is kept after the run, so a candidate whose clock is late does not repeat the slot.
	fmt.Println(errors.Is(busan.Campaign(ctx, run), lock.ErrHeld))
	fmt.Println(seoul.Resign(ctx)) // releases the lead
	fmt.Println(busan.Campaign(ctx, run))
	_ = busan.Resign(ctx)
	// Output:
	// slot run
	// <nil>
	// true
	// <nil>
	// slot run
	// <nil>
}

func ExampleFences_Enforce() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, statement := range lock.SQLite.Schema() {
		if _, err := db.Exec(statement); err != nil {
			fmt.Println(err)
			return
		}
	}
	fences := lock.NewFences(db, lock.SQLite)
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()
	ctx := context.Background()
	write := func(lease *lock.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fences.Enforce(ctx, tx, lease.Name(), lease.Fence()); err != nil {
			return err
		}
		return tx.Commit() // commits the fence and the work's writes together
	}

	slow, _ := locker.Acquire(ctx, "ledger", lock.Fixed(500*time.Millisecond))
	<-slow.Context().Done() // it is suspended until its lease is over
	hold := lock.Fixed(time.Minute)
	hold.Wait = time.Minute
	next, _ := locker.Acquire(ctx, "ledger", hold)
	fmt.Println("the next:", write(next))
	fmt.Println("the slow one:", write(slow))
	// Output:
	// the next: <nil>
	// the slow one: lock: fenced off by a newer lease
}
