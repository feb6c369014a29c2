package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

// Door is where somebody shows who they are.
type Door string

// The doors.
const (
	DoorSession Door = "session" // an API key, for a session
	DoorKey     Door = "key"     // an API key, or a session, with a request
	DoorToken   Door = "token"   // a driver's token with a request
)

// SignInResult is what came of it.
type SignInResult string

// The results.
const (
	SignInOK      SignInResult = "ok"
	SignInFailed  SignInResult = "failed"
	SignInLimited SignInResult = "limited" // not looked at, or not told how it is: too many have failed
)

// SignInCounter counts sign-ins. It is called by many at once.
type SignInCounter interface {
	CountSignIn(d Door, r SignInResult)
}

// SignInStore keeps what is to be known of sign-ins.
type SignInStore interface {
	// NoteRefusals writes down sign-ins that failed.
	NoteRefusals(ctx context.Context, all []dispatch.Refusals) error
}

// ErrTooManyFailures says that so many have failed that a stranger is not even looked at.
var ErrTooManyFailures = errors.New("too many have failed to sign in")

// Allowance is how often strangers may fail: Burst at once, and Rate a second from then on.
type Allowance struct{ Rate, Burst float64 }

// SignInLimits are what strangers may do at one instance, by the address that they come from and in all.
type SignInLimits struct{ KeyByAddress, KeyInAll, TokenByAddress, TokenInAll Allowance }

// UsualSignInLimits are for keys that people guess, and for tokens of which many may fail at once behind one address, where
// the secret was replaced. A key that is in force is no stranger's, nor is a token that is good or was until its time was
// over: whatever others do from the same address, behind the same proxy, holds up neither.
func UsualSignInLimits() SignInLimits {
	return SignInLimits{
		KeyByAddress: Allowance{Rate: 0.2, Burst: 20}, KeyInAll: Allowance{Rate: 2, Burst: 200},
		TokenByAddress: Allowance{Rate: 20, Burst: 200}, TokenInAll: Allowance{Rate: 200, Burst: 2000},
	}
}

const (
	// strangers is how many addresses have a bucket of their own. One whose bucket is dropped starts with a full one; the
	// bucket of all holds.
	strangers = 4096
	// tellEvery is how often the log has a line about failures, and auditEvery how often the audit has entries.
	tellEvery  = 2 * time.Second
	auditEvery = time.Minute
	// toldApart and auditedApart are how many addresses a line counts, and how many entries there are a time. What else
	// there is counts as others.
	toldApart    = 1024
	auditedApart = 16
	// noteTime is what the audit's entries may take.
	noteTime = 5 * time.Second
)

// SignIns bounds how often sign-ins may fail at this instance, by address and in all, counts them, and tells the log and the
// audit of those that fail: in sums, so that whoever tries many fills neither. Safe for concurrent use. Run must be running.
type SignIns struct {
	store  SignInStore
	count  SignInCounter
	log    *slog.Logger
	now    func() time.Time
	keys   *bucketsOf
	tokens *bucketsOf
	told   *refusals
	noted  *refusals
}

// NewSignIns returns SignIns that tell store and count, both nil where nobody wants to hear.
func NewSignIns(l SignInLimits, store SignInStore, count SignInCounter, now func() time.Time, log *slog.Logger) *SignIns {
	return &SignIns{
		store: store, count: count, now: now, log: log,
		keys: newBuckets(l.KeyByAddress, l.KeyInAll), tokens: newBuckets(l.TokenByAddress, l.TokenInAll),
		told: newRefusals(toldApart), noted: newRefusals(auditedApart),
	}
}

func (s *SignIns) at(d Door) *bucketsOf {
	if d == DoorToken {
		return s.tokens
	}
	return s.keys
}

// Enter takes what a failure at the door costs, before anybody knows how it ends. ok is false where there is nothing left to
// take, and wait how long that lasts.
func (s *SignIns) Enter(d Door, address string) (wait time.Duration, ok bool) {
	return s.at(d).take(address, s.now())
}

// Back gives back what Enter took: there was no failure.
func (s *SignIns) Back(d Door, address string) { s.at(d).back(address) }

// Done takes note of what came of a sign-in.
func (s *SignIns) Done(d Door, address string, r SignInResult) {
	if s.count != nil {
		s.count.CountSignIn(d, r)
	}
	if r == SignInOK {
		return
	}
	s.told.add(d, address, r)
	if s.store != nil {
		s.noted.add(d, address, r)
	}
}

