package dispatches_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/dispatches"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
)

var someTexts = []string{"강남구 테헤란로 1", "강남대로 12-3", "Gate 7", "gate 77 강남", "O'Neill", "", "x_y 100%", "x-y"}

// reword is what the office does when it changes the address and the note.
func reword(address, note string) Change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		terms := d.Terms
		terms.Site.Address, terms.Note = address, note
		return d.Update(d.Version, terms, d.Window, dispatch.System, now)
	}
}

// wantedWords returns the words that the index has to have, by dispatch.
func wantedWords(db *Bench, t testing.TB) map[string]bool {
	t.Helper()
	var rows []dispatches.Row
	Must(t, db.Serve.With(t.Context()).Find(&rows).Error)
	wanted := map[string]bool{}
	for i := range rows {
		for _, word := range rows[i].Words() {
			wanted[word+" "+string(rows[i].ID)] = true
		}
	}
	return wanted
}

func indexedWords(db *Bench, t testing.TB) map[string]bool {
	t.Helper()
	var rows []struct{ Word, DispatchID string }
	Must(t, db.Serve.With(t.Context()).Raw("SELECT * FROM dispatch_words").Scan(&rows).Error)
	all := map[string]bool{}
	for _, row := range rows {
		all[row.Word+" "+row.DispatchID] = true
	}
	return all
}

// mustHaveWords fails the test unless every dispatch is indexed by its words, and no others.
func mustHaveWords(db *Bench, t testing.TB) {
	t.Helper()
	if want, got := wantedWords(db, t), indexedWords(db, t); !maps.Equal(want, got) {
		t.Errorf("the index has\n%q, want\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// mustFind fails the test unless a search finds the dispatches whose address or note has a word that begins so, as it is written.
func mustFind(db *Bench, t testing.TB, texts ...string) {
	t.Helper()
	everything, _, err := db.Dispatches.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 10_000}})
	Must(t, err)
	for _, text := range texts {
		mustFindOf(db, t, everything, text)
	}
}

func mustFindOf(db *Bench, t testing.TB, everything []dispatch.Dispatch, text string) {
	t.Helper()
	found, next, err := db.Dispatches.List(t.Context(), dispatch.Query{Text: text, Page: dispatch.Page{Limit: 10_000}})
	Must(t, err)
	var want []dispatch.ID
	for _, d := range everything {
		for _, word := range strings.Fields(d.Site.Address + " " + d.Note) {
			if strings.HasPrefix(word, text) {
				want = append(want, d.ID)
				break
			}
		}
	}
	if !slices.Equal(Ids(found), want) || next != "" {
		t.Errorf("%q finds %q and %q, want %q", text, Ids(found), next, want)
	}
}

// Words follow what happens to a dispatch, in the transaction in which it happens.
func TestWordsFollowTheDispatch(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db = db.Keeping(t, retention.Periods{Ended: 365 * Day})
		d, other := db.Add(t, describe("ERP-7", "Gate 7", "old note")), db.Add(t, describe("", "Gate 7", "old"))
		v := db.Fleet(t, 1)[0]
		mustHaveWords(db, t)
		db.MustUpdate(t, d.ID, reword("Gate 8", "new note"))
		mustHaveWords(db, t)
		db.MustUpdate(t, d.ID, reword("Gate 8", ""))
		db.MustUpdate(t, d.ID, Touch)
		mustHaveWords(db, t)
		db.MustAccept(t, d.ID, v.ID)
		db.MustUpdate(t, d.ID, Withdraw)
		db.MustUpdate(t, d.ID, Cancel)
		mustHaveWords(db, t)
		words := len(indexedWords(db, t))
		_, err := db.Update(t.Context(), other.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, _ := reword("elsewhere", "")(d, now)
			return append(events, events...), nil // the same event twice is refused
		})
		if err == nil {
			t.Error("a change that can't be written was written")
		}
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			made, events := dispatch.New(dispatch.NewID(now), "ERP-7", SomeTerms(now), dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}, dispatch.System, now)
			return made, events, nil
		})
		MustBeError(t, "the same external id", err, dispatch.ErrDuplicateExternalID)
		if n := len(indexedWords(db, t)); n != words {
			t.Errorf("%d words are there after changes that failed, %d before", n, words)
		}
		db.Exec(t, "UPDATE dispatches SET updated_at = 1")
		Must(t, ErrorOf(db.Prune(t.Context())))
		db.MustCount(t, 1, "dispatches")
		mustHaveWords(db, t)
	})
}

// Whatever changes dispatches, the index has the words of their rows, and a search finds what these say.
func TestIndexOfDispatchesIsTrue(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		text := func() string { return someTexts[r.IntN(len(someTexts))] }
		v := db.Fleet(t, 1)[0].ID
		made := []dispatch.ID{db.Add(t, nil).ID}
		searches := []string{"강남", "77", "x", "12-3"}
		for range testkit.Scale(60, 120) {
			id := made[r.IntN(len(made))]
			switch r.IntN(4) {
			case 0:
				made = append(made, db.Add(t, describe("", text(), text())).ID)
			case 1, 2:
				db.MustUpdate(t, id, reword(text(), text()))
			case 3:
				if _, err := db.Accept(t.Context(), id, v); err == nil {
					db.Exec(t, "UPDATE claims SET outcome = 'UNASSIGNED'") // the driver is not refused later
					db.MustUpdate(t, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
						return d.Unassign(d.Version, dispatch.System, "", now)
					})
				}
			}
			mustHaveWords(db, t)
			mustFind(db, t, searches[r.IntN(len(searches))], searches[r.IntN(len(searches))])
			if t.Failed() {
				return
			}
		}
		mustFind(db, t, searches...)
	})
}

// Several instances change the same dispatches at once.
func TestIndexOfDispatchesBesideOthers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		var made []dispatch.ID
		for range 5 {
			made = append(made, db.Add(t, nil).ID)
		}
		MustAll(t, 3, func(i int) (err error) {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for n := 0; n < testkit.Scale(20, 40) && err == nil; n++ {
				text := someTexts[r.IntN(len(someTexts))]
				_, err = db.Update(t.Context(), made[r.IntN(len(made))], reword(text, text))
			}
			return err
		})
		mustHaveWords(db, t)
		mustFind(db, t, "강남", "77", "x", "12-3")
	})
}
