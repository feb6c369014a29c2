package demo

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

// reactionTime is how soon after an offer opens a driver taps, and how often the driver polls.
type reactionTime struct{ min, max, poll time.Duration }

var (
	ordinary = reactionTime{2 * time.Second, 8 * time.Second, time.Second}
	// patient drivers compete with the visitor, who must find the button first.
	patient = reactionTime{7 * time.Second, 14 * time.Second, time.Second}
	// bot is a tap macro.
	bot = reactionTime{150 * time.Millisecond, 300 * time.Millisecond, 200 * time.Millisecond}
)

// minPoll keeps a fast driver within the rate limit.
const minPoll = 100 * time.Millisecond

// driver sees, declines and accepts offers through the API, like a person.
type driver struct {
	timetable
	api      apiClient
	token    string
	reaction reactionTime
	seen     map[string]bool // offers, by id and round, that the driver has decided about
}

type offer struct {
	ID      string    `json:"id"`
	Round   int       `json:"round"`
	Status  string    `json:"status"`
	OpensAt time.Time `json:"opens_at"`
}

func (d *driver) post(path string, body any) func(context.Context) error {
	return func(ctx context.Context) error { return d.api.call(ctx, "POST", path, d.token, body, nil) }
}

func (d *driver) begin() {
	d.after(0, d.poll)
	d.after(d.between(2*time.Minute, 6*time.Minute), d.rest)
}

// poll decides about each open offer that is new, and forgets the others.
func (d *driver) poll(ctx context.Context) error {
	d.add(time.Now().Add(max(d.reaction.poll/time.Duration(d.pace), minPoll)), d.poll)
	var offers struct{ Items []offer }
	if err := d.api.call(ctx, "GET", "/v1/me/offers?limit=20", d.token, nil, &offers); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, o := range offers.Items {
		if o.Status != "PENDING" {
			continue
		}
		name := fmt.Sprintf("%s %d", o.ID, o.Round)
		known[name] = true
		if !d.seen[name] {
			d.decide(o)
		}
	}
	d.seen = known
	return nil
}

// decide schedules the driver's reaction to an offer. The tap is sent even if another driver has won by then: people do not
// notice that fast.
func (d *driver) decide(o offer) {
	tap := o.OpensAt.Add(d.delay(o) / time.Duration(d.pace))
	if time.Until(tap) < 0 { // it opened while the driver was off duty
		tap = time.Now().Add(d.between(d.reaction.min, d.reaction.max) / time.Duration(d.pace))
	}
	path, round := "/v1/dispatches/"+o.ID, map[string]any{"round": o.Round}
	d.add(time.Now().Add(time.Until(tap)/2), d.post(path+"/seen", nil))
	switch mind := d.random.Float64(); {
	case mind < 0.15:
		d.add(tap, d.post(path+"/decline", map[string]any{"round": o.Round, "reason_code": "TOO_FAR"}))
	case mind < 0.6:
		d.add(tap, func(ctx context.Context) error { return d.accept(ctx, path, round) })
	}
}

// delay returns how long after the opening the driver taps. For every second offer it is nearly the same for all drivers, so
// that milliseconds decide.
func (d *driver) delay(o offer) time.Duration {
	hash := fnv.New32a()
	hash.Write([]byte(o.ID))
	if sum := hash.Sum32(); sum%2 == 0 {
		share := time.Duration(sum/2) % 1000
		return d.reaction.min + (d.reaction.max-d.reaction.min)*share/1000 +
			time.Duration(d.random.ExpFloat64()*float64(40*time.Millisecond))
	}
	return d.between(d.reaction.min, d.reaction.max)
}

// accept taps. A winner does the work, or sometimes withdraws.
func (d *driver) accept(ctx context.Context, path string, round any) error {
	if err := d.api.call(ctx, "POST", path+"/accept", d.token, round, nil); err != nil {
		return err
	}
	if d.random.IntN(8) == 0 {
		withdraw := d.post(path+"/withdraw", map[string]any{"reason_code": "BREAKDOWN"})
		d.after(d.between(6*time.Second, 20*time.Second), func(ctx context.Context) error {
			err := withdraw(ctx)
			if err != nil {
				d.work(path) // too many withdrawals: the driver keeps the job
			}
			return err
		})
		return nil
	}
	d.work(path)
	return nil
}

func (d *driver) work(path string) {
	d.after(d.between(15*time.Second, 45*time.Second), d.post(path+"/start", nil))
	d.after(d.between(50*time.Second, 2*time.Minute), d.post(path+"/complete", nil))
}

// rest takes the driver off duty for a while.
func (d *driver) rest(ctx context.Context) error {
	off := d.between(20*time.Second, time.Minute)
	d.after(off, func(ctx context.Context) error { return d.duty(ctx, true) })
	d.after(off+d.between(2*time.Minute, 6*time.Minute), d.rest)
	return d.duty(ctx, false)
}

func (d *driver) duty(ctx context.Context, on bool) error {
	return d.api.call(ctx, "PUT", "/v1/me/duty", d.token, map[string]any{"on_duty": on}, nil)
}
