// Package systemtest tests whole FirstTap processes on real servers: races, faults, kills, rolling restarts, failovers. It
// exports its harness for benchmarks and for the tests of package app.
package systemtest
