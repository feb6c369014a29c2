// Package telemetry provides the metrics, the traces and the logger of a process.
package telemetry
