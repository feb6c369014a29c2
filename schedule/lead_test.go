package schedule_test

import (
	"context"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

// leaders starts two instances with the jobs, and returns the one that leads first, and the other.
func (p *place) leaders(jobs ...schedule.Job) (leader, other *instance) {
	p.t.Helper()
	o := schedule.Options{Locks: p.locks, Jobs: jobs, GracePeriod: 50 * time.Millisecond}
	leader = p.start("a", o)
	pass(time.Second)
	other = p.start("b", o)
	return leader, other
}

const (
	// givesUp is how long a leader without its ledger keeps the lead, with the time of a lost poll.
	givesUp = 10*time.Second + 2*linkTimeout + time.Second
	// handsOver is the time from then until another instance runs the leader's jobs.
	handsOver = 6 * time.Second
)

// A leader that alone does not reach the ledger gives up the lead, and another instance runs its jobs, every slot of them.
func TestLeaderWithoutItsLedger(t *testing.T) {
	inEachOutage(t, func(t *testing.T, o outage) {
		bubble(t, func(t *testing.T, p *place) {
			leader, other := p.leaders(schedule.Job{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true})
			pass(5 * time.Second)
			leader.ledger.cut(o)
			pass(givesUp + handsOver + time.Second/2)
			runs := p.ended("led", 15, cronjob.Succeeded)
			mustBeConsecutive(t, runs)
			if behind := time.Since(runs[len(runs)-1].Slot); behind > 2*time.Second {
				t.Errorf("the last slot was %s ago", behind)
			}
			leader.ledger.cut(0)
			pass(20 * time.Second)
			n := len(other.said("INFO", "this instance is elected leader"))
			if n != 1 || len(leader.said("WARN", "gives up the lead")) != 1 {
				t.Errorf("the other was elected %d times; the first said %q", n, leader.said("WARN"))
			}
		})
	})
}

// A leader whose runs of a job never return gives up the lead, and another instance runs the leader's jobs.
func TestStuckLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.overlaps = true
		end := make(chan struct{})
		deaf := func(_ context.Context, run cronjob.Run) (string, error) {
			if run.Owner[0] == 'a' {
				<-end
			}
			return "", nil
		}
		leader, _ := p.leaders(
			schedule.Job{Name: "deaf", When: eachSecond, MaxDelay: aWhile, OnLeader: true, Hold: lock.Renewed(usual.TTL, 100*time.Millisecond), Work: deaf},
			schedule.Job{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true},
		)
		pass(30*time.Second + time.Second/2)
		for _, job := range []string{"deaf", "led"} {
			runs := p.ended(job, 15, cronjob.Succeeded)
			if behind := time.Since(runs[len(runs)-1].Slot); behind > 2*time.Second {
				t.Errorf("the last slot of %s was %s ago", job, behind)
			}
		}
		if n := len(leader.said("WARN", "gives up the lead")); n != 1 {
			t.Errorf("it gave up the lead %d times", n)
		}
		close(end)
	})
}

// An instance that is alone leads again although a job hangs: the leader's other jobs run every slot.
func TestLoneStuckLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, p *place) {
		p.overlaps = true
		end := make(chan struct{})
		p.start("a", schedule.Options{Locks: p.locks, GracePeriod: 50 * time.Millisecond, Jobs: []schedule.Job{
			{
				Name: "deaf", When: eachSecond, MaxDelay: aWhile, OnLeader: true, Hold: lock.Renewed(usual.TTL, 100*time.Millisecond),
				Work: func(context.Context, cronjob.Run) (string, error) { <-end; return "", nil },
			},
			{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true},
		}})
		pass(2*time.Minute + time.Second/2)
		runs := p.ended("led", 90, cronjob.Succeeded)
		mustBeConsecutive(t, runs)
		if behind := time.Since(runs[len(runs)-1].Slot); behind > 15*time.Second {
			t.Errorf("the last slot was %s ago", behind)
		}
		if b := p.state("deaf").Blocked; b == nil {
			t.Error("the job that hangs is not reported")
		}
		close(end)
	})
}
