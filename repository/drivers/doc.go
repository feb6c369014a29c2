// Package drivers keeps drivers and says which of them may get a dispatch. It owns the tables drivers, driver_regions, driver_counts and
// driver_words.
//
//   - drivers.go: to add, read and change a driver; contact numbers that are another's: phones.go; erasure: erase.go
//   - driver_index.go: who is on duty where, for the eligible; candidates.go: how many are eligible, and why the others are not
//   - drivers_search.go and driver_words.go: the list, and the search by name, number or uid
//   - tokens.go: which tokens of drivers are valid
package drivers
