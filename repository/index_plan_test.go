package repository_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// mustReadEveryIndex: every index costs each write of its table, so each is read: it is unique, or a query names it, or Prune or one of the
// queries below is answered by it.
func mustReadEveryIndex(db *Bench, t *testing.T, z Sized) {
	t.Helper()
	source := sourceOfPackage(t)
	db.Exec(t, "INSERT INTO audit (id, at, actor, request_id, action, target, detail) SELECT CONCAT('aud_', LPAD(n, 26, '0')), n, CONCAT('key_', n MOD 100), '', 'x', CONCAT('drv_', n MOD 90), '{}' FROM "+
		Numbers(Listed)+" ORDER BY n")
	db.Exec(t, "UPDATE drivers SET token_generation = 1, tokens_revoked_at = 1 WHERE id = ?", z.Driver.ID)
	db.Exec(t, "ANALYZE TABLE audit, drivers")
	chosen := map[string]bool{}
	for _, index := range pruneIndexes { // TestPlansOfPrune
		chosen[index] = true
	}
	for _, read := range []func() error{
		func() error {
			return ErrorOf(CursorOf(db.Audit(t.Context(), dispatch.AuditQuery{Target: "drv_7", Page: dispatch.Page{Limit: aPage}})))
		},
		func() error {
			return ErrorOf(CursorOf(db.Audit(t.Context(), dispatch.AuditQuery{Actor: "key_7", Page: dispatch.Page{Limit: aPage}})))
		},
		func() error {
			return ErrorOf(CursorOf(db.Attempts(t.Context(), z.Busy, 1, dispatch.Page{Limit: aPage})))
		},
		func() error { return ErrorOf(db.Revocations(t.Context())) },
	} {
		var err error
		for _, s := range Statements(t, []database.Tx{db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() { err = read() }) {
			for _, p := range db.Explain(t, s) {
				chosen[p["key"]] = true
			}
		}
		Must(t, err)
	}
	var secondary []string
	Must(t, db.Serve.With(t.Context()).Raw(`SELECT DISTINCT index_name FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND non_unique = 1`).Scan(&secondary).Error)
	if len(secondary) < 20 {
		t.Errorf("only %d indexes: %v", len(secondary), secondary)
	}
	for _, index := range secondary {
		named := regexp.MustCompile(`\b` + index + `\b`).MatchString(source)
		if !named && !chosen[index] {
			t.Errorf("no query reads %s", index)
		}
	}
}

// sourceOfPackage is the text of all rooms, without their tests.
func sourceOfPackage(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*/*.go")
	Must(t, err)
	var all strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		Must(t, err)
		all.Write(text)
	}
	return all.String()
}