// Run tells of failures until ctx ends, and then of those that are left.
func (s *SignIns) Run(ctx context.Context) {
	tell, note := time.NewTicker(tellEvery), time.NewTicker(auditEvery)
	defer tell.Stop()
	defer note.Stop()
	for {
		select {
		case <-tell.C:
			s.tell()
		case <-note.C:
			s.note(ctx)
		case <-ctx.Done():
			s.tell()
			s.note(context.WithoutCancel(ctx))
			return
		}
	}
}

// tell logs what has failed since the last time, in one line.
func (s *SignIns) tell() {
	all := s.told.take()
	if len(all) == 0 {
		return
	}
	sum, most := dispatch.Refusals{}, all[0]
	for _, r := range all {
		sum.Failed, sum.Limited = sum.Failed+r.Failed, sum.Limited+r.Limited
		if r.Failed+r.Limited > most.Failed+most.Limited {
			most = r
		}
	}
	s.log.Warn("sign-ins have failed; at the limit they are refused without a look at the database",
		"failed", sum.Failed, "limited", sum.Limited, "addresses", len(all),
		"most_from", most.Address, "its_failed", most.Failed, "its_limited", most.Limited, "its_doors", fmt.Sprint(most.Doors))
}

// note has the audit keep what has failed since the last time.
func (s *SignIns) note(ctx context.Context) {
	all := s.noted.take()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if err := s.store.NoteRefusals(ctx, all); err != nil {
		s.log.Warn("failed sign-ins are not in the audit, only counted", "addresses", len(all), "error", err)
	}
}

// refusals are sums of failures by address, so many apart and the rest together.
type refusals struct {
	apart int
	mu    sync.Mutex
	of    map[string]*dispatch.Refusals
}

// otherAddresses is the sum of all that are not told apart.
const otherAddresses = "others"

func newRefusals(apart int) *refusals {
	return &refusals{apart: apart, of: map[string]*dispatch.Refusals{}}
}

func (r *refusals) add(d Door, address string, result SignInResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[address] == nil && len(r.of) >= r.apart {
		address = otherAddresses
	}
	sum := r.of[address]
	if sum == nil {
		sum = &dispatch.Refusals{Address: address, Doors: map[string]int{}}
		r.of[address] = sum
	}
	sum.Doors[string(d)]++
	if result == SignInLimited {
		sum.Limited++
	} else {
		sum.Failed++
	}
}

func (r *refusals) take() []dispatch.Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]dispatch.Refusals, 0, len(r.of))
	for _, sum := range r.of {
		all = append(all, *sum)
	}
	r.of = map[string]*dispatch.Refusals{}
	return all
}

// bucketsOf are a bucket for each of the addresses seen last, and one for all. rate.Limiter would not do: what is taken from
// it and given back is lost where somebody else has taken something meanwhile.
type bucketsOf struct {
	mu       sync.Mutex
	each, in Allowance
	by       *lru.Cache[string, *bucket]
	all      bucket
}

type bucket struct {
	used float64 // of the burst
	at   time.Time
}

func newBuckets(each, in Allowance) *bucketsOf {
	by, err := lru.New[string, *bucket](strangers)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &bucketsOf{each: each, in: in, by: by}
}

// take takes a token of the address and one of all, or none.
func (b *bucketsOf) take(address string, now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, known := b.by.Get(address)
	if !known {
		own = &bucket{}
		b.by.Add(address, own)
	}
	wait = max(own.wait(b.each, now), b.all.wait(b.in, now))
	if wait > 0 {
		return wait, false
	}
	own.used++
	b.all.used++
	return 0, true
}

func (b *bucketsOf) back(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own, known := b.by.Peek(address); known {
		own.used = max(0, own.used-1)
	}
	b.all.used = max(0, b.all.used-1)
}

// wait lets the bucket fill up to now, and returns how long it has no token.
func (b *bucket) wait(a Allowance, now time.Time) time.Duration {
	if now.After(b.at) {
		b.used = max(0, b.used-now.Sub(b.at).Seconds()*a.Rate)
		b.at = now
	}
	if lacks := b.used + 1 - a.Burst; lacks > 0 {
		return time.Duration(lacks / a.Rate * float64(time.Second))
	}
	return 0
}
