// Package telemetry is what operators see of a process: its metrics, its traces and its log.
package telemetry
