// Package board counts for the backoffice: dispatches by state, drivers on duty, and how fast a driver taps. It owns the table supply.
package board
