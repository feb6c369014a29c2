package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// The index of dispatches is the table dispatch_words, by which Store.search finds them.
//
// A dispatch whose round is not indexed_round may not have its words there: the migration to this version added the table empty, and an
// instance of the version before knows no index. A round's text never changes, so a claim need not touch the index. The column unindexed
// finds these dispatches. Until RunIndexer has indexed them, a search reads them, too. An instance of the version before leaves the words of a
// text that it replaces, or of a dispatch that it removes.

func (s *Store) dispatchWords() wordIndex {
	return wordIndex{entries: "dispatch_words", id: "dispatch_id", rows: "dispatches", unindexed: s.unindexedDispatches()}
}

// changeWords replaces the words of a dispatch in the index.
func (s *Store) changeWords(tx *gorm.DB, id dispatch.ID, was, is []string) error {
	x := s.dispatchWords()
	if err := s.removeWords(tx, x, string(id), without(was, is)); err != nil {
		return err
	}
	return s.addWords(tx, x, wordEntries(id, without(is, was)))
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
		if err := s.addWords(tx, s.dispatchWords(), entries); err != nil {
			return err
		}
		return unavailable(tx.Exec("UPDATE dispatches"+s.dialect.forceIndex("PRIMARY")+" SET indexed_round = round WHERE id IN ?", locked).Error)
	})
	return n, err
}

// IndexAllDispatches indexes dispatches until none is left but those that are being changed, and returns how many there were. Several processes may do so
// together, and any may be interrupted.
func (s *Store) IndexAllDispatches(ctx context.Context) (total int, err error) {
	return untilNone(ctx, s.IndexDispatches)
}
