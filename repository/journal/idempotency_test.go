package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/idempotency"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

var someRequest = idempotency.Request{Caller: "key_1", Name: strings.Repeat("a", 64), Fingerprint: strings.Repeat("b", 64)}

func TestReserve(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		var first idempotency.Reservation
		MustWinOnce(t, 20, idempotency.ErrKeyInUse, func(int) error {
			r, err := db.ReserveRequest(t.Context(), someRequest, time.Minute, 24*time.Hour)
			if err == nil {
				first = r
			}
			return err
		})
		if first.Seed == "" || first.Answer != nil {
			t.Fatalf("it was begun as %+v", first)
		}
		another := someRequest
		another.Caller = "key_2"
		if db.Reserve(t, another).Seed == first.Seed {
			t.Error("two callers have one seed")
		}
		another = someRequest
		another.Fingerprint = strings.Repeat("c", 64)
		refuse := func(what string, want error) {
			t.Helper()
			MustBeError(t, what, ErrorOf(db.ReserveRequest(t.Context(), another, time.Minute, time.Hour)), want)
		}
		refuse("another request", idempotency.ErrKeyReused)

		// The first instance dies; when its lease has ended, another instance goes on.
		db.Exec(t, "UPDATE idempotency_keys SET lease_ends = ? WHERE caller = 'key_1'", database.Micros(db.Now(t).Add(-time.Millisecond)))
		second := db.Reserve(t, someRequest)
		if second.Seed != first.Seed || second.Lease == first.Lease || second.Answer != nil {
			t.Errorf("%+v went on as %+v", first, second)
		}
		MustBeError(t, "the dead one's answer", db.SaveAnswer(t.Context(), first, []byte("late"), time.Hour), dispatch.ErrNotLeased)
		if err := db.SaveAnswer(t.Context(), second, nil, time.Hour); err != nil { // nothing final
			t.Fatal(err)
		}
		third := db.Reserve(t, someRequest)
		if third.Seed != first.Seed || third.Answer != nil {
			t.Errorf("%+v was begun again as %+v", first, third)
		}
		sealed := []byte("\x00an answer\xff'\\")
		Must(t, db.SaveAnswer(t.Context(), third, sealed, time.Hour))
		for range 2 {
			if r := db.Reserve(t, someRequest); !bytes.Equal(r.Answer, sealed) {
				t.Errorf("the answer is %q", r.Answer)
			}
		}
		refuse("another request, afterwards", idempotency.ErrKeyReused)

		// A day later the key is free again.
		db.Exec(t, "UPDATE idempotency_keys SET expires_at = ?", database.Micros(db.Now(t).Add(-time.Millisecond)))
		if r := db.Reserve(t, another); r.Seed == first.Seed || r.Answer != nil {
			t.Errorf("afterwards it is %+v", r)
		}
		refuse("the new one", idempotency.ErrKeyInUse)
	})
}

// Of many instances that find an ended lease or an expired key, one goes on.
func TestReserveAgainTogether(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for _, over := range []string{"lease_ends", "expires_at"} {
			for i := range 5 {
				once := someRequest
				once.Caller = fmt.Sprint(over, i)
				db.Reserve(t, once)
				db.Exec(t, "UPDATE idempotency_keys SET "+over+" = 1 WHERE caller = ?", once.Caller)
				MustWinOnce(t, 8, idempotency.ErrKeyInUse, func(int) error {
					return ErrorOf(db.ReserveRequest(t.Context(), once, time.Minute, time.Hour))
				})
			}
		}
	})
}

// twice is every write that a request with a seed does, each with how many rows it makes.
func twice(db *Bench, t *testing.T) map[string]func(ctx context.Context) (any, error) {
	t.Helper()
	db.Known(t, Report)
	v := db.Fleet(t, 1)[0]
	dead := db.WriteNotification(t, db.Add(t, nil).ID, nil)
	order := SomeTerms(time.Now())
	return map[string]func(ctx context.Context) (any, error){
		"dispatches": func(ctx context.Context) (any, error) {
			d, err := db.Create(ctx, func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
				w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
				d, events := dispatch.New(idempotency.DispatchID(ctx, now), "ERP-1", order, w, "key_1", now)
				return d, events, nil
			})
			return d.ID, err
		},
		"drivers": func(ctx context.Context) (any, error) {
			many := make([]dispatch.Driver, 3)
			for i := range many {
				many[i] = SomeDriver(i)
				many[i].ID = idempotency.DriverID(ctx, time.Now(), i)
			}
			return nil, db.AddDrivers(ctx, many, false)
		},
		"drivers, one": func(ctx context.Context) (any, error) {
			one := SomeDriver(9)
			one.ID, one.FirebaseUID = idempotency.DriverID(ctx, time.Now(), 0), "uid"
			r, err := db.CreateDriver(ctx, one)
			return r.ID, err
		},
		"drivers WHERE suspended_until IS NOT NULL": func(ctx context.Context) (any, error) {
			r, err := db.ChangeDriver(ctx, v.ID, dispatch.DriverChange{
				Action: dispatch.AuditDriverSuspend, Version: 1,
				Apply: func(v *dispatch.Driver, now time.Time) error { return v.Suspend(dispatch.Forever, now) },
			})
			return r.Version, err
		},
		"api_keys": func(ctx context.Context) (any, error) {
			k, err := db.AddKey(ctx, dispatch.Key{ID: idempotency.KeyID(ctx, time.Now()), Name: "n", Role: dispatch.Viewer, Hash: "h"})
			return k.ID, err
		},
		"notifications WHERE state = 0": func(ctx context.Context) (any, error) {
			n, err := db.Redrive(ctx, dead.ID)
			return n.Status, err
		},
		"job_runs": func(ctx context.Context) (any, error) {
			run, err := db.RequestRun(ctx, Report, "key_1")
			return run.Slot, err
		},
		"audit WHERE action = 'driver.token'": func(ctx context.Context) (any, error) { return db.RecordTokenIssued(ctx, v.ID) },
	}
}

