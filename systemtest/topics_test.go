package systemtest

import (
	"fmt"
	"testing"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/repositorytest"
)

// largeAudience is the number of devices from which docs/outbox.md promises a topic.
const largeAudience = 500

// TestTopicFrom500Drivers with the usual settings: the end of an offer to 500 drivers is one message to a topic, that of an offer to
// 499 is one to each device. Either way each phone gets the offer in a message of its own, and each loser gets the end.
func TestTopicFrom500Drivers(t *testing.T) {
	t.Parallel()
	f := startPhones(t)
	f.addUpTo(largeAudience - 1)
	few := f.offerAndEnd(f.drivers[0])
	if want := (ends{Single: largeAudience - 1 - devicesEach}); few != want || f.fcm.TopicCalls() != 0 || f.db.Count("topics") != 0 {
		t.Errorf("the end of an offer to %d devices is %+v, want %+v; %d calls of topics", f.devices, few, want, f.fcm.TopicCalls())
	}
	f.drivers = append(f.drivers, MakeDrivers(t, f.i, 1)...)
	f.addUpTo(largeAudience)
	if many, want := f.offerAndEnd(f.drivers[1]), (ends{Topic: 1}); many != want {
		t.Errorf("the end of an offer to %d devices is %+v, want %+v", f.devices, many, want)
	}
}

const devicesEach = 1 // of a driver

// manyPhones are drivers with many devices each, and an instance that pushes to them.
type manyPhones struct {
	*pushing
	i       *Instance
	drivers []Driver
	devices int // of the drivers, so far
}

func startPhones(t *testing.T) *manyPhones {
	t.Helper()
	p := startPushing(t, repositorytest.URL(t, servertest.SQLite))
	i := p.start("demo")
	return &manyPhones{pushing: p, i: i, drivers: MakeDrivers(t, i, (largeAudience-1)/devicesEach)}
}

func (p *manyPhones) driverOf(device int) Driver { return p.drivers[device/devicesEach] }

func (p *manyPhones) tokenOf(device int) string { return fmt.Sprintf("token-%d", device) }

// addUpTo registers devices until there are n.
func (p *manyPhones) addUpTo(n int) {
	p.t.Helper()
	const atOnce = 16
	testkit.Together(atOnce, func(part int) {
		for k := p.devices + part; k < n; k += atOnce {
			a := send("PUT", fmt.Sprintf("%s/v1/me/devices/app-%d", p.i.URL, k%devicesEach), p.driverOf(k).Token,
				fmt.Sprintf(`{"platform":"android","push_token":%q}`, p.tokenOf(k)))
			if a.status != 200 {
				p.t.Error(a)
			}
		}
	})
	p.devices = n
}

// settle waits until every push is recorded as sent, and every topic has its members.
func (p *manyPhones) settle() {
	p.t.Helper()
	testkit.Within(p.t, 3*leaseTakeover, "nothing is left to push", func() bool {
		return p.db.nothingToPush() && p.db.Count("topics WHERE state=0") == 0
	})
}

// ends counts the messages that end an offer.
type ends struct{ Topic, Single int }

// offerAndEnd makes a dispatch, which winner accepts when all devices have its offer, each in a message of its own, and all
// subscriptions have been made. It returns how the end was sent, and checks that it reached every device of the losers once.
func (p *manyPhones) offerAndEnd(winner Driver) (sent ends) {
	p.t.Helper()
	id := MakeDispatch(p.t, p.i)
	p.settle()
	if n := p.count(id, "dispatch.opened"); n != (ends{Single: p.devices}) {
		p.t.Errorf("the offer to %d devices is %+v", p.devices, n)
	}
	mustWin(p.t, p.i, id, winner, 1)
	p.settle()
	for k := range p.devices {
		if n := p.silent(p.tokenOf(k), id, "dispatch.taken"); (n < 1 || n > 1+p.db.unanswered()) && p.driverOf(k) != winner {
			p.t.Errorf("a loser's device was told %d times that the dispatch is taken", n)
		}
	}
	return p.count(id, "dispatch.taken")
}

// count returns how many messages of that type FCM has accepted. One that it has accepted again, because its answer was late, counts once.
func (p *manyPhones) count(id, messageType string) (n ends) {
	p.t.Helper()
	counted := map[[2]string]bool{} // by topic and token
	for _, r := range p.fcm.Sends() {
		to := [2]string{r.Topic, r.Token}
		if !r.Accepted || r.Data["dispatch_id"] != id || r.Data["type"] != messageType || counted[to] {
			continue
		}
		counted[to] = true
		switch r.Topic {
		case "":
			n.Single++
		case outbox.TopicOf(dispatch.ID(id)):
			n.Topic++
		default:
			p.t.Errorf("a message to the topic %q", r.Topic)
		}
	}
	return n
}
