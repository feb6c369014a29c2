// Package export reads all that is kept about a driver. It owns no table.
package export
