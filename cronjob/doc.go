// Package cronjob says what a scheduled job and its runs are, and which run is next. It is a leaf: the ledger of the runs is
// in package repository, the scheduler in package schedule.
package cronjob
