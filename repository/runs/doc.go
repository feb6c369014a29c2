// Package runs keeps the ledger of scheduled jobs: one run at a time of each, on one of many instances. It owns the tables jobs and
// job_runs.
package runs
