// Package systemtest tests FirstTap as processes on real servers: races, faults, kills, rolling restarts, failovers. What it
// exports is the harness, which the push benchmarks and package app's tests use too.
package systemtest
