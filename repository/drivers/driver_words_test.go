package drivers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/search"
)

func TestWordsOfADriver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, phone, uid string
		want             []string
	}{
		{"", "", "", nil},
		{"Kim Min-su", "+821012345678", "", []string{"821012345678", "kim", "min-su", "su", "~876543210128"}},
		{"김민수", "", "Uid_X", []string{"uid-x", "x", "김민수", "민수", "수"}},
		{"ÜBER ｋｉｍ 花子", "", "", []string{"über", "kim花子", "花子", "子"}},
		{"수 수", "", "", []string{"수수", "수"}},
		{"김 철수", "", "", []string{"김철수", "철수", "수"}},
	} {
		row := drivers.Row{Name: c.name, Phone: c.phone, FirebaseUID: database.Nullable(c.uid)}
		testkit.Equal(t, c.name, c.want, row.Words())
	}
	row := drivers.Row{Name: string(slices.Repeat([]rune("가 나다라마바사 "), 20)), Phone: "+821012345678", FirebaseUID: new("uid")}
	for i := range 100 {
		row.Name += fmt.Sprint(" ", i)
	}
	if words := row.Words(); len(words) != search.MaxWords+1 || !slices.Contains(words, "~876543210128") {
		t.Errorf("%d words of a long name: %q", len(words), words)
	}
}

func TestTermsForDrivers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]search.Term{
		"":              nil,
		"+-":            nil,
		"Kim":           {{Begins: []string{"kim"}}},
		"kim 12":        {{Begins: []string{"kim"}}, {Begins: []string{"12"}}},
		"5678":          {{Begins: []string{"5678", "~8765"}}},
		"0000":          {{Begins: []string{"0000", "82000", "~0000"}}},
		"0000000":       {{Begins: []string{"0000000", "82000000", "~0000000"}}},
		"12-34":         {{Begins: []string{"12-34", "1234", "~4321"}}},
		"010-1234-5678": {{Begins: []string{"010-1234-5678", "01012345678", "821012345678", "~8765432101"}}},
		"+82 10 1234":   {{Begins: []string{"82101234", "~43210128"}, ID: "drv_82101234"}},
		"kim 1234":      {{Begins: []string{"1234", "~4321"}}, {Begins: []string{"kim"}}},
		"drv_01":        {{Begins: []string{"drv-01"}, ID: "drv_01"}},
		"a1234":         {{Begins: []string{"a1234"}}},
	} {
		testkit.Equal(t, text, want, drivers.DriverTerms(text))
	}
}

// A search for what too many drivers have reads the list, a bounded part of it for a page, and misses nobody.
func TestSearchForCommonNames(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		const n = 2*search.MaxReads + search.MaxReads/2
		db.Exec(t, fmt.Sprintf(`INSERT INTO drivers (id, name, phone, regions, vehicle_class, locale, on_duty, version, created_at, updated_at)
			SELECT CONCAT('drv_', LPAD(n, 26, '0')), IF(n MOD %d = 5, 'odd even needle', IF(n MOD 2, 'odd', 'even')), '', '["seoul"]', 'scissor', '', n MOD 2, 1, 1, 1
			FROM %s WHERE n < %d ORDER BY n`, n/3, Numbers(5), n))
		var needles []dispatch.DriverID
		Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM drivers WHERE name LIKE '%needle' ORDER BY id DESC").Scan(&needles).Error)
		mustFind := func(want []dispatch.DriverID, q dispatch.DriverQuery, pages int) {
			t.Helper()
			var found []dispatch.DriverID
			asked := 0
			for q.Limit = 200; asked == 0 || q.Cursor != ""; asked++ {
				items, next, err := db.Drivers.Drivers(t.Context(), q)
				Must(t, err)
				for _, v := range items {
					found = append(found, v.ID)
				}
				q.Cursor = next
			}
			if !slices.Equal(found, want) || asked != pages {
				t.Errorf("%+v: %d pages, want %d, with %q, want %q", q, asked, pages, found, want)
			}
		}
		both, rare := dispatch.DriverQuery{Text: "odd even"}, dispatch.DriverQuery{Text: "needle"}
		db.Exec(t, `INSERT INTO driver_words (word, driver_id) SELECT 'odd', id FROM drivers WHERE name LIKE '%odd%'
			UNION ALL SELECT 'even', id FROM drivers WHERE name LIKE '%even%' UNION ALL SELECT 'needle', id FROM drivers WHERE name LIKE '%needle'`)
		mustFind(needles, both, 3)
		mustFind(needles, rare, 1)
		mustFind(nil, dispatch.DriverQuery{Text: "nobody"}, 1)
		rare.Region, rare.OnDuty = "seoul", new(true)
		var onDuty []dispatch.DriverID
		for _, id := range needles {
			if (id[len(id)-1]-'0')%2 == 1 {
				onDuty = append(onDuty, id)
			}
		}
		mustFind(onDuty, rare, 1)
		db.Exec(t, "UPDATE drivers SET suspended_until = ?", database.Micros(db.Now(t).Add(time.Hour)))
		both.Suspended = new(true)
		mustFind(needles, both, 3)
	})
}
