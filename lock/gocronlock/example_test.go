package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
	"firsttap/lock/gocronlock"
)

func Example() {
	locker := lock.New(lock.NewMemory(), lock.Options{})
	defer locker.Close()
	// Renewed while the job runs, for ten minutes at most; taken for 20 s, for the sake of clocks that are late.
	hold := lock.Renewed(30*time.Second, 10*time.Minute)
	hold.AtLeast = 20 * time.Second
	locks := gocronlock.NewLocker(locker, hold, nil)

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locks))
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	report := func(ctx context.Context) error {
		defer close(done)
		fmt.Println("alone:", ctx.Err() == nil && lock.FromContext(ctx).Fence() > 0)
		return nil
	}
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(locks.Bind("report", report)), gocron.WithName("report"))
	if err != nil {
		fmt.Println(err)
	}
	scheduler.Start()
	<-done
	fmt.Println("shutdown:", scheduler.Shutdown())
	// Output:
	// alone: true
	// shutdown: <nil>
}
