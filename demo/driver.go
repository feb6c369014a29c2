package demo

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

// haste is how soon after the opening a driver taps, and how often they look.
type haste struct{ least, most, look time.Duration }

var (
	ordinary = haste{2 * time.Second, 8 * time.Second, time.Second}
	// patient drivers compete with the visitor, who has to find the button first.
	patient = haste{7 * time.Second, 14 * time.Second, time.Second}
	// macro is no person.
	macro = haste{150 * time.Millisecond, 300 * time.Millisecond, 200 * time.Millisecond}
)

// leastLook keeps a driver who is faster than people within the rate limit.
const leastLook = 100 * time.Millisecond

// demoDriver is a driver who sees, declines and taps like a person, by what the API tells a driver.
type demoDriver struct {
	agenda
	api   demoAPI
	token string
	haste haste
	known map[string]bool // the offers, by round, that they have thought about
}

type demoOffer struct {
	ID      string    `json:"id"`
	Round   int       `json:"round"`
	Status  string    `json:"status"`
	OpensAt time.Time `json:"opens_at"`
}

func (d *demoDriver) post(path string, body any) func(context.Context) error {
	return func(ctx context.Context) error { return d.api.call(ctx, "POST", path, d.token, body, nil) }
}

func (d *demoDriver) begin() {
	d.in(0, d.look)
	d.in(d.between(2*time.Minute, 6*time.Minute), d.rest)
}

// look thinks about each open offer that is new. What is not offered any more is forgotten.
func (d *demoDriver) look(ctx context.Context) error {
	d.at(time.Now().Add(max(d.haste.look/time.Duration(d.pace), leastLook)), d.look)
	var offers struct{ Items []demoOffer }
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
		if !d.known[name] {
			d.consider(o)
		}
	}
	d.known = known
	return nil
}

// consider makes up the driver's mind. Whoever has seen an offer taps when they meant to, also when somebody else has it by
// then: people do not notice that fast.
func (d *demoDriver) consider(o demoOffer) {
	tap := o.OpensAt.Add(d.reaction(o) / time.Duration(d.pace))
	if time.Until(tap) < 0 { // it was opened while they were away
		tap = time.Now().Add(d.between(d.haste.least, d.haste.most) / time.Duration(d.pace))
	}
	path, round := "/v1/dispatches/"+o.ID, map[string]any{"round": o.Round}
	d.at(time.Now().Add(time.Until(tap)/2), d.post(path+"/seen", nil))
	switch mind := d.chance.Float64(); {
	case mind < 0.15:
		d.at(tap, d.post(path+"/decline", map[string]any{"round": o.Round, "reason_code": "TOO_FAR"}))
	case mind < 0.6:
		d.at(tap, func(ctx context.Context) error { return d.accept(ctx, path, round) })
	}
}

// reaction is the driver's own, or for every other offer everybody's: pushes reach all phones at once, and then it is about
// milliseconds.
func (d *demoDriver) reaction(o demoOffer) time.Duration {
	hash := fnv.New32a()
	hash.Write([]byte(o.ID))
	if sum := hash.Sum32(); sum%2 == 0 {
		share := time.Duration(sum/2) % 1000
		return d.haste.least + (d.haste.most-d.haste.least)*share/1000 + time.Duration(d.chance.ExpFloat64()*float64(40*time.Millisecond))
	}
	return d.between(d.haste.least, d.haste.most)
}

// accept taps. Who wins does the work, or gives it back now and then.
func (d *demoDriver) accept(ctx context.Context, path string, round any) error {
	if err := d.api.call(ctx, "POST", path+"/accept", d.token, round, nil); err != nil {
		return err
	}
	if d.chance.IntN(8) == 0 {
		withdraw := d.post(path+"/withdraw", map[string]any{"reason_code": "BREAKDOWN"})
		d.in(d.between(6*time.Second, 20*time.Second), func(ctx context.Context) error {
			err := withdraw(ctx)
			if err != nil {
				d.work(path) // it was too often, and stays theirs
			}
			return err
		})
		return nil
	}
	d.work(path)
	return nil
}

func (d *demoDriver) work(path string) {
	d.in(d.between(15*time.Second, 45*time.Second), d.post(path+"/start", nil))
	d.in(d.between(50*time.Second, 2*time.Minute), d.post(path+"/complete", nil))
}

// rest takes the driver off duty for a while.
func (d *demoDriver) rest(ctx context.Context) error {
	off := d.between(20*time.Second, time.Minute)
	d.in(off, func(ctx context.Context) error { return d.duty(ctx, true) })
	d.in(off+d.between(2*time.Minute, 6*time.Minute), d.rest)
	return d.duty(ctx, false)
}

func (d *demoDriver) duty(ctx context.Context, on bool) error {
	return d.api.call(ctx, "PUT", "/v1/me/duty", d.token, map[string]any{"on_duty": on}, nil)
}
