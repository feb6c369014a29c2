package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/limit"
)

// Method is the kind of credentials that a caller signs in with.
type Method string

// The methods.
const (
	BySession Method = "session" // an API key, for a session
	ByKey     Method = "key"     // an API key, or a session, with a request
	ByToken   Method = "token"   // a driver's token with a request
)

// Result is the outcome of a sign-in.
type Result string

// The results.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Limited Result = "limited" // refused without an answer about the credentials, as too many have failed
)

// SignInCounter counts sign-ins. It is called concurrently.
type SignInCounter interface {
	CountSignIn(m Method, r Result)
}

// SignInStore stores the audit of sign-ins.
type SignInStore interface {
	// RecordRefusedSignIns writes audit entries of failed sign-ins.
	RecordRefusedSignIns(ctx context.Context, all []dispatch.RefusedSignIns) error
}

// SignInLimits are how many sign-ins may fail at one instance: the burst at once, and the rate after that.
type SignInLimits struct{ KeyByAddress, KeyTotal, TokenByAddress, TokenTotal limit.Options }

// DefaultSignInLimits returns the default limits: low for keys, which people guess; high for tokens, of which many may fail
// behind one address after the secret was replaced. Keys that are listed, and tokens that are valid or have expired, are not limited:
// failures from the same address do not delay them. A new key may wait for a second.
func DefaultSignInLimits() SignInLimits {
	return SignInLimits{
		KeyByAddress: limit.Options{Rate: 0.2, Burst: 20}, KeyTotal: limit.Options{Rate: 2, Burst: 200},
		TokenByAddress: limit.Options{Rate: 20, Burst: 200}, TokenTotal: limit.Options{Rate: 200, Burst: 2000},
	}
}

const (
	// maxAddresses bounds the addresses with a limit of their own. An evicted address may fail anew, but the total still limits it.
	maxAddresses  = 4096
	logInterval   = 2 * time.Second
	auditInterval = time.Minute
	// maxLoggedAddresses and maxAuditedAddresses bound the addresses in a log line and the audit entries per interval. The
	// rest is summed as otherAddresses.
	maxLoggedAddresses  = 1024
	maxAuditedAddresses = 16
	auditTimeout        = 5 * time.Second
)

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
	o       SignInOptions
	keys    failureLimit
	tokens  failureLimit
	logged  *failureSums
	audited *failureSums
}

// NewSignIns returns SignIns.
func NewSignIns(o SignInOptions) *SignIns {
	l := o.Limits
	return &SignIns{
		o: o, keys: newFailureLimit(l.KeyByAddress, l.KeyTotal), tokens: newFailureLimit(l.TokenByAddress, l.TokenTotal),
		logged: newFailureSums(maxLoggedAddresses), audited: newFailureSums(maxAuditedAddresses),
	}
}

// failureLimit limits the failures of an address, and of all together.
type failureLimit struct{ byAddress, total *limit.Limiter }

// everybody is the caller whose limit is the total.
const everybody = ""

func newFailureLimit(byAddress, total limit.Options) failureLimit {
	byAddress.Callers = maxAddresses
	return failureLimit{limit.New(byAddress), limit.New(total)}
}

func (s *SignIns) limit(m Method) failureLimit {
	if m == ByToken {
		return s.tokens
	}
	return s.keys
}

// Wait returns how long no sign-in from the address may fail, zero if one may.
func (s *SignIns) Wait(m Method, address string) time.Duration {
	l, now := s.limit(m), s.o.Now()
	return max(l.byAddress.Wait(address, now), l.total.Wait(everybody, now))
}

// Fail records a failed sign-in. It returns zero if the caller may be told that the credentials are wrong, or else how long no sign-in from
// the address may fail.
func (s *SignIns) Fail(m Method, address string) time.Duration {
	l, now, ctx := s.limit(m), s.o.Now(), context.Background() // without Redis, the limits wait for nothing
	wait := s.Wait(m, address)
	if wait == 0 {
		wait, _ = l.byAddress.Allow(ctx, address, now)
	}
	if wait == 0 { // an address above its limit takes nothing from the others
		wait, _ = l.total.Allow(ctx, everybody, now)
	}
	result := Failed
	if wait > 0 {
		result = Limited
	}
	s.count(m, result)
	s.logged.add(m, address, result)
	s.audited.add(m, address, result)
	return wait
}

// Succeed counts a sign-in.
func (s *SignIns) Succeed(m Method) { s.count(m, OK) }

func (s *SignIns) count(m Method, r Result) {
	if s.o.Counter != nil {
		s.o.Counter.CountSignIn(m, r)
	}
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
	s.o.Log.Warn("sign-ins failed; sign-ins above the limit are refused without a database query",
		"failed", sum.Failed, "limited", sum.Limited, "addresses", len(all),
		"most_from", most.Address, "its_failed", most.Failed, "its_limited", most.Limited, "its_doors", fmt.Sprint(most.ByMethod))
}

// auditFailures writes audit entries of the failures since the last call.
func (s *SignIns) auditFailures(ctx context.Context) {
	all := s.audited.drain()
	if len(all) == 0 || s.o.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := s.o.Store.RecordRefusedSignIns(ctx, all); err != nil {
		s.o.Log.Warn("failed sign-ins not written to the audit; only the metrics count them", "addresses", len(all), "error", err)
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

func (r *failureSums) add(m Method, address string, result Result) {
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
	sum.ByMethod[string(m)]++
	if result == Limited {
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
