package repositorytest

import (
	"testing"
)

// Plan is what SQLite says that it does for a statement.
func (db *Bench) Plan(t *testing.T, statement string) (steps []string) {
	t.Helper()
	rows, err := db.Raw.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var step string
		Must(t, rows.Scan(new(int), new(int), new(int), &step))
		steps = append(steps, step)
	}
	Must(t, rows.Err())
	return steps
}
