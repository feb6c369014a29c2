package repositorytest

import (
	"testing"

	"firsttap/repository/topics"
)

// AddTopic writes a topic.
func (db *Bench) AddTopic(t testing.TB, row topics.Row) {
	t.Helper()
	Must(t, db.Decide.With(t.Context()).Create(&row).Error)
}
