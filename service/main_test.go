package service

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

// place is a test's own database, with a raw connection to it.
type place struct {
	*repository.Store
	t   testing.TB
	raw *sql.DB
}

func newPlace(t testing.TB) *place {
	t.Helper()
	url := repositorytest.URL(t, "sqlite")
	store := repositorytest.Open(t, url, repository.Options{})
	raw, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite://")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return &place{store, t, raw}
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
	if err := p.AddDrivers(p.t.Context(), rows); err != nil {
		p.t.Fatal(err)
	}
	return ids
}

func anOrder() DispatchRequest {
	starts := time.Now().Add(time.Hour)
	return DispatchRequest{Terms: dispatch.Terms{
		Region: "seoul", VehicleClass: "45m", Site: dispatch.Site{Address: "1 Sejong-daero"},
		WorkStartsAt: starts, WorkEndsAt: starts.Add(time.Hour), Fee: dispatch.Money{Amount: 350000, Currency: "KRW"},
	}}
}

// alone returns the Acceptor of an instance without Redis.
func alone(c ClaimStore) *Acceptor {
	return NewAcceptor(AcceptorOptions{Claims: c, LockTTL: 5 * time.Second, Log: quiet})
}

func (p *place) dispatch() dispatch.ID {
	p.t.Helper()
	d, err := NewBackoffice(p, alone(p)).Create(p.t.Context(), anOrder(), "key_1")
	if err != nil {
		p.t.Fatal(err)
	}
	return d.ID
}

func (p *place) count(from string, args ...any) int {
	p.t.Helper()
	var n int
	if err := p.raw.QueryRowContext(p.t.Context(), "SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *place) holder(id dispatch.ID) dispatch.DriverID {
	p.t.Helper()
	d, err := p.Dispatch(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	if d.Claim == nil {
		return ""
	}
	return d.Claim.Driver
}

// slow lets a test hold claims, fail them, and observe reannouncements.
type slow struct {
	ClaimStore
	entered   chan dispatch.DriverID // receives the driver of each claim that starts, if not nil
	release   chan struct{}          // holds each claim until it is closed, if not nil
	fail      error                  // the error of each claim, if not nil
	claimed   atomic.Int32
	announced chan int // receives the round of each announcement, if not nil
}

func (s *slow) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	s.claimed.Add(1)
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

func (s *slow) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error) {
	announced, err := s.ClaimStore.Reannounce(ctx, id, round, quiet)
	if s.announced != nil {
		s.announced <- round
	}
	return announced, err
}

// row is the Claims of one open dispatch in memory, for tests with a fake clock.
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

func (r *row) Claim(_ context.Context, _ dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.d
	v := dispatch.Driver{ID: driver, Regions: []string{"seoul"}, VehicleClass: "45m", OnDuty: true}
	_, err := rule(&d, dispatch.Candidate{Driver: v}, time.Now())
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
	r.announced = append(r.announced, round)
	return len(r.d.Reannounce(round, time.Now())) > 0, nil
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