// Repeated requests create nothing twice, also concurrently.
func TestRepeatedRequest(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for name, do := range twice(db, t) {
			table, _, _ := strings.Cut(name, ",")
			ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
			before, audited := db.Count(t, table), db.Count(t, "audit")
			want, err := do(ctx)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			made, rows := db.Count(t, table)-before, db.Count(t, "audit")-audited
			if made < 1 || rows != 1 && table != "dispatches" {
				t.Errorf("%s: %d made, %d audited", name, made, rows)
			}
			if name == "job_runs" { // the run that was asked for has begun, and ended
				db.MustEnd(t, db.MustBegin(t, "a/1", SomeSlot(1)), cronjob.Succeeded)
			}
			testkit.Together(8, func(int) {
				if got, err := do(ctx); err != nil || got != want {
					t.Errorf("%s again: %v, %v; want %v", name, got, err, want)
				}
			})
			if db.Count(t, table)-before != made || db.Count(t, "audit")-audited != rows {
				t.Errorf("%s was made twice", name)
			}
		}
	})
}

// Several instances carry out the same request for the first time at once: one is slow, and another replaces it.
func TestConcurrentRequests(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for name, do := range twice(db, t) {
			table, _, _ := strings.Cut(name, ",")
			want := map[string]int{"drivers": 3}[name]
			ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
			before := db.Count(t, table)
			var results [8]any
			MustAll(t, len(results), func(i int) (err error) {
				results[i], err = do(ctx)
				return err
			})
			for _, r := range results {
				if r != results[0] {
					t.Errorf("%s: %v", name, results)
					break
				}
			}
			if n := db.Count(t, table) - before; n != max(want, 1) {
				t.Errorf("%s: %d made", name, n)
			}
		}
	})
}

// The COMMIT's reply is lost; the same request again, by way of another instance, finds the created rows.
func TestRepeatedRequestAfterALostReply(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		near := db.Store
		for name := range twice(db, t) {
			far, proxy := db.Proxied(t)
			Must(t, far.Ping(t.Context()))
			db.Exec(t, "DELETE FROM api_keys")
			table, _, _ := strings.Cut(name, ",")
			ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
			db.Exec(t, "UPDATE drivers SET firebase_uid = NULL")
			db.Exec(t, "UPDATE dispatches SET external_id = NULL")
			do := twice(db, t)[name]
			before := db.Count(t, table)
			db.Use(far)
			lost := dispatch.ErrUnknown
			if name == "dispatches" {
				lost = nil // it is settled by its event
			}
			MustLose(t, proxy, "COMMIT", lost, func() error { return ErrorOf(do(ctx)) })
			db.Use(near)
			made := db.Count(t, table) - before
			if _, err := do(ctx); err != nil || made < 1 || db.Count(t, table)-before != made {
				t.Errorf("%s again: %v; %d made, then %d", name, err, made, db.Count(t, table)-before)
			}
		}
	})
}

// A request without an idempotency key needs no additional statements.
func TestStatementsWithoutAnIdempotencyKey(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	mustRun := func(want int, do func()) {
		t.Helper()
		if all := db.Statements(t, do); len(all) != want {
			t.Errorf("%d statements, want %d:\n%s", len(all), want, strings.Join(all, "\n"))
		}
	}
	mustRun(5, func() { db.Add(t, nil) }) // the clock, the dispatch, its words, the event and its place in the webhooks' queue
	mustRun(6, func() { db.Fleet(t, 2) }) // the clock, the audit, the drivers, their regions, counts and words
}

// If the audit entry of a change can't be written, the change isn't written either.
func TestNoWriteWithoutItsAuditEntry(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		writes := twice(db, t)
		delete(writes, "dispatches") // events tell who made them
		writes["api_keys, the first"] = func(ctx context.Context) (any, error) {
			return nil, db.EnsureKey(ctx, dispatch.Key{ID: "key_first", Role: dispatch.Admin, Hash: "h"})
		}
		for name, do := range writes {
			table, _, _ := strings.Cut(name, ",")
			before := db.Count(t, table)
			db.Without(t, "audit", func() {
				MustBeError(t, name, ErrorOf(do(t.Context())), dispatch.ErrUnavailable)
			})
			db.MustCount(t, before, table)
		}
	})
}
