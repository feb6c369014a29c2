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

// AuthMethod is the kind of credentials that a caller signs in with.
type AuthMethod string

// The methods.
const (
	AuthSession AuthMethod = "session" // an API key, for a session
	AuthKey     AuthMethod = "key"     // an API key, or a session, with a request
	AuthToken   AuthMethod = "token"   // a driver's token with a request
)

// SignInResult is the outcome of a sign-in.
type SignInResult string

// The results.
const (
	SignInOK      SignInResult = "ok"
	SignInFailed  SignInResult = "failed"
	SignInLimited SignInResult = "limited" // refused without an answer about the credentials, as too many have failed
)

// SignInCounter counts sign-ins. It is called concurrently.
type SignInCounter interface {
	CountSignIn(d AuthMethod, r SignInResult)
}

// SignInStore stores the audit of sign-ins.
type SignInStore interface {
	// RecordRefusedSignIns writes audit entries of failed sign-ins.
	RecordRefusedSignIns(ctx context.Context, all []dispatch.RefusedSignIns) error
}

// ErrTooManyFailures says that unknown credentials are not checked, as too many sign-ins have failed.
var ErrTooManyFailures = errors.New("too many sign-ins have failed")

// FailureLimit is how many sign-ins may fail: Burst at once, and Rate per second after that.
type FailureLimit struct{ Rate, Burst float64 }

// SignInLimits limits the failures at one instance, per address and in total.
type SignInLimits struct{ KeyByAddress, KeyTotal, TokenByAddress, TokenTotal FailureLimit }

// DefaultSignInLimits returns the default limits: low for keys, which people guess; high for tokens, of which many may fail
// behind one address after the secret was replaced. Valid keys, and tokens that are valid or have expired, are not limited:
// failures from the same address do not delay them.
func DefaultSignInLimits() SignInLimits {
	return SignInLimits{
		KeyByAddress: FailureLimit{Rate: 0.2, Burst: 20}, KeyTotal: FailureLimit{Rate: 2, Burst: 200},
		TokenByAddress: FailureLimit{Rate: 20, Burst: 200}, TokenTotal: FailureLimit{Rate: 200, Burst: 2000},
	}
}

const (
	// maxAddresses bounds the addresses with a bucket of their own. An evicted address starts again with a full bucket, but
	// the total still limits it.
	maxAddresses  = 4096
	logInterval   = 2 * time.Second
	auditInterval = time.Minute
	// maxLoggedAddresses and maxAuditedAddresses bound the addresses in a log line and the audit entries per interval. The
	// rest is summed as otherAddresses.
	maxLoggedAddresses  = 1024
	maxAuditedAddresses = 16
	auditTimeout        = 5 * time.Second
)

// noSignInCounter is the SignInCounter of SignIns without one.
type noSignInCounter struct{}

func (noSignInCounter) CountSignIn(AuthMethod, SignInResult) {}

// noSignInStore is the SignInStore of SignIns without an audit.
type noSignInStore struct{}

func (noSignInStore) RecordRefusedSignIns(context.Context, []dispatch.RefusedSignIns) error {
	return nil
}

// SignInOptions configures SignIns. Limits, Now and Log are required.
type SignInOptions struct {
	Limits SignInLimits
	// Store keeps the audit of failures; nil for none.
	Store SignInStore
	// Counter counts sign-ins; nil for none.
	Counter SignInCounter
	Now     func() time.Time
	Log     *slog.Logger
}

// SignIns limits how many sign-ins may fail at this instance, per address and in total, and counts all. Failures go to the
// log and the audit as sums, so that an attack fills neither. Safe for concurrent use. Run must be running.
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

// NewSignIns returns SignIns.
func NewSignIns(o SignInOptions) *SignIns {
	if o.Store == nil {
		o.Store = noSignInStore{}
	}
	if o.Counter == nil {
		o.Counter = noSignInCounter{}
	}
	l := o.Limits
	return &SignIns{
		store: o.Store, counter: o.Counter, now: o.Now, log: o.Log,
		keys: newAddressBuckets(l.KeyByAddress, l.KeyTotal), tokens: newAddressBuckets(l.TokenByAddress, l.TokenTotal),
		logged: newFailureSums(maxLoggedAddresses), audited: newFailureSums(maxAuditedAddresses),
	}
}

func (s *SignIns) buckets(d AuthMethod) *addressBuckets {
	if d == AuthToken {
		return s.tokens
	}
	return s.keys
}

// Reserve reserves a failure before the credentials are checked. It reports false where none is left, and how long to wait.
func (s *SignIns) Reserve(d AuthMethod, address string) (wait time.Duration, ok bool) {
	return s.buckets(d).reserve(address, s.now())
}

