package database

import (
	"strconv"
	"strings"
	"time"

	"firsttap/repository/primary"
)

// text is the SQL of a kind of server. Statements are text that all of them understand, but for words in braces, which stand for what
// differs:
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
	now                            func() string
	readOnly, forShare, skipLocked string
	sqlite                         bool
}

// MySQLNow is the SQL for the time of a MySQL or MariaDB, in microseconds since 1970.
const MySQLNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

var (
	mysqlText = text{
		now: func() string { return MySQLNow }, readOnly: primary.ReadOnlySQL,
		forShare: "LOCK IN SHARE MODE", // MariaDB has no FOR SHARE
		// This needs READ COMMITTED: under REPEATABLE READ the UPDATE that follows waits for any open transaction.
		skipLocked: "FOR UPDATE SKIP LOCKED",
	}
	// TiDB has no shared locks. It reads SKIP LOCKED and locks nothing: two relays would lease the same rows. So they wait for each other.
	tidbText = text{now: mysqlText.now, readOnly: primary.ReadOnlySQL, forShare: "FOR UPDATE", skipLocked: "FOR UPDATE"}
)

// sqliteText returns the SQL for a file with that clock. Its reads are never old, its transactions lock the file, and it chooses these
// indexes itself.
func sqliteText(now func() time.Time) text {
	return text{now: func() string { return strconv.FormatInt(now().UnixMicro(), 10) }, readOnly: "0 = 1", sqlite: true}
}

// MySQLSQL returns a statement as MySQL and MariaDB get it.
func MySQLSQL(statement string) string { return mysqlText.of(statement) }

// of returns the SQL of a statement.
func (t *text) of(statement string) string {
	before, rest, found := strings.Cut(statement, "{")
	if !found {
		return statement
	}
	now := "" // the same for all of the statement
	var b strings.Builder
	b.Grow(len(statement) + len(statement)/8)
	for found {
		b.WriteString(before)
		var word string
		word, rest, _ = strings.Cut(rest, "}")
		if word == "now" {
			if now == "" {
				now = t.now()
			}
			b.WriteString(now)
		} else {
			b.WriteString(t.word(word))
		}
		before, rest, found = strings.Cut(rest, "{")
	}
	b.WriteString(before)
	return b.String()
}

func (t *text) word(word string) string {
	name, of, _ := strings.Cut(word, " ")
	either := func(mysql, sqlite string) string {
		if t.sqlite {
			return sqlite
		}
		return mysql
	}
	switch name {
	case "read_only":
		return t.readOnly
	case "for_update":
		return either("FOR UPDATE", "")
	case "for_share":
		return t.forShare
	case "skip_locked":
		return t.skipLocked
	case "force":
		return either("FORCE INDEX ("+of+")", "")
	case "or_update":
		return either("ON DUPLICATE KEY UPDATE", "ON CONFLICT DO UPDATE SET")
	case "new":
		return either("VALUES("+of+")", "excluded."+of)
	case "delete":
		return either("DELETE "+of, "DELETE")
	case "json_contains":
		list, text, _ := strings.Cut(of, ",")
		return either("JSON_CONTAINS("+of+")", "EXISTS (SELECT 1 FROM json_each("+list+") WHERE value = json_extract("+text+", '$'))")
	}
	return "{" + word + "}"
}
