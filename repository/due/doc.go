// Package due changes dispatches when their time has come: offers end, drivers are reminded of work, and work that nobody has completed is
// closed. It owns no table.
package due