// Refund returns the reservation of a sign-in that did not fail.
func (s *SignIns) Refund(d AuthMethod, address string) { s.buckets(d).refund(address) }

// Record records the outcome of a sign-in.
func (s *SignIns) Record(d AuthMethod, address string, r SignInResult) {
	s.counter.CountSignIn(d, r)
	if r == SignInOK {
		return
	}
	s.logged.add(d, address, r)
	s.audited.add(d, address, r)
}

// Run logs and audits failures until ctx ends, and then those that are left.
func (s *SignIns) Run(ctx context.Context) {
	logging, auditing := time.NewTicker(logInterval), time.NewTicker(auditInterval)
	defer logging.Stop()
	defer auditing.Stop()
	for {
		select {
		case <-logging.C:
			s.logFailures()
		case <-auditing.C:
			s.auditFailures(ctx)
		case <-ctx.Done():
			s.logFailures()
			s.auditFailures(context.WithoutCancel(ctx))
			return
		}
	}
}

// logFailures logs the failures since the last call, in one line.
func (s *SignIns) logFailures() {
	all := s.logged.drain()
	if len(all) == 0 {
		return
	}
	sum, most := dispatch.RefusedSignIns{}, all[0]
	for _, r := range all {
		sum.Failed, sum.Limited = sum.Failed+r.Failed, sum.Limited+r.Limited
		if r.Failed+r.Limited > most.Failed+most.Limited {
			most = r
		}
	}
	s.log.Warn("sign-ins failed; sign-ins above the limit are refused without a database query",
		"failed", sum.Failed, "limited", sum.Limited, "addresses", len(all),
		"most_from", most.Address, "its_failed", most.Failed, "its_limited", most.Limited, "its_doors", fmt.Sprint(most.ByMethod))
}

// auditFailures writes audit entries of the failures since the last call.
func (s *SignIns) auditFailures(ctx context.Context) {
	all := s.audited.drain()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := s.store.RecordRefusedSignIns(ctx, all); err != nil {
		s.log.Warn("failed sign-ins not written to the audit; only the metrics count them", "addresses", len(all), "error", err)
	}
}

// failureSums sums failures by address, up to limit addresses and the rest together.
type failureSums struct {
	limit     int
	mu        sync.Mutex
	byAddress map[string]*dispatch.RefusedSignIns
}

// otherAddresses stands for all addresses beyond the limit.
const otherAddresses = "others"

func newFailureSums(limit int) *failureSums {
	return &failureSums{limit: limit, byAddress: map[string]*dispatch.RefusedSignIns{}}
}

func (r *failureSums) add(d AuthMethod, address string, result SignInResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAddress[address] == nil && len(r.byAddress) >= r.limit {
		address = otherAddresses
	}
	sum := r.byAddress[address]
	if sum == nil {
		sum = &dispatch.RefusedSignIns{Address: address, ByMethod: map[string]int{}}
		r.byAddress[address] = sum
	}
	sum.ByMethod[string(d)]++
	if result == SignInLimited {
		sum.Limited++
	} else {
		sum.Failed++
	}
}

func (r *failureSums) drain() []dispatch.RefusedSignIns {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]dispatch.RefusedSignIns, 0, len(r.byAddress))
	for _, sum := range r.byAddress {
		all = append(all, *sum)
	}
	r.byAddress = map[string]*dispatch.RefusedSignIns{}
	return all
}

// addressBuckets has a token bucket for each recent address, and one for all. rate.Limiter would not do: it does not restore
// a canceled reservation if a later one was made meanwhile.
type addressBuckets struct {
	mu                  sync.Mutex
	perAddress, overall FailureLimit
	byAddress           *lru.Cache[string, *bucket]
	total               bucket
}

type bucket struct {
	used float64 // of the burst
	at   time.Time
}

func newAddressBuckets(perAddress, overall FailureLimit) *addressBuckets {
	by, err := lru.New[string, *bucket](maxAddresses)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &addressBuckets{perAddress: perAddress, overall: overall, byAddress: by}
}

// reserve takes a token from the address's bucket and from the total's, or from neither.
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

// wait refills the bucket up to now, and returns how long it has no token.
func (b *bucket) wait(a FailureLimit, now time.Time) time.Duration {
	if now.After(b.at) {
		b.used = max(0, b.used-now.Sub(b.at).Seconds()*a.Rate)
		b.at = now
	}
	if lacks := b.used + 1 - a.Burst; lacks > 0 {
		return time.Duration(lacks / a.Rate * float64(time.Second))
	}
	return 0
}
