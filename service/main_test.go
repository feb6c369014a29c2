//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/drivers"
	"firsttap/repository/journal"
	"firsttap/repository/offers"
	"firsttap/repository/repositorytest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

// place is a test's own database, with a raw connection to it.
type place struct {
	*dispatches.Dispatches
	*drivers.Drivers
	*journal.Journal
	*offers.Offers
	db  *database.DB
	t   testing.TB
	raw *sql.DB
}

func newPlace(t testing.TB) *place {
	t.Helper()
	url := repositorytest.URL(t, "sqlite")
	store := repositorytest.Open(t, url, repository.Options{})
	raw, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite://")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	t.Cleanup(func() { raw.Close() })
	return &place{store.Dispatches, store.Drivers, store.Journal, store.Offers, store.DB, t, raw}
}

// drivers adds n drivers who are eligible for the dispatches that dispatch adds, unless change changes that.
func (p *place) drivers(n int, change ...func(*dispatch.Driver)) []dispatch.DriverID {
	p.t.Helper()
	rows, ids := make([]dispatch.Driver, n), make([]dispatch.DriverID, n)
	for i := range rows {
		ids[i] = dispatch.NewDriverID(time.Now())
		rows[i] = dispatch.Driver{
			ID: ids[i], Name: fmt.Sprintf("Driver %d", i), Phone: "+821000000000", Regions: []string{"seoul"},
			VehicleClass: "45m", OnDuty: true, Version: 1,
		}
		for _, c := range change {
			c(&rows[i])
		}
	}
	must(p.t, p.AddDrivers(p.t.Context(), rows, false))
	return ids
}

// Changes of a driver.
func onDuty(on bool) func(*dispatch.Driver) { return func(v *dispatch.Driver) { v.OnDuty = on } }
func suspended(v *dispatch.Driver)          { v.SuspendedUntil = new(time.Now().Add(time.Hour)) }
func elsewhere(v *dispatch.Driver)          { v.Regions = []string{"jeju"} }

func anOrder() DispatchRequest {
	starts := time.Now().Add(time.Hour)
	return DispatchRequest{Terms: dispatch.Terms{
		Region: "seoul", VehicleClass: "45m", Site: dispatch.Site{Address: "1 Sejong-daero"},
		WorkStartsAt: starts, WorkEndsAt: starts.Add(time.Hour), Fee: dispatch.Money{Amount: 350000, Currency: "KRW"},
	}}
}

// instance is one of several processes that share a database: an Acceptor with the use cases on it.
type instance struct {
	*Acceptor
	claims     *intercepted // every claim of the instance passes here
	work       *DriverService
	backoffice *Backoffice
}

// newInstance returns an instance with this gate; nil is an instance without Redis.
func (p *place) newInstance(gate Gate) *instance {
	claims := &intercepted{ClaimStore: p}
	a := NewAcceptor(AcceptorOptions{Claims: claims, Gate: gate, LockTTL: testkit.Patience, Timeout: testkit.Patience, Log: quiet})
	return &instance{a, claims, NewDriverService(DriverServiceOptions{Store: p, Offers: p, Drivers: p, Acceptor: a, Now: time.Now}), NewBackoffice(p, p, a)}
}

// hold starts the tap, whose claim waits at the database until release is called, which returns the answer.
func (i *instance) hold(t testing.TB, tap Tap) (release func() error) {
	t.Helper()
	return i.claims.hold(t, i.Acceptor, tap)
}

// site is a place with one instance, which has no Redis.
type site struct {
	*place
	*instance
}

func newSite(t testing.TB) *site {
	t.Helper()
	p := newPlace(t)
	return &site{p, p.newInstance(nil)}
}

// alone returns the Acceptor of an instance without Redis.
func alone(c ClaimStore) *Acceptor {
	return NewAcceptor(AcceptorOptions{Claims: c, LockTTL: 5 * time.Second, Timeout: testkit.Patience, Log: quiet})
}

