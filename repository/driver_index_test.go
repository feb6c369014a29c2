package repository

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

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

// indexDrivers indexes drivers that a test has written by SQL.
func (db *database) indexDrivers(t testing.TB) {
	t.Helper()
	var rows []driverRow
	must(t, db.serve.WithContext(t.Context()).Order("id").Find(&rows).Error)
	for part := range slices.Chunk(rows, 100) {
		must(t, db.transact(t.Context(), db.decide, func(tx *gorm.DB) error {
			if err := db.addDriverRegions(tx, part); err != nil {
				return err
			}
			return db.addDriverWords(tx, part)
		}))
	}
}

// mustBeIndexed fails the test unless the index says what the drivers' rows say, of all of them.
func (db *database) mustBeIndexed(t testing.TB) {
	t.Helper()
	db.mustCount(t, 0, "driver_regions r JOIN drivers v ON v.id = r.driver_id WHERE v.erased_at IS NOT NULL")
	var rows []driverRow
	must(t, db.serve.WithContext(t.Context()).Order("id").Find(&rows).Error)
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
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT * FROM driver_words").Scan(&words).Error)
	gotWords := map[wordEntry]bool{}
	for _, e := range words {
		gotWords[wordEntry{e.Word, e.DriverID}] = true
	}
	testkit.Equal(t, "driver_words", wantWords, gotWords)
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT * FROM driver_regions ORDER BY driver_id, region").Scan(&got).Error)
	testkit.Equal(t, "driver_regions", want, got)
	var counts []struct {
		Region, VehicleClass  string
		WorkingHeightM        float64
		Slot, Drivers, OnDuty int
	}
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT * FROM driver_counts").Scan(&counts).Error)
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
	now, onDuty := db.now(t), map[string]supply{}
	want := dispatch.Preview{Reasons: map[dispatch.IneligibleReason]int{
		dispatch.OffDuty: 0, dispatch.Suspended: 0, dispatch.WrongRegion: 0, dispatch.WrongVehicleClass: 0, dispatch.TooLow: 0,
	}}
	var eligible, found []dispatch.DriverID
	for _, v := range everybody {
		reasons := v.Ineligible(terms, now)
		for _, reason := range reasons {
			want.Reasons[reason]++
		}
		if len(reasons) == 0 {
			want.Eligible++
			eligible = append(eligible, v.ID)
		} else {
			want.NotEligible++
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
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the preview is %+v, %v; want %+v", got, err, want)
	}
	counted := map[string]supply{}
	must(t, db.countDrivers(db.serve.WithContext(t.Context()), counted))
	if !reflect.DeepEqual(counted, onDuty) {
		t.Errorf("on duty are %v, want %v", counted, onDuty)
	}
	from, args := db.eligibleRegions(&terms, now)
	var candidates []dispatch.DriverID
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT driver_id FROM "+from+" ORDER BY driver_id DESC", args...).Scan(&candidates).Error)
	testkit.Equal(t, "the eligible", eligible, candidates)
	var erased []dispatch.DriverID
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT id FROM drivers WHERE erased_at IS NOT NULL ORDER BY id DESC").Scan(&erased).Error)
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

// Whatever changes drivers, the index is what their rows say, and so are the answers.
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
			switch r.IntN(8) {
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
				db.mustErase(t, id)
				erased[id] = true
				db.mustCount(t, 0, "driver_regions WHERE driver_id = ?", id)
				db.mustCount(t, 2, "driver_words WHERE driver_id = ?", id) // of the pseudonym
			}
			db.mustBeIndexed(t)
			db.mustAnswer(t, someSearch(r, time.Now()))
			if t.Failed() {
				return
			}
		}
	})
}

// Several instances change the same drivers at once, and one of the drivers is erased.
func TestIndexOfDriversBesideOthers(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 5)
		var changes sync.WaitGroup
		for i := range 4 {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			changes.Go(func() {
				for n := range testkit.Scale(20, 40) {
					v := drivers[r.IntN(len(drivers))]
					anyDriver(r, &v, time.Now())
					var err error
					switch i {
					case 0:
						_, _, err = db.SetDuty(t.Context(), v.ID, n%2 == 0)
					case 1, 2:
						_, err = db.ChangeDriver(t.Context(), v.ID, edit(func(is *dispatch.Driver) {
							is.Name, is.Regions, is.VehicleClass = v.Name, v.Regions, v.VehicleClass
						}))
					case 3:
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
		db.mustBeIndexed(t)
		db.mustAnswer(t, someTerms(time.Now()))
	})
}
