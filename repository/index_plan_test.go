package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// mustReadEveryIndex: every index costs each write of its table, so each is read: it is unique, or a query names it, or Prune or one of the
// queries below is answered by it.
func (db *database) mustReadEveryIndex(t *testing.T, z sized) {
	t.Helper()
	source := sourceOfPackage(t)
	db.exec(t, "INSERT INTO audit (id, at, actor, request_id, action, target, detail) SELECT CONCAT('aud_', LPAD(n, 26, '0')), n, CONCAT('key_', n MOD 100), '', 'x', CONCAT('drv_', n MOD 90), '{}' FROM "+
		numbers(listed)+" ORDER BY n")
	db.exec(t, "UPDATE drivers SET token_generation = 1, tokens_revoked_at = 1 WHERE id = ?", z.driver.ID)
	db.exec(t, "ANALYZE TABLE audit, drivers")
	chosen := map[string]bool{}
	for _, index := range pruneIndexes { // TestPlansOfPrune
		chosen[index] = true
	}
	for _, read := range []func() error{
		func() error {
			return errorOf(cursorOf(db.Audit(t.Context(), dispatch.AuditQuery{Target: "drv_7", Page: dispatch.Page{Limit: aPage}})))
		},
		func() error {
			return errorOf(cursorOf(db.Audit(t.Context(), dispatch.AuditQuery{Actor: "key_7", Page: dispatch.Page{Limit: aPage}})))
		},
		func() error {
			return errorOf(cursorOf(db.Attempts(t.Context(), z.busy, 1, dispatch.Page{Limit: aPage})))
		},
		func() error { return errorOf(db.Revocations(t.Context())) },
	} {
		var err error
		for _, s := range statements(t, []*gorm.DB{db.serve, db.serve}, func() { err = read() }) {
			for _, p := range db.explain(t, s) {
				chosen[p["key"]] = true
			}
		}
		must(t, err)
	}
	var secondary []string
	must(t, db.serve.WithContext(t.Context()).Raw(`SELECT DISTINCT index_name FROM information_schema.statistics
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

// sourceOfPackage is the text of this package, without its tests.
func sourceOfPackage(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	must(t, err)
	var all strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		must(t, err)
		all.Write(text)
	}
	return all.String()
}
