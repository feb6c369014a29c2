package database

import "strings"

// RowsPerStatement bounds one statement: SQLite takes 32,766 parameters.
const RowsPerStatement = 1000

// FewRows bounds an INSERT that is often sent: the driver of SQLite takes time by the square of a statement's parameters.
const FewRows = 200

// Placeholders returns n groups of k question marks.
func Placeholders(n, k int) string {
	group := "(" + strings.TrimSuffix(strings.Repeat("?,", k), ",") + ")"
	return strings.TrimSuffix(strings.Repeat(group+",", n), ",")
}

// Nullable returns s, or NULL if s is empty.
func Nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// StringOrEmpty returns the text of a column, "" for NULL.
func StringOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Truncate cuts a text of any origin to the size of its column.
func Truncate(words string, size int) string {
	runes := []rune(words) // invalid UTF-8 becomes U+FFFD
	return string(runes[:min(len(runes), size)])
}
