// Package dbcheck finds out what is wrong with a database's server for the doctor command, and what to do about it. It changes nothing.
package dbcheck
