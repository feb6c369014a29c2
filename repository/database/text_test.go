package database_test

import (
	"testing"

	"firsttap/internal/testkit"
	"firsttap/repository/database"
)

// Each text of a statement is expanded once, and what is kept for that is bounded.
func TestTextsAreKept(t *testing.T) {
	testkit.Equal(t, "a few", 10, database.KeptTexts(10, 1))
	testkit.Equal(t, "after too many", 1, database.KeptTexts(database.MaxTexts+1, 1))
	testkit.Equal(t, "INSERTs of many rows", 0, database.KeptTexts(10, 10_000))
}

// A word that is unknown stays, and so does what is no word.
func TestWords(t *testing.T) {
	for statement, want := range map[string]string{
		"SELECT {for_update}":                                       "SELECT FOR UPDATE",
		"FROM taps t {force PRIMARY} WHERE":                         "FROM taps t FORCE INDEX (PRIMARY) WHERE",
		"{json_contains d.regions, ?} AND {unknown}":                "JSON_CONTAINS(d.regions, ?) AND {unknown}",
		`INSERT INTO t VALUES ('{"a": 1}') {or_update} a = {new a}`: `INSERT INTO t VALUES ('{"a": 1}') ON DUPLICATE KEY UPDATE a = VALUES(a)`,
	} {
		testkit.Equal(t, statement, want, database.MySQLSQL(statement))
	}
}
