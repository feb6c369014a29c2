package repository

import (
	"cmp"
	"context"
	"slices"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// The index of dispatches is the table dispatch_words, by which Store.search finds them. Whatever creates a dispatch, changes its text or
// removes it updates the index in its own transaction.
//
// A dispatch whose round is not indexed_round may not have its words there: the migration to this version added the table empty, and an
// instance of the version before knows no index. A round's text never changes, so a claim need not touch the index. The column unindexed
// finds these dispatches. Until RunIndexer has indexed them, a search reads them, too.
//
// A search checks the rows that it finds. So a word that is left over in the index finds nothing: an instance of the version before leaves
// those of a text that it replaces, or of a dispatch that it removes.

// changeWords replaces the words of a dispatch in the index.
func (s *Store) changeWords(tx *gorm.DB, id dispatch.ID, was, is []string) error {
	if err := s.removeWords(tx, id, without(was, is)); err != nil {
		return err
	}
	return s.addWords(tx, wordEntries(id, without(is, was)))
}

// without returns the words that are not among the others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return slices.Contains(others, word) })
}

func (s *Store) removeWords(tx *gorm.DB, id dispatch.ID, words []string) error {
	if len(words) == 0 {
		return nil
	}
	remove := "DELETE FROM dispatch_words WHERE word IN ? AND dispatch_id = ?"
	if s.dialect.skipLocked != "" { // a server may look at all rows of a small table instead, and wait for those that others change
		remove = "DELETE w FROM dispatch_words w FORCE INDEX (PRIMARY) WHERE w.word IN ? AND w.dispatch_id = ?"
	}
	return unavailable(tx.Exec(remove, words, id).Error)
}

// wordEntry is a row of dispatch_words.
type wordEntry struct {
	word       string
	dispatchID dispatch.ID
}

func wordEntries(id dispatch.ID, words []string) []wordEntry {
	entries := make([]wordEntry, len(words))
	for i, word := range words {
		entries[i] = wordEntry{word, id}
	}
	return entries
}

// addWords writes the entries that are not there yet, in the order of their keys: transactions at the same time don't wait for each other
// in a circle.
func (s *Store) addWords(tx *gorm.DB, entries []wordEntry) error {
	slices.SortFunc(entries, func(a, b wordEntry) int {
		return cmp.Or(cmp.Compare(a.word, b.word), cmp.Compare(a.dispatchID, b.dispatchID))
	})
	already := " ON DUPLICATE KEY UPDATE word = VALUES(word)"
	if s.dialect.skipLocked == "" {
		already = " ON CONFLICT DO NOTHING"
	}
	for part := range slices.Chunk(entries, entriesPerStatement) {
		args := make([]any, 0, 2*len(part))
		for _, e := range part {
			args = append(args, e.word, e.dispatchID)
		}
		err := tx.Exec("INSERT INTO dispatch_words (word, dispatch_id) VALUES "+placeholders(len(part), 2)+already, args...).Error
		if err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// unindexedDispatches is the SQL for the dispatches that may not have their words in the index.
func (s *Store) unindexedDispatches() string {
	return "dispatches" + s.dialect.forceIndex("ix_dispatches_unindexed") + " WHERE unindexed = 1"
}

// IndexDispatches indexes up to indexBatch dispatches that are not indexed, the newest first, and returns how many. It skips those that are
// being changed. ErrUnavailable, ErrUnknown.
func (s *Store) IndexDispatches(ctx context.Context) (n int, err error) {
	var ids []dispatch.ID // without locks, as there are mostly none
	err = s.general.WithContext(ctx).Raw("SELECT id FROM "+s.unindexedDispatches()+" ORDER BY id DESC LIMIT ?", indexBatch).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return 0, unavailable(err)
	}
	err = s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		var rows []dispatchRow
		err := tx.Raw("SELECT id, "+textColumns+" FROM dispatches"+s.dialect.forceIndex("PRIMARY")+
			" WHERE id IN ? AND unindexed = 1 ORDER BY id"+s.dialect.skipLocked, ids).Scan(&rows).Error
		if n = len(rows); err != nil || n == 0 {
			return unavailable(err)
		}
		var entries []wordEntry
		locked := make([]dispatch.ID, n)
		for i, row := range rows {
			locked[i] = row.ID
			entries = append(entries, wordEntries(row.ID, row.words())...)
		}
		if err := s.addWords(tx, entries); err != nil {
			return err
		}
		return unavailable(tx.Exec("UPDATE dispatches"+s.dialect.forceIndex("PRIMARY")+" SET indexed_round = round WHERE id IN ?", locked).Error)
	})
	return n, err
}

// IndexAllDispatches indexes dispatches until none is left that is not indexed, and returns how many there were. Several processes may do so
// together, and any may be interrupted.
func (s *Store) IndexAllDispatches(ctx context.Context) (total int, err error) {
	return untilNone(ctx, s.IndexDispatches)
}
