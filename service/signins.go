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
	// maxAddresses is how many addresses have a bucket of their own. One whose bucket is dropped starts with a full one; the
	// bucket of all holds.
	maxAddresses = 4096
	// logInterval is how often the log has a line about failures, and auditEvery how often the audit has entries.
	logInterval   = 2 * time.Second
	auditInterval = time.Minute
	// maxLoggedAddresses and auditedApart are how many addresses a line counts, and how many entries there are a time. What else
	// there is counts as others.
	maxLoggedAddresses  = 1024
	maxAuditedAddresses = 16
	// auditTimeout is what the audit's entries may take.
	auditTimeout = 5 * time.Second
)

// SignIns bounds how often sign-ins may fail at this instance, by address and in all, counts them, and tells the log and the
// audit of those that fail: in sums, so that whoever tries many fills neither. Safe for concurrent use. Run must be running.
type SignIns struct {
	store   SignInStore
	counter SignInCounter
	log     *slog.Logger
	now     func() time.Time
	keys    *addressBuckets
	tokens  *addressBuckets
	logged  *failureSums
	audited *failureSums
}

// NewSignIns returns SignIns that tell store and count, both nil where nobody wants to hear.
func NewSignIns(l SignInLimits, store SignInStore, count SignInCounter, now func() time.Time, log *slog.Logger) *SignIns {
	return &SignIns{
		store: store, counter: count, now: now, log: log,
		keys: newAddressBuckets(l.KeyByAddress, l.KeyInAll), tokens: newAddressBuckets(l.TokenByAddress, l.TokenInAll),
		logged: newFailureSums(maxLoggedAddresses), audited: newFailureSums(maxAuditedAddresses),
	}
}

func (s *SignIns) buckets(d Door) *addressBuckets {
	if d == DoorToken {
		return s.tokens
	}
	return s.keys
}

// Enter takes what a failure at the door costs, before anybody knows how it ends. ok is false where there is nothing left to
// take, and wait how long that lasts.
func (s *SignIns) Enter(d Door, address string) (wait time.Duration, ok bool) {
	return s.buckets(d).reserve(address, s.now())
}

// Back gives back what Enter took: there was no failure.
func (s *SignIns) Back(d Door, address string) { s.buckets(d).refund(address) }

// Done takes note of what came of a sign-in.
func (s *SignIns) Done(d Door, address string, r SignInResult) {
	if s.counter != nil {
		s.counter.CountSignIn(d, r)
	}
	if r == SignInOK {
		return
	}
	s.logged.add(d, address, r)
	if s.store != nil {
		s.audited.add(d, address, r)
	}
}

// Run tells of failures until ctx ends, and then of those that are left.
func (s *SignIns) Run(ctx context.Context) {
	tell, note := time.NewTicker(logInterval), time.NewTicker(auditInterval)
	defer tell.Stop()
	defer note.Stop()
	for {
		select {
		case <-tell.C:
			s.logFailures()
		case <-note.C:
			s.auditFailures(ctx)
		case <-ctx.Done():
			s.logFailures()
			s.auditFailures(context.WithoutCancel(ctx))
			return
		}
	}
}

// logFailures logs what has failed since the last time, in one line.
func (s *SignIns) logFailures() {
	all := s.logged.drain()
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

// auditFailures has the audit keep what has failed since the last time.
func (s *SignIns) auditFailures(ctx context.Context) {
	all := s.audited.drain()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := s.store.NoteRefusals(ctx, all); err != nil {
		s.log.Warn("failed sign-ins are not in the audit, only counted", "addresses", len(all), "error", err)
	}
}

// failureSums are sums of failures by address, so many apart and the rest together.
type failureSums struct {
	limit     int
	mu        sync.Mutex
	byAddress map[string]*dispatch.Refusals
}

// otherAddresses is the sum of all that are not told apart.
const otherAddresses = "others"

func newFailureSums(apart int) *failureSums {
	return &failureSums{limit: apart, byAddress: map[string]*dispatch.Refusals{}}
}

func (r *failureSums) add(d Door, address string, result SignInResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAddress[address] == nil && len(r.byAddress) >= r.limit {
		address = otherAddresses
	}
	sum := r.byAddress[address]
	if sum == nil {
		sum = &dispatch.Refusals{Address: address, Doors: map[string]int{}}
		r.byAddress[address] = sum
	}
	sum.Doors[string(d)]++
	if result == SignInLimited {
		sum.Limited++
	} else {
		sum.Failed++
	}
}

func (r *failureSums) drain() []dispatch.Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]dispatch.Refusals, 0, len(r.byAddress))
	for _, sum := range r.byAddress {
		all = append(all, *sum)
	}
	r.byAddress = map[string]*dispatch.Refusals{}
	return all
}

// addressBuckets are a bucket for each of the addresses seen last, and one for all. rate.Limiter would not do: what is taken from
// it and given back is lost where somebody else has taken something meanwhile.
type addressBuckets struct {
	mu                  sync.Mutex
	perAddress, overall Allowance
	byAddress           *lru.Cache[string, *bucket]
	total               bucket
}

type bucket struct {
	used float64 // of the burst
	at   time.Time
}

func newAddressBuckets(each, in Allowance) *addressBuckets {
	by, err := lru.New[string, *bucket](maxAddresses)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &addressBuckets{perAddress: each, overall: in, byAddress: by}
}

// reserve takes a token of the address and one of all, or none.
func (b *addressBuckets) reserve(address string, now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, known := b.byAddress.Get(address)
	if !known {
		own = &bucket{}
		b.byAddress.Add(address, own)
	}
	wait = max(own.wait(b.perAddress, now), b.total.wait(b.overall, now))
	if wait > 0 {
		return wait, false
	}
	own.used++
	b.total.used++
	return 0, true
}

func (b *addressBuckets) refund(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own, known := b.byAddress.Peek(address); known {
		own.used = max(0, own.used-1)
	}
	b.total.used = max(0, b.total.used-1)
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