// dispatch adds an open dispatch.
func (p *place) dispatch() dispatch.ID {
	p.t.Helper()
	d, err := NewBackoffice(p, p, alone(p)).Create(p.t.Context(), anOrder(), "key_1")
	must(p.t, err)
	return d.ID
}

func (p *place) exec(statement string, args ...any) {
	p.t.Helper()
	must(p.t, errorOf(p.raw.ExecContext(p.t.Context(), statement, args...)))
}

func (p *place) count(from string, args ...any) (n int) {
	p.t.Helper()
	must(p.t, p.raw.QueryRowContext(p.t.Context(), "SELECT COUNT(*) FROM "+from, args...).Scan(&n))
	return n
}

// mustCount fails the test unless n rows match.
func (p *place) mustCount(n int, from string, args ...any) {
	p.t.Helper()
	if got := p.count(from, args...); got != n {
		p.t.Errorf("%d rows of %s %v, want %d", got, from, args, n)
	}
}

// announcedAgain is how many events tell drivers that the dispatch is open after a claim has failed.
func (p *place) announcedAgain(id dispatch.ID) int {
	p.t.Helper()
	return p.count("events WHERE dispatch_id = ? AND type = 'dispatch.opened' AND reason_code = 'CLAIM_FAILED'", id)
}

func (p *place) mustAnnounceAgain(id dispatch.ID, times int) {
	p.t.Helper()
	if n := p.announcedAgain(id); n != times {
		p.t.Errorf("announced again %d times, want %d", n, times)
	}
}

func (p *place) stored(id dispatch.ID) dispatch.Dispatch {
	p.t.Helper()
	d, err := p.Dispatch(p.t.Context(), id)
	must(p.t, err)
	return d
}

func (p *place) holder(id dispatch.ID) dispatch.DriverID {
	p.t.Helper()
	if d := p.stored(id); d.Claim != nil {
		return d.Claim.Driver
	}
	return ""
}

// free lets the dispatch's driver win others at the same hours.
func (p *place) free(id dispatch.ID) {
	p.t.Helper()
	p.exec("UPDATE dispatches SET work_ends_at = work_starts_at WHERE id = ?", id)
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustBe fails the test unless err is want; nil is no error.
func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// mustWin ends the test unless the tap gets a new claim.
func (a *Acceptor) mustWin(t testing.TB, tap Tap) {
	t.Helper()
	if won, err := a.Accept(t.Context(), tap); err != nil || won.Replayed || !won.Dispatch.HeldBy(tap.Driver) {
		t.Fatalf("%+v: got %+v, %v, want a new claim", tap, won, err)
	}
}

// mustReplay fails the test unless the tap gets the claim that its driver has.
func (a *Acceptor) mustReplay(t testing.TB, tap Tap) {
	t.Helper()
	if won, err := a.Accept(t.Context(), tap); err != nil || !won.Replayed || !won.Dispatch.HeldBy(tap.Driver) {
		t.Errorf("%+v: got %+v, %v, want the driver's claim again", tap, won, err)
	}
}

// mustFail fails the test unless the tap gets this error.
func (a *Acceptor) mustFail(t testing.TB, tap Tap, want error) {
	t.Helper()
	if won, err := a.Accept(t.Context(), tap); !errors.Is(err, want) || won.Dispatch.Claim != nil {
		t.Errorf("%+v: got %+v, %v, want %v", tap, won, err, want)
	}
}

// mustRefuse fails the test unless the tap is refused because another driver has the dispatch (final), or may get it.
func (a *Acceptor) mustRefuse(t testing.TB, tap Tap, final bool) {
	t.Helper()
	var taken *dispatch.TakenError
	if _, err := a.Accept(t.Context(), tap); !errors.As(err, &taken) || taken.Final != final {
		t.Errorf("%+v: got %v, want a refusal with final %v", tap, err, final)
	}
}

// start makes the tap in a goroutine.
func (a *Acceptor) start(t testing.TB, tap Tap) (answer <-chan error) {
	c := make(chan error, 1)
	go func() { c <- errorOf(a.Accept(t.Context(), tap)) }()
	return c
}

// hold starts the tap, and returns when its claim is at the database, where it waits for release.
func (s *intercepted) hold(t testing.TB, a *Acceptor, tap Tap) (release func() error) {
	t.Helper()
	entered, held := make(chan dispatch.DriverID, 10), make(chan struct{})
	s.entered, s.release = entered, held
	answer := a.start(t, tap)
	testkit.Await(t, "the claim", entered)
	return func() error {
		close(held)
		return testkit.Await(t, "the answer", answer)
	}
}

// intercepted lets a test hold claims, fail them, act meanwhile, and observe reannouncements.
type intercepted struct {
	ClaimStore
	before    func(context.Context, dispatch.DriverID) // runs before the database gets a claim, if not nil
	entered   chan dispatch.DriverID                   // receives the driver of each claim that starts, if not nil
	release   chan struct{}                            // holds each claim until it is closed, if not nil
	fail      error                                    // the error of each claim, if not nil
	claimed   atomic.Int32
	announced chan int // receives the round of each announcement, if not nil
}

func (s *intercepted) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	s.claimed.Add(1)
	if s.before != nil {
		s.before(ctx, driver)
	}
	if s.entered != nil {
		s.entered <- driver
	}
	if s.release != nil {
		<-s.release
	}
	if s.fail != nil {
		return dispatch.Dispatch{}, s.fail
	}
	return s.ClaimStore.Claim(ctx, id, driver, rule)
}

