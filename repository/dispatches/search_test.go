package dispatches_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/search"
)

// describe gives a dispatch its text.
func describe(externalID, address, note string) func(*dispatch.Dispatch) {
	return func(d *dispatch.Dispatch) { d.ExternalID, d.Site.Address, d.Note = externalID, address, note }
}

func TestSearch(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		notes := []string{
			"100% sure", "100 sure", "a_b", "axb", "wow!", "wow", `back\slash`, "O'Neill", `say "hi"`, "서울 강남구", "Überlingen", "MiXeD", "straße é", "\x00?--",
		}
		made := map[string]dispatch.ID{}
		var everything []string
		for i, note := range notes {
			made[note] = db.Add(t, describe(fmt.Sprintf("ERP-%02d", i), fmt.Sprintf("Street %02d", i), note)).ID
			everything = append(everything, note)
		}
		id := string(made["wow"])
		tests := map[string][]string{
			"%": nil, "--": nil, "'": nil, `\`: nil, " ": nil, "' OR 1=1": nil, "?": nil, "\U0010FFFF": nil,
			"100": notes[:2], "100%": notes[:2], "100 sur": notes[:2], "SURE 100": notes[:2], "sure 101": nil, "100% erp-01": {"100 sure"},
			"a_b": {"a_b"}, "a.b": {"a_b"}, "a": notes[2:4], "ab": nil, "b": {"a_b", `back\slash`}, "xb": nil,
			"wow": notes[4:6], "wo": notes[4:6], "wow wow!": notes[4:6], "ow": nil,
			"back/slash": {`back\slash`}, "slash": {`back\slash`}, "o'neill": {"O'Neill"}, "neil": {"O'Neill"}, `"HI"`: {`say "hi"`},
			"강남": {"서울 강남구"}, "서울 강남구": {"서울 강남구"}, "강남구 서": {"서울 강남구"}, "남구": {"서울 강남구"}, "서울강남구": {"서울 강남구"}, "울강남": {"서울 강남구"}, "서울남구": nil,
			"überli": {"Überlingen"}, "ÜBERLI": {"Überlingen"}, "mixed": {"MiXeD"}, "MIXED": {"MiXeD"}, "STRASSE": nil, "É": {"straße é"},
			"erp-03": {"axb"}, "ERP_03": {"axb"}, "erp03": {"axb"}, "erp": everything, "erp-1": notes[10:14], "street 03": {"axb"}, "ｓｔｒｅｅｔ ０３": {"axb"},
			"street erp over": nil,
			id:                {"wow"}, id[4:]: {"wow"}, id[:28]: {"wow"}, "DSP_" + id[4:]: {"wow"}, id + " wow": {"wow"}, id + " axb": nil, id[5:]: nil,
			"dsp_": nil, "dsp_0": everything,
		}
		for text, want := range tests {
			t.Run(text, func(t *testing.T) {
				var wanted []dispatch.ID
				for _, note := range want {
					wanted = append(wanted, made[note])
				}
				slices.Sort(wanted)
				slices.Reverse(wanted)
				for _, limit := range []int{1, 2, 100} {
					if got := Ids(db.Listed(t, limit, dispatch.Query{Text: text})); !slices.Equal(got, wanted) {
						t.Errorf("%d a page: got %v, want %q", limit, got, want)
					}
				}
			})
		}
	})
}

// A search combines with the other conditions of a list.
func TestSearchWithinAList(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		add := func(region, note string) dispatch.ID {
			return db.Add(t, func(d *dispatch.Dispatch) { d.Region, d.Note = region, note }).ID
		}
		busan, wow, other := add("busan", "wow"), add("seoul", "wow"), add("seoul", "other")
		taken, ended := add("seoul", "wow taken"), add("seoul", "wow ended")
		db.MustAccept(t, taken, v)
		db.Exec(t, "UPDATE dispatches SET work_starts_at = 1, work_ends_at = 2 WHERE id = ?", taken)
		first := add("seoul", "wow first")
		db.MustAccept(t, first, v)
		db.Exec(t, "UPDATE dispatches SET accepted_at = 1 WHERE id = ?", first)
		db.Exec(t, "UPDATE dispatches SET expires_at = 5 WHERE id = ?", ended)
		for name, c := range map[string]struct {
			q    dispatch.Query
			want []dispatch.ID
		}{
			"text":        {dispatch.Query{}, []dispatch.ID{first, ended, taken, wow, busan}},
			"a region":    {dispatch.Query{Region: "busan"}, []dispatch.ID{busan}},
			"no region":   {dispatch.Query{Region: "jeju"}, []dispatch.ID{}},
			"open":        {dispatch.Query{Status: dispatch.Pending}, []dispatch.ID{wow, busan}},
			"open, there": {dispatch.Query{Status: dispatch.Pending, Region: "seoul"}, []dispatch.ID{wow}},
			"expired":     {dispatch.Query{Status: dispatch.Expired}, []dispatch.ID{ended}},
		} {
			for _, limit := range []int{1, 50} {
				c.q.Text = "WOW"
				testkit.Equal(t, fmt.Sprintf("%s, %d a page", name, limit), c.want, Ids(db.Listed(t, limit, c.q)))
			}
		}
		testkit.Equal(t, "the other", []dispatch.ID{other}, db.ListIDs(t, dispatch.Query{Text: "other"}))
		for _, text := range []string{"wow", "--"} {
			MustBeError(t, "a cursor of another list", ErrorOfPage(db.Dispatches.List(t.Context(), dispatch.Query{Text: text, Page: dispatch.Page{Limit: 1, Cursor: database.Cursor(database.DriverList, 0, v)}})), dispatch.ErrBadCursor)
		}
	})
}

// manyAt is how many dispatches of manyCompleted are at the address "old", the oldest, and how many at "new", the newest.
const manyAt = 1000

// manyCompleted adds n completed dispatches without their words. Half of them have the note "even", the others "odd" or
// "oddly", and three "odd even needle"; those are returned.
func manyCompleted(db *Bench, t *testing.T, n int) (needles []dispatch.ID) {
	t.Helper()
	note := fmt.Sprintf("IF(n MOD %d = 5, 'odd even needle', ELT(n MOD 4 + 1, 'even', 'odd', 'even', 'oddly'))", n/3)
	db.Exec(t, fmt.Sprintf(`INSERT INTO dispatches (id, external_id, region, vehicle_class, site_address, work_starts_at, work_ends_at, fee_amount,
		fee_currency, note, opens_at, expires_at, status, round, version, created_at, updated_at)
		SELECT CONCAT('dsp_', LPAD(n, 26, '0')), CONCAT('ERP-', n), 'seoul', 'scissor', IF(n < %d, 'old', IF(n < %d, '', 'new')), 1, 2, 1, 'KRW', %s, 1, 2, 'COMPLETED', 1, 1, 1, 1
		FROM %s WHERE n < %d ORDER BY n`, manyAt, n-manyAt, note, Numbers(5), n))
	Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM dispatches WHERE note LIKE '%needle' ORDER BY id DESC").Scan(&needles).Error)
	return needles
}

// indexByDatabase indexes the dispatches of manyCompleted.
func indexByDatabase(db *Bench, t *testing.T) {
	t.Helper()
	parts := []string{"SELECT id, 'odd' word FROM dispatches WHERE note IN ('odd', 'odd even needle')", "SELECT id, note FROM dispatches WHERE note = 'oddly'",
		"SELECT id, 'even' FROM dispatches WHERE note LIKE '%even%'", "SELECT id, site_address FROM dispatches WHERE site_address <> ''",
		"SELECT id, 'needle' FROM dispatches WHERE note LIKE '%needle'", "SELECT id, LOWER(external_id) FROM dispatches",
		"SELECT id, SUBSTRING_INDEX(external_id, '-', -1) FROM dispatches", "SELECT id, REPLACE(LOWER(external_id), '-', '') FROM dispatches"}
	db.Exec(t, "INSERT INTO dispatch_words (word, dispatch_id) SELECT word, id FROM ("+strings.Join(parts, " UNION ALL ")+") w")
	db.Exec(t, "ANALYZE TABLE dispatches, dispatch_words")
}

// A search for terms that too many dispatches have reads the list, a bounded part of it for a page, and misses none.
func TestSearchForCommonWords(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		const n = 2*search.MaxReads + search.MaxReads/2
		needles := manyCompleted(db, t, n)
		search := func(text string) (found []dispatch.ID, pages int) {
			for p := (dispatch.Page{Limit: 200}); pages == 0 || p.Cursor != ""; pages++ {
				items, next, err := db.Dispatches.List(t.Context(), dispatch.Query{Text: text, Page: p})
				Must(t, err)
				found, p.Cursor = append(found, Ids(items)...), next
			}
			return found, pages
		}
		mustFind := func(text string, want []dispatch.ID, pages int) {
			t.Helper()
			if found, n := search(text); !slices.Equal(found, want) || n != pages {
				t.Errorf("%q: %d pages, want %d, with %q, want %q", text, n, pages, found, want)
			}
		}
		indexByDatabase(db, t)
		mustFind("even odd", needles, 3) // each has more than MaxReads
		mustFind("needle", needles, 1)
		mustFind("odd needle even", needles, 1)
		mustFind("nowhere", nil, 1)
		mustFind("even odd erp-2", nil, 1) // thousands of words begin so, each of one dispatch
		var both []dispatch.ID
		Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM dispatches WHERE site_address = 'new' AND note LIKE '%even%' ORDER BY id DESC").Scan(&both).Error)
		mustFind("even new", both, (len(both)+199)/200) // the last page ends with the new ones
		for text, note := range map[string]string{"odd": "note LIKE '%odd%'", "1 e": "external_id LIKE 'ERP-1%'", "1 odd": "external_id LIKE 'ERP-1%' AND note LIKE '%odd%'", "oddl e": "note = 'oddly'"} {
			all := db.Count(t, "dispatches WHERE "+note)
			if found, pages := search(text); len(found) != all || pages > (all+199)/200+1 {
				t.Errorf("%q: %d of %d are found on %d pages", text, len(found), all, pages)
			}
		}
	})
}

// A search reads a bounded number of rows, whatever is searched and however many dispatches there are; for a rare term, few.
func TestPlansOfASearch(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		manyCompleted(db, t, testkit.Scale(40_000, 100_000))
		indexByDatabase(db, t)
		const rare, count = 200, search.MaxReads + 1 // what is read of a common term
		all := map[string]Reading{}
		for name, c := range map[string]struct {
			q    dispatch.Query
			most int
		}{
			"a rare word":                  {dispatch.Query{Text: "needle"}, rare},
			"a rare word, completed":       {dispatch.Query{Text: "needle", Status: dispatch.Completed}, rare},
			"a rare word, elsewhere":       {dispatch.Query{Text: "needle", Region: "busan"}, rare},
			"an external id":               {dispatch.Query{Text: "ERP-12345"}, rare},
			"an identifier":                {dispatch.Query{Text: fmt.Sprintf("dsp_%026d", 77)}, rare},
			"nothing":                      {dispatch.Query{Text: "nowhere"}, rare},
			"a common word":                {dispatch.Query{Text: "odd"}, count + 700},
			"a common word, and a rare":    {dispatch.Query{Text: "odd needle"}, rare},
			"a common word, in no region":  {dispatch.Query{Text: "odd", Region: "busan"}, count + 700},
			"a common word, and no state":  {dispatch.Query{Text: "odd", Status: dispatch.Expired}, count + 700},
			"two common words, never both": {dispatch.Query{Text: "odd even"}, 2*count + 2*search.MaxReads},
			"beginnings of many words":     {dispatch.Query{Text: "1 e"}, 2*count + 2*search.MaxReads},
		} {
			c.q.Page = dispatch.Page{Limit: 20}
			all[name] = Reading{Do: func() error { return ErrorOfPage(db.Dispatches.List(t.Context(), c.q)) }, Most: c.most}
		}
		db.MustReadFew(t, all)
	})
}

// SQLite says how it would read: by the index of what a search looks for.
func TestPlansOfASearchInSQLite(t *testing.T) {
	t.Parallel()
	db := Pooled(t, servertest.SQLite)
	d := db.Add(t, describe("ERP-7", "Gate 7", ""))
	db.Add(t, describe("", "Gate 8", ""))
	all := map[string]Reading{}
	for _, text := range []string{"erp7 " + string(d.ID), string(d.ID[4:]), "gate"} {
		for _, status := range []dispatch.Status{"", dispatch.Pending, dispatch.Expired} {
			for _, region := range []string{"", "seoul"} {
				q := dispatch.Query{Text: text, Status: status, Region: region}
				all[fmt.Sprintf("%+v", q)] = Reading{Do: func() error { db.ListIDs(t, q); return nil }}
			}
		}
	}
	db.MustReadFew(t, all)
}
