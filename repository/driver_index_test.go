package repository

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// The names are told apart by case, accents, spaces and the characters that Go escapes in JSON.
var (
	someRegions = []string{"seoul", "Seoul", "seoul ", "séoul", "제주", "a&b", "a\"b", "a<b"}
	someClasses = []string{"scissor", "Scissor", "boom"}
	someNames   = []string{"김민수", "김 민수", "Kim Minsu", "kim", "O'Kim", "이수"}
)

// anyDriver changes everything of v that eligibility depends on, and the name and phone.
func anyDriver(r *rand.Rand, v *dispatch.Driver, now time.Time) {
	v.Name, v.Phone = someNames[r.IntN(len(someNames))], fmt.Sprintf("+82105550%04d", r.IntN(3))
	v.Regions = nil
	for _, i := range r.Perm(len(someRegions))[:1+r.IntN(4)] {
		v.Regions = append(v.Regions, someRegions[i])
	}
	v.VehicleClass, v.OnDuty = someClasses[r.IntN(len(someClasses))], r.IntN(3) > 0
	v.WorkingHeightM, v.SuspendedUntil = nil, nil
	if r.IntN(2) == 0 {
		v.WorkingHeightM = new([]float64{12, 12.1, 45.5}[r.IntN(3)])
	}
	if r.IntN(3) == 0 {
		v.SuspendedUntil = new(now.Add(time.Duration(r.IntN(3)-1) * time.Hour).UTC().Truncate(time.Second))
	}
}

// writeAsEarlier changes a driver, or adds one that is not there, as the version before does, which knows no index.
func (db *database) writeAsEarlier(t testing.TB, v dispatch.Driver) {
	t.Helper()
	row, err := toDriverRow(v, db.now(t))
	must(t, err)
	done, err := db.raw.ExecContext(t.Context(), "UPDATE drivers SET name = ?, phone = ?, regions = ?, vehicle_class = ?, working_height_m = ?, on_duty = ?, suspended_until = ?, version = version + 1 WHERE id = ?",
		row.Name, row.Phone, row.Regions, row.VehicleClass, row.WorkingHeightM, row.OnDuty, row.SuspendedUntil, row.ID)
	must(t, err)
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		must(t, err)
		return
	}
	db.exec(t, `INSERT INTO drivers (id, name, phone, regions, vehicle_class, working_height_m, locale, on_duty, suspended_until, version, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, '', ?, ?, 1, 1, 1)`, row.ID, row.Name, row.Phone, row.Regions, row.VehicleClass, row.WorkingHeightM, row.OnDuty, row.SuspendedUntil)
}

// mustBeIndexed fails the test unless the index says what the drivers' rows say, of all of them.
func (db *database) mustBeIndexed(t testing.TB) {
	t.Helper()
	db.mustCount(t, 0, "drivers WHERE unindexed = 1 OR unworded = 1")
	db.mustCount(t, 0, "driver_regions r JOIN drivers v ON v.id = r.driver_id WHERE v.erased_at IS NOT NULL")
	var rows []driverRow
	must(t, db.general.WithContext(t.Context()).Order("id").Find(&rows).Error)
	var want, got []indexEntry
	wantWords := map[wordEntry]bool{}
	wantCounts, gotCounts := countChanges{}, countChanges{}
	for i := range rows {
		entries, err := rows[i].entries()
		must(t, err)
		want = append(want, entries...)
		wantCounts.add(entries, 1)
		for _, e := range wordEntries(rows[i].ID, rows[i].words()) {
			wantWords[e] = true
		}
	}
	var words []struct{ Word, DriverID string }
	must(t, db.general.WithContext(t.Context()).Raw("SELECT * FROM driver_words").Scan(&words).Error)
	gotWords := map[wordEntry]bool{}
	for _, e := range words {
		gotWords[wordEntry{e.Word, e.DriverID}] = true
	}
	testkit.Equal(t, "driver_words", wantWords, gotWords)
	must(t, db.general.WithContext(t.Context()).Raw("SELECT * FROM driver_regions ORDER BY driver_id, region").Scan(&got).Error)
	testkit.Equal(t, "driver_regions", want, got)
	var counts []struct {
		Region, VehicleClass  string
		WorkingHeightM        float64
		Slot, Drivers, OnDuty int
	}
	must(t, db.general.WithContext(t.Context()).Raw("SELECT * FROM driver_counts").Scan(&counts).Error)
	for _, c := range counts {
		gotCounts[countKey{c.Region, c.VehicleClass, c.WorkingHeightM, c.Slot}] = driverCount{c.Drivers, c.OnDuty}
	}
	if !reflect.DeepEqual(gotCounts, wantCounts) {
		t.Errorf("driver_counts has\n%v, want\n%v", gotCounts, wantCounts)
	}
}