func (s *intercepted) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error) {
	announced, err := s.ClaimStore.Reannounce(ctx, id, round, quiet)
	if s.announced != nil {
		s.announced <- round
	}
	return announced, err
}

// row is the ClaimStore of one open dispatch in memory, for tests with a fake clock.
type row struct {
	mu        sync.Mutex
	d         dispatch.Dispatch
	announced []int // the rounds
	away      int   // how many announcements are still to fail
}

func newRow() *row {
	now := time.Now()
	d, _ := dispatch.New(dispatch.NewID(now), "", anOrder().Terms,
		dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}, "key_1", now)
	return &row{d: d}
}

// inBubble runs the test in a bubble, with a row and an Acceptor whose claims are intercepted.
func inBubble(t *testing.T, test func(*testing.T, *row, *intercepted, *Acceptor)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		r := newRow()
		claims := &intercepted{ClaimStore: r}
		test(t, r, claims, alone(claims))
	})
}

// opens puts the opening off until wait from now.
func (r *row) opens(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.d.OpensAt = time.Now().Add(wait)
}

// isAway fails the next so many announcements.
func (r *row) isAway(times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = times
}

func (r *row) mustAnnounce(t testing.TB, rounds ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.announced, rounds) {
		t.Errorf("announced in rounds %v, want %v", r.announced, rounds)
	}
}

func (r *row) Claim(_ context.Context, _ dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	d := r.d.At(r.d.Status, now)
	v := dispatch.Driver{ID: driver, Regions: []string{"seoul"}, VehicleClass: "45m", OnDuty: true}
	_, err := rule(&d, dispatch.Candidate{Driver: v}, now)
	if err == nil {
		r.d = d
	}
	return d, err
}

func (r *row) Reannounce(_ context.Context, _ dispatch.ID, round int, _ time.Duration) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away > 0 {
		r.away--
		return false, dispatch.ErrUnavailable
	}
	now := time.Now()
	d := r.d.At(r.d.Status, now)
	events, err := d.Reannounce(round, now)
	if err == nil {
		r.announced = append(r.announced, round)
	}
	return len(events) > 0, err
}

func (r *row) Holders(context.Context, []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := dispatch.CurrentHolder{Status: r.d.Status, Round: r.d.Round}
	if r.d.Claim != nil {
		h.Driver = r.d.Claim.Driver
	}
	return map[dispatch.ID]dispatch.CurrentHolder{r.d.ID: h}, nil
}

// pass advances the bubble's clock by d, and waits until all goroutines in it are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
