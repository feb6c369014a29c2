package database

import (
	"maps"
	"regexp"
	"strings"
	"sync"

	"firsttap/repository/primary"
)

// text expands statements for a kind of server. Statements are text that all of them understand, but for words in braces, which stand for
// what differs:
//
//	{now}                   the database's clock in microseconds, the same everywhere in a statement
//	{read_only}             whether the server takes no writes: then its answers may be old
//	{for_update}            locks the rows that a SELECT finds
//	{for_share}             the same, for others that do so too
//	{skip_locked}           locks the rows that a SELECT finds and skips those that are locked
//	{force i}               after a table's name and alias: makes the server use index i
//	{or_update}             after an INSERT: updates the row that has the key already
//	{new c}                 after {or_update}: the column's value that was to be inserted
//	{delete t}              deletes the rows of the table with the alias t
//	{json_contains list, ?} whether a JSON array contains a JSON text
//
// Without {force}, a server may read the whole table backwards until it has found a page, or an index from its end to the page. MariaDB may
// also scan a small table for many keys: a write would lock each row for a moment, and a lease skips the rows that are locked.
//
// An unknown word stays, and the database refuses the statement.
type text struct {
	words map[string]string

	mu       sync.RWMutex
	expanded map[string][]string // by statement, so that each is expanded once: what stands before, between and after clockWord
}

// Bounds of text.expanded. The program's statements are some hundreds, but for lists of different lengths; long ones are INSERTs of many
// rows, which take longer than their expansion by far.
const maxExpanded, maxExpandedSize = 2000, 4096

// MySQLNow is the SQL for the time of a MySQL or MariaDB, in microseconds since 1970.
const MySQLNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// The words of each kind of server; $1 and $2 are what follows a word.
var (
	mysqlWords = map[string]string{
		"now": MySQLNow, "read_only": primary.ReadOnlySQL,
		"for_update": "FOR UPDATE", "for_share": "LOCK IN SHARE MODE", // MariaDB has no FOR SHARE
		// This needs READ COMMITTED: under REPEATABLE READ the UPDATE that follows waits for any open transaction.
		"skip_locked": "FOR UPDATE SKIP LOCKED",
		"force":       "FORCE INDEX ($1)", "or_update": "ON DUPLICATE KEY UPDATE", "new": "VALUES($1)", "delete": "DELETE $1",
		"json_contains": "JSON_CONTAINS($1, $2)",
	}
	// TiDB has no shared locks. It reads SKIP LOCKED and locks nothing: two relays would lease the same rows. So they wait for each other.
	tidbWords = with(mysqlWords, map[string]string{"for_share": "FOR UPDATE", "skip_locked": "FOR UPDATE"})
	// SQLite's reads are never old, its transactions lock the file, and it chooses these indexes itself.
	sqliteWords = map[string]string{
		"now": clockWord, "read_only": "0 = 1", "for_update": "", "for_share": "", "skip_locked": "", "force": "",
		"or_update": "ON CONFLICT DO UPDATE SET", "new": "excluded.$1", "delete": "DELETE",
		"json_contains": "EXISTS (SELECT 1 FROM json_each($1) WHERE value = json_extract($2, '$'))",
	}
	// A replica answers by the primary's time.
	replicaWords = with(mysqlWords, map[string]string{"now": clockWord})
)

// clockWord stands for the time where the database is not asked for it: each statement has its own.
const clockWord = "{clock}"

func with(words, others map[string]string) map[string]string {
	words = maps.Clone(words)
	maps.Copy(words, others)
	return words
}

func newText(words map[string]string) *text {
	return &text{words: words, expanded: map[string][]string{}}
}

// MySQLSQL returns a statement as MySQL and MariaDB get it.
func MySQLSQL(statement string) string { return newText(mysqlWords).of(statement, nil) }

// of returns the SQL of a statement; clock is needed if the words name no time. It is safe for concurrent use.
func (t *text) of(statement string, clock func() string) string {
	if !strings.Contains(statement, "{") {
		return statement
	}
	t.mu.RLock()
	parts := t.expanded[statement]
	t.mu.RUnlock()
	if parts == nil {
		parts = strings.Split(wordInBraces.ReplaceAllStringFunc(statement, t.word), clockWord)
		if len(statement) <= maxExpandedSize {
			t.mu.Lock()
			if len(t.expanded) == maxExpanded {
				clear(t.expanded)
			}
			t.expanded[statement] = parts
			t.mu.Unlock()
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, clock())
}

var wordInBraces = regexp.MustCompile(`{\w+[^}]*}`)

func (t *text) word(inBraces string) string {
	name, of, _ := strings.Cut(strings.Trim(inBraces, "{}"), " ")
	sql, known := t.words[name]
	if !known {
		return inBraces
	}
	first, second, _ := strings.Cut(of, ", ")
	return strings.NewReplacer("$1", first, "$2", second).Replace(sql)
}
