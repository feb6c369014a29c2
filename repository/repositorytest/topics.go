package repositorytest

import "testing"

// TopicRow is a row of the table topics.
type TopicRow struct {
	Name   string `gorm:"primaryKey"`
	Ended  bool
	State  int
	NextAt int64
	Claim  string
}

// TableName implements gorm.Tabler.
func (TopicRow) TableName() string { return "topics" }

// AddTopic writes a topic.
func (db *Bench) AddTopic(t testing.TB, row TopicRow) {
	t.Helper()
	Must(t, db.Decide.With(t.Context()).Create(&row).Error)
}
