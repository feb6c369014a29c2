package drivers_test

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

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/drivers"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/search"
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

// mustBeIndexed fails the test unless the index says what the drivers' rows say, of all of them.
func mustBeIndexed(db *Bench, t testing.TB) {
	t.Helper()
	db.MustCount(t, 0, "driver_regions r JOIN drivers v ON v.id = r.driver_id WHERE v.erased_at IS NOT NULL")
	var rows []drivers.Row
	Must(t, db.Serve.With(t.Context()).Order("id").Find(&rows).Error)
	want, err := drivers.EntriesOf(rows)
	Must(t, err)
	var got []drivers.IndexEntry
	wantWords := map[search.Entry]bool{}
	wantCounts, gotCounts := drivers.RegionCounts{}, drivers.RegionCounts{}
	wantCounts.Add(want, 1)
	for i := range rows {
		for _, e := range search.Entries(rows[i].ID, rows[i].Words()) {
			wantWords[e] = true
		}
	}
	var words []struct{ Word, DriverID string }
	Must(t, db.Serve.With(t.Context()).Raw("SELECT * FROM driver_words").Scan(&words).Error)
	gotWords := map[search.Entry]bool{}
	for _, e := range words {
		gotWords[search.Entry{Word: e.Word, ID: e.DriverID}] = true
	}
	testkit.Equal(t, "driver_words", wantWords, gotWords)
	Must(t, db.Serve.With(t.Context()).Raw("SELECT * FROM driver_regions ORDER BY driver_id, region").Scan(&got).Error)
	testkit.Equal(t, "driver_regions", want, got)
	var counts []struct {
		Key   drivers.CountKey    `gorm:"embedded"`
		Count drivers.DriverCount `gorm:"embedded"`
	}
	Must(t, db.Serve.With(t.Context()).Raw("SELECT * FROM driver_counts").Scan(&counts).Error)
	for _, c := range counts {
		gotCounts[c.Key] = c.Count
	}
	if !reflect.DeepEqual(gotCounts, wantCounts) {
		t.Errorf("driver_counts has\n%v, want\n%v", gotCounts, wantCounts)
	}
}

// mustAnswer fails the test unless the preview, the supply, the search and the expansion find what the drivers' rows say.
func mustAnswer(db *Bench, t *testing.T, terms dispatch.Terms) {
	t.Helper()
	everybody, _, err := db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Page: dispatch.Page{Limit: 10_000}})
	Must(t, err)
	now, onDuty := db.Now(t), map[string]int{}
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
				onDuty[region]++
			}
		}
	}
	got, _, err := db.Preview(t.Context(), terms)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the preview is %+v, %v; want %+v", got, err, want)
	}
	counted, err := drivers.OnDuty(db.Serve.With(t.Context()))
	Must(t, err)
	if !reflect.DeepEqual(counted, onDuty) {
		t.Errorf("on duty are %v, want %v", counted, onDuty)
	}
	from, args := drivers.Eligible(&terms, now)
	var candidates []dispatch.DriverID
	Must(t, db.Serve.With(t.Context()).Raw("SELECT driver_id FROM "+from+" ORDER BY driver_id DESC", args...).Scan(&candidates).Error)
	testkit.Equal(t, "the eligible", eligible, candidates)
	var erased []dispatch.DriverID
	Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM drivers WHERE erased_at IS NOT NULL ORDER BY id DESC").Scan(&erased).Error)
	page := max(3, len(everybody)/10) // not more pages the more drivers there are
	var pages []dispatch.DriverID
	for _, v := range All(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
		return db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Erased: true, Page: p})
	}) {
		pages = append(pages, v.ID)
	}
	testkit.Equal(t, "the erased drivers", erased, pages)
	pages = nil
	for _, v := range All(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
		return db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Region: terms.Region, VehicleClass: terms.VehicleClass, OnDuty: new(true), Page: p})
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
		for _, v := range All(t, page, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
			return db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Text: name, Page: p})
		}) {
			got = append(got, v.ID)
		}
		testkit.Equal(t, name, named, got)
	}
}

func someSearch(r *rand.Rand, now time.Time) dispatch.Terms {
	terms := SomeTerms(now)
	terms.Region, terms.VehicleClass = someRegions[r.IntN(len(someRegions))], someClasses[r.IntN(len(someClasses))]
	if r.IntN(2) == 0 {
		terms.MinWorkingHeightM = new(12.1)
	}
	return terms
}

// Whatever changes drivers, the index is what their rows say, and so are the answers.
func TestIndexOfDriversIsTrue(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		var ids []dispatch.DriverID
		made := func() dispatch.Driver {
			v := SomeDriver(len(ids))
			anyDriver(r, &v, time.Now())
			ids = append(ids, v.ID)
			return v
		}
		Must(t, db.AddDrivers(t.Context(), []dispatch.Driver{made(), made(), made(), made(), made()}, false))
		erased := map[dispatch.DriverID]bool{}
		for range testkit.Scale(60, 120) {
			id := ids[r.IntN(len(ids))]
			mustChange := func(err, refusal error) {
				if erased[id] {
					MustBeError(t, "a change of an erased driver", err, refusal)
					return
				}
				Must(t, err)
			}
			switch r.IntN(8) {
			case 0:
				Must(t, ErrorOf(db.CreateDriver(t.Context(), made())))
			case 1:
				Must(t, db.AddDrivers(t.Context(), []dispatch.Driver{made(), made()}, true))
			case 2, 3:
				mustChange(ErrorOfPage(db.SetDuty(t.Context(), id, r.IntN(2) == 0)), dispatch.ErrDriverNotFound)
			case 4, 5:
				mustChange(ErrorOf(db.ChangeDriver(t.Context(), id, Edit(func(v *dispatch.Driver) { anyDriver(r, v, time.Now()) }))), dispatch.ErrDriverErased)
			case 6:
				mustChange(ErrorOf(db.ChangeDriver(t.Context(), id, suspend(time.Now().Add(time.Hour)))), dispatch.ErrDriverErased)
			case 7:
				mustErase(db, t, id)
				erased[id] = true
				db.MustCount(t, 0, "driver_regions WHERE driver_id = ?", id)
				db.MustCount(t, 2, "driver_words WHERE driver_id = ?", id) // of the pseudonym
			}
			mustBeIndexed(db, t)
			mustAnswer(db, t, someSearch(r, time.Now()))
			if t.Failed() {
				return
			}
		}
	})
}

// Several instances change the same drivers at once, and one of the drivers is erased.
func TestIndexOfDriversBesideOthers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 5)
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
						_, err = db.ChangeDriver(t.Context(), v.ID, Edit(func(is *dispatch.Driver) {
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
		mustBeIndexed(db, t)
		mustAnswer(db, t, SomeTerms(time.Now()))
	})
}
