package migrations_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/servertest"
	"firsttap/testkit"
)

// A file for TiDB replaces the one for MySQL that has its name. Without that one it would be a version of its own.
func TestTiDBReplacesFilesOfMySQL(t *testing.T) {
	names, err := filepath.Glob("tidb/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join("mysql", filepath.Base(name))); err != nil {
			t.Error(err)
		}
	}
}

// The schema on TiDB is that of MySQL: what is different is how it is made.
func TestTiDBHasTheSchemaOfMySQL(t *testing.T) {
	testkit.OnlyOnTiDB(t)
	t.Parallel()
	describe := func(kind string) []string {
		s := newSchema(t, kind)
		s.mustUp(t, steps)
		all := texts(t, s.db, `SELECT CONCAT_WS('|', table_name, ordinal_position, column_name, data_type, COALESCE(character_maximum_length, ''),
				is_nullable, COALESCE(column_default, 'no default'), IF(generation_expression = '', '', 'generated'))
			FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name <> 'goose_db_version'
			UNION ALL SELECT CONCAT_WS('|', table_name, index_name, seq_in_index, column_name, non_unique)
			FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name <> 'goose_db_version'`)
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(describe(servertest.MySQL), describe(servertest.TiDB)); diff != "" {
		t.Error(diff)
	}
}