// mustAnswer fails the test unless the preview, the supply, the search and the expansion find what the drivers' rows say.
func (db *database) mustAnswer(t *testing.T, terms dispatch.Terms) {
	t.Helper()
	everybody, _, err := db.Drivers(t.Context(), dispatch.DriverQuery{Page: dispatch.Page{Limit: 10_000}})
	must(t, err)
	want, now, onDuty := dispatch.NewPreview(), db.now(t), map[string]supply{}
	var eligible, found []dispatch.DriverID
	for _, v := range everybody {
		want.Count(dispatch.Candidate{Driver: v.Driver}, true, terms, now)
		if len(v.Ineligible(terms, now)) == 0 {
			eligible = append(eligible, v.ID)
		}
		if slices.Contains(v.Regions, terms.Region) && v.VehicleClass == terms.VehicleClass && v.OnDuty {
			found = append(found, v.ID)
		}
		if v.OnDuty && !v.Suspended(now) {
			for _, region := range append(v.Regions, "") {
				onDuty[region] = supply{onDuty: onDuty[region].onDuty + 1}
			}
		}
	}
	got, _, err := db.Preview(t.Context(), terms)
	got.Reachable = want.Reachable
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the preview is %+v, %v; want %+v", got, err, want)
	}
	counted := map[string]supply{}
	must(t, db.countDrivers(t.Context(), counted))
	if !reflect.DeepEqual(counted, onDuty) {
		t.Errorf("on duty are %v, want %v", counted, onDuty)
	}
	query, args := db.candidates(&terms, now, math.MaxInt32)
	var candidates []dispatch.DriverID
	must(t, db.general.WithContext(t.Context()).Raw(query, args...).Scan(&candidates).Error)
	for _, id := range eligible {
		if !slices.Contains(candidates, id) {
			t.Errorf("%s is eligible, and no candidate", id)
		}
	}
	var erased []dispatch.DriverID
	must(t, db.general.WithContext(t.Context()).Raw("SELECT id FROM drivers WHERE erased_at IS NOT NULL ORDER BY id DESC").Scan(&erased).Error)
	for _, id := range candidates {
		if slices.Contains(erased, id) {
			t.Errorf("%s is erased, and a candidate", id)
		}
	}
	page := max(3, len(everybody)/10) // not more pages the more drivers there are
	var pages []dispatch.DriverID
	for _, v := range all(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
		return db.Drivers(t.Context(), dispatch.DriverQuery{Erased: true, Page: p})
	}) {
		pages = append(pages, v.ID)
	}
	testkit.Equal(t, "the erased drivers", erased, pages)
	pages = nil
	for _, v := range all(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
		return db.Drivers(t.Context(), dispatch.DriverQuery{Region: terms.Region, VehicleClass: terms.VehicleClass, OnDuty: new(true), Page: p})
	}) {
		pages = append(pages, v.ID)
	}
	testkit.Equal(t, "the search", found, pages)
	for _, name := range []string{"김", "민수", "kim", "0001"} {
		var named, got []dispatch.DriverID
		for _, v := range everybody {
			is := strings.ToLower(v.Name)
			if strings.HasPrefix(is, name) || strings.HasSuffix(is, name) || strings.HasSuffix(v.Phone, name) {
				named = append(named, v.ID)
			}
		}
		for _, v := range all(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
			return db.Drivers(t.Context(), dispatch.DriverQuery{Text: name, Page: p})
		}) {
			got = append(got, v.ID)
		}
		testkit.Equal(t, name, named, got)
	}
}

func someSearch(r *rand.Rand, now time.Time) dispatch.Terms {
	terms := someTerms(now)
	terms.Region, terms.VehicleClass = someRegions[r.IntN(len(someRegions))], someClasses[r.IntN(len(someClasses))]
	if r.IntN(2) == 0 {
		terms.MinWorkingHeightM = new(12.1)
	}
	return terms
}

