// Package search finds rows by words. A row of another room has an entry for each of its words in a table of that room: words.go says what
// a word is, index.go writes the entries and reads them, and find.go searches a list.
package search
