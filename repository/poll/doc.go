// Package poll tells when something is due, anywhere in the database. It owns no table: it reads the first row of each index that is sorted
// by the time at which rows become due, all in one statement a second.
package poll
