package schedule_test

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
	"firsttap/schedule"
)

const (
	// givesUp is how long a leader without its ledger keeps the lead, with the time of a lost poll.
	givesUp = 10*time.Second + 2*linkTimeout + time.Second
	// handsOver is the time from then until another instance runs the leader's jobs.
	handsOver = 6 * time.Second
)

// A leader that alone does not reach the ledger gives up the lead, and another instance runs its jobs, every slot of them.
func TestLeaderWithoutItsLedger(t *testing.T) {
	inEachOutage(t, func(t *testing.T, how outage) {
		bubble(t, func(t *testing.T, p *place) {
			o := schedule.Options{Locks: p.locks, Jobs: []schedule.Job{{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true}}}
			leader := p.start("a", o)
			pass(time.Second)
			other := p.start("b", o)
			pass(5 * time.Second)
			leader.ledger.cut(how)
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

// A leader whose runs of a job never return gives up the lead within a minute, and another instance runs the leader's jobs. One that is alone
// leads again, and runs every slot of the other jobs.
func TestStuckLeader(t *testing.T) {
	for name, alone := range map[string]bool{"beside another": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *place) {
				deaf := p.deaf()
				o := schedule.Options{Locks: p.locks, GracePeriod: 50 * time.Millisecond, Jobs: []schedule.Job{
					{
						Name: "deaf", When: eachSecond, MaxDelay: aWhile, OnLeader: true, Hold: lock.Renewed(usual.TTL, 100*time.Millisecond),
						Work: func(ctx context.Context, run cronjob.Run) (string, error) {
							if by(run.Owner) == "a" {
								return deaf(ctx, run)
							}
							return done(ctx, run)
						},
					},
					{Name: "led", When: eachSecond, MaxDelay: aWhile, OnLeader: true},
				}}
				leader := p.start("a", o)
				pass(time.Second)
				if !alone {
					p.start("b", o)
				}
				pass(2*time.Minute + time.Second/2)
				runs := p.ended("led", 90, cronjob.Succeeded)
				mustBeConsecutive(t, runs)
				if behind := time.Since(runs[len(runs)-1].Slot); behind > 15*time.Second {
					t.Errorf("the last slot was %s ago", behind)
				}
				gaveUp, blocked := len(leader.said("WARN", "gives up the lead")), p.state("deaf").Blocked != nil
				if alone && !blocked || !alone && (gaveUp != 1 || len(having(p.runs("deaf"), cronjob.Succeeded)) < 90) {
					t.Errorf("it gave up the lead %d times; the job that hangs is reported: %t; its runs are %+v", gaveUp, blocked, p.runs("deaf"))
				}
			})
		})
	}
}