// Whatever changes drivers, this version or the one before, the answers are what the drivers' rows say. What this version changes is
// indexed with the change, and the rest by the indexer.
func TestIndexOfDriversIsTrue(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		var ids []dispatch.DriverID
		made := func() dispatch.Driver {
			v := someDriver(len(ids))
			anyDriver(r, &v, time.Now())
			ids = append(ids, v.ID)
			return v
		}
		must(t, db.AddDrivers(t.Context(), []dispatch.Driver{made(), made(), made(), made(), made()}))
		erased := map[dispatch.DriverID]bool{}
		for range testkit.Scale(60, 120) {
			id := ids[r.IntN(len(ids))]
			mustChange := func(err, refusal error) {
				if erased[id] {
					mustBeError(t, "a change of an erased driver", err, refusal)
					return
				}
				must(t, err)
			}
			earlier := false
			switch r.IntN(9) {
			case 0:
				must(t, errorOf(db.CreateDriver(t.Context(), made())))
			case 1:
				must(t, db.AddDriversWithTokens(t.Context(), []dispatch.Driver{made(), made()}))
			case 2, 3:
				mustChange(errorOfPage(db.SetDuty(t.Context(), id, r.IntN(2) == 0)), dispatch.ErrDriverNotFound)
			case 4, 5:
				mustChange(errorOf(db.ChangeDriver(t.Context(), id, edit(func(v *dispatch.Driver) { anyDriver(r, v, time.Now()) }))), dispatch.ErrDriverErased)
			case 6:
				mustChange(errorOf(db.ChangeDriver(t.Context(), id, suspend(time.Now().Add(time.Hour)))), dispatch.ErrDriverErased)
			case 7:
				v := dispatch.Driver{ID: id}
				if r.IntN(3) == 0 {
					v = made()
				}
				anyDriver(r, &v, time.Now())
				db.writeAsEarlier(t, v)
				earlier = true
			case 8:
				db.mustErase(t, id)
				erased[id] = true
				db.mustCount(t, 0, "driver_regions WHERE driver_id = ?", id)
				db.mustCount(t, 2, "driver_words WHERE driver_id = ?", id) // of the pseudonym
			}
			if !erased[id] && r.IntN(3) == 0 { // as the version before leaves a driver that it has indexed, and the migration all of them
				db.exec(t, "UPDATE drivers SET worded_version = 0 WHERE id = ?", id)
				db.exec(t, "DELETE FROM driver_words WHERE driver_id = ?", id)
			}
			db.mustAnswer(t, someSearch(r, time.Now()))
			if earlier && r.IntN(2) == 0 { // or a change by this version finds the driver so
				must(t, errorOf(db.IndexAllDrivers(t.Context())))
			}
			if t.Failed() {
				return
			}
		}
		must(t, errorOf(db.IndexAllDrivers(t.Context())))
		db.mustBeIndexed(t)
	})
}

// What the migration finds is indexed part by part, by several processes, any of which may end. Each part leaves right answers.
func TestDriversOfAnEarlierVersionAreIndexed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 2*indexBatch + 7 {
			v := someDriver(i)
			anyDriver(r, &v, time.Now())
			db.writeAsEarlier(t, v)
		}
		terms := someSearch(r, time.Now())
		db.mustAnswer(t, terms)
		if n, err := db.IndexDrivers(t.Context()); n != indexBatch || err != nil {
			t.Fatalf("%d were indexed, %v", n, err)
		}
		db.mustCount(t, indexBatch, "driver_regions WHERE region = ''")
		db.mustAnswer(t, terms)
		mustAll(t, 3, func(int) error { return errorOf(db.IndexAllDrivers(t.Context())) })
		must(t, errorOf(db.IndexAllDrivers(t.Context())))
		db.mustBeIndexed(t)
		db.mustAnswer(t, terms)
		if n, err := db.IndexDrivers(t.Context()); n != 0 || err != nil {
			t.Errorf("%d were indexed, %v", n, err)
		}
	})
}

// An instance of the version before that makes an erased driver eligible or suspended changes no answer, and the driver stays out of the index.
func TestErasedDriverChangedByAnEarlierVersion(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers, terms := db.drivers(t, 3), someTerms(time.Now())
		db.mustErase(t, drivers[0].ID)
		db.mustErase(t, drivers[1].ID)
		drivers[1].SuspendedUntil = &dispatch.Forever
		db.writeAsEarlier(t, drivers[0])
		db.writeAsEarlier(t, drivers[1])
		db.mustAnswer(t, terms)
		if n, err := db.IndexAllDrivers(t.Context()); n != 2 || err != nil {
			t.Errorf("%d were indexed, %v", n, err)
		}
		db.mustCount(t, 1, "driver_regions WHERE region = ''")
		db.mustBeIndexed(t)
		db.mustAnswer(t, terms)
	})
}

// An instance of the version before and two of this one change the same drivers at once, and one of the drivers is erased.
func TestIndexBesideAnEarlierVersion(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 5)
		must(t, errorOf(db.IndexDrivers(t.Context())))
		var changes sync.WaitGroup
		for i := range 5 {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			changes.Go(func() {
				for n := range testkit.Scale(20, 40) {
					v := drivers[r.IntN(len(drivers))]
					anyDriver(r, &v, time.Now())
					var err error
					switch i {
					case 0:
						db.writeAsEarlier(t, v)
					case 1:
						_, _, err = db.SetDuty(t.Context(), v.ID, n%2 == 0)
					case 2:
						_, err = db.ChangeDriver(t.Context(), v.ID, edit(func(is *dispatch.Driver) { is.Regions, is.VehicleClass = v.Regions, v.VehicleClass }))
					case 3:
						_, err = db.IndexDrivers(t.Context())
					case 4:
						if v = drivers[0]; n == 10 {
							_, _, err = db.EraseDriver(t.Context(), v.ID)
						}
					}
					refused := v.ID == drivers[0].ID && (errors.Is(err, dispatch.ErrDriverNotFound) || errors.Is(err, dispatch.ErrDriverErased))
					if err != nil && !refused {
						t.Errorf("change %d: %v", i, err)
					}
				}
			})
		}
		changes.Wait()
		must(t, errorOf(db.IndexAllDrivers(t.Context())))
		db.mustBeIndexed(t)
		db.mustAnswer(t, someTerms(time.Now()))
	})
}
