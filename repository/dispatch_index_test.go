package repository

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

var someTexts = []string{"강남구 테헤란로 1", "강남대로 12-3", "Gate 7", "gate 77 강남", "O'Neill", "", "x_y 100%", "x-y"}

// reword is what the office does when it changes the address and the note.
func reword(address, note string) change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		terms := d.Terms
		terms.Site.Address, terms.Note = address, note
		return d.Update(d.Version, terms, d.Window, dispatch.System, now)
	}
}

// wantedWords returns the words that the index has to have, by dispatch.
func (db *database) wantedWords(t testing.TB) map[string]bool {
	t.Helper()
	var rows []dispatchRow
	must(t, db.serve.WithContext(t.Context()).Find(&rows).Error)
	wanted := map[string]bool{}
	for i := range rows {
		for _, word := range rows[i].words() {
			wanted[word+" "+string(rows[i].ID)] = true
		}
	}
	return wanted
}

func (db *database) indexedWords(t testing.TB) map[string]bool {
	t.Helper()
	var rows []struct{ Word, DispatchID string }
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT * FROM dispatch_words").Scan(&rows).Error)
	all := map[string]bool{}
	for _, row := range rows {
		all[row.Word+" "+row.DispatchID] = true
	}
	return all
}

// mustHaveWords fails the test unless every dispatch is indexed by its words, and no others.
func (db *database) mustHaveWords(t testing.TB) {
	t.Helper()
	if want, got := db.wantedWords(t), db.indexedWords(t); !maps.Equal(want, got) {
		t.Errorf("the index has\n%q, want\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// mustFind fails the test unless a search finds the dispatches whose address or note has a word that begins so, as it is written.
func (db *database) mustFind(t testing.TB, texts ...string) {
	t.Helper()
	everything, _, err := db.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 10_000}})
	must(t, err)
	for _, text := range texts {
		db.mustFindOf(t, everything, text)
	}
}

func (db *database) mustFindOf(t testing.TB, everything []dispatch.Dispatch, text string) {
	t.Helper()
	found, next, err := db.List(t.Context(), dispatch.Query{Text: text, Page: dispatch.Page{Limit: 10_000}})
	must(t, err)
	var want []dispatch.ID
	for _, d := range everything {
		for _, word := range strings.Fields(d.Site.Address + " " + d.Note) {
			if strings.HasPrefix(word, text) {
				want = append(want, d.ID)
				break
			}
		}
	}
	if !slices.Equal(ids(found), want) || next != "" {
		t.Errorf("%q finds %q and %q, want %q", text, ids(found), next, want)
	}
}

// Words follow what happens to a dispatch, in the transaction in which it happens.
func TestWordsFollowTheDispatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db = db.keeping(t, Retention{Ended: 365 * day})
		d, other := db.add(t, describe("ERP-7", "Gate 7", "old note")), db.add(t, describe("", "Gate 7", "old"))
		v := db.drivers(t, 1)[0]
		db.mustHaveWords(t)
		db.mustUpdate(t, d.ID, reword("Gate 8", "new note"))
		db.mustHaveWords(t)
		db.mustUpdate(t, d.ID, reword("Gate 8", ""))
		db.mustUpdate(t, d.ID, touch)
		db.mustHaveWords(t)
		db.mustAccept(t, d.ID, v.ID)
		db.mustUpdate(t, d.ID, withdraw)
		db.mustUpdate(t, d.ID, cancel)
		db.mustHaveWords(t)
		words := len(db.indexedWords(t))
		_, err := db.Update(t.Context(), other.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, _ := reword("elsewhere", "")(d, now)
			return append(events, events...), nil // the same event twice is refused
		})
		if err == nil {
			t.Error("a change that can't be written was written")
		}
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			made, events := dispatch.New(dispatch.NewID(now), "ERP-7", someTerms(now), dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}, dispatch.System, now)
			return made, events, nil
		})
		mustBeError(t, "the same external id", err, dispatch.ErrDuplicateExternalID)
		if n := len(db.indexedWords(t)); n != words {
			t.Errorf("%d words are there after changes that failed, %d before", n, words)
		}
		db.exec(t, "UPDATE dispatches SET updated_at = 1")
		must(t, errorOf(db.Prune(t.Context())))
		db.mustCount(t, 1, "dispatches")
		db.mustHaveWords(t)
	})
}

// Whatever changes dispatches, the index has the words of their rows, and a search finds what these say.
func TestIndexOfDispatchesIsTrue(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		text := func() string { return someTexts[r.IntN(len(someTexts))] }
		v := db.drivers(t, 1)[0].ID
		made := []dispatch.ID{db.add(t, nil).ID}
		searches := []string{"강남", "77", "x", "12-3"}
		for range testkit.Scale(60, 120) {
			id := made[r.IntN(len(made))]
			switch r.IntN(4) {
			case 0:
				made = append(made, db.add(t, describe("", text(), text())).ID)
			case 1, 2:
				db.mustUpdate(t, id, reword(text(), text()))
			case 3:
				if _, err := db.accept(t.Context(), id, v); err == nil {
					db.exec(t, "UPDATE claims SET outcome = 'UNASSIGNED'") // the driver is not refused later
					db.mustUpdate(t, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
						return d.Unassign(d.Version, dispatch.System, "", now)
					})
				}
			}
			db.mustHaveWords(t)
			db.mustFind(t, searches[r.IntN(len(searches))], searches[r.IntN(len(searches))])
			if t.Failed() {
				return
			}
		}
		db.mustFind(t, searches...)
	})
}

// Several instances change the same dispatches at once.
func TestIndexOfDispatchesBesideOthers(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var made []dispatch.ID
		for range 5 {
			made = append(made, db.add(t, nil).ID)
		}
		mustAll(t, 3, func(i int) (err error) {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for n := 0; n < testkit.Scale(20, 40) && err == nil; n++ {
				text := someTexts[r.IntN(len(someTexts))]
				_, err = db.Update(t.Context(), made[r.IntN(len(made))], reword(text, text))
			}
			return err
		})
		db.mustHaveWords(t)
		db.mustFind(t, "강남", "77", "x", "12-3")
	})
}
