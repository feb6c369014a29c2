package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3"
)

// statement is an SQL statement of a file.
type statement struct {
	sql string
	// table is the table whose definition the statement changes, "" for a statement that changes rows.
	table string
	// creates is true for CREATE TABLE.
	creates bool
}

// file is a parsed migration for MySQL.
type file struct {
	name     string
	version  int64
	up, down []statement
}

func (f *file) statements(up bool) []statement {
	if up {
		return f.up
	}
	return f.down
}

// digest returns a hash of the statements.
func digest(statements []statement) string {
	h := sha256.New()
	for _, s := range statements {
		fmt.Fprintf(h, "%s\x00", s.sql)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func readFiles(folder fs.FS) ([]*file, error) {
	names, err := fs.Glob(folder, "*.sql")
	if err != nil {
		return nil, err
	}
	var all []*file
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		f := &file{name: path.Base(name)}
		if f.version, err = goose.NumericComponent(name); err != nil {
			return nil, fmt.Errorf("migrations: %s: %w", name, err)
		}
		up, down := split(string(text))
		if f.up, err = parseStatements(up); err == nil {
			f.down, err = parseStatements(down)
		}
		if err != nil {
			return nil, fmt.Errorf("migrations: %s: %w", name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// split splits a file into statements as goose does: a statement ends with a semicolon at the end of a line, and comments before
// it are not part of it. The only annotations are Up and Down.
func split(text string) (up, down []string) {
	var current strings.Builder
	to := &up
	for line := range strings.Lines(text) {
		plain := strings.TrimSpace(line)
		switch {
		case plain == "-- +goose Up":
			to = &up
			continue
		case plain == "-- +goose Down":
			to = &down
			continue
		case current.Len() == 0 && (plain == "" || strings.HasPrefix(plain, "--")):
			continue
		}
		current.WriteString(line)
		code, _, _ := strings.Cut(plain, " --")
		if strings.HasSuffix(strings.TrimSpace(code), ";") && !strings.HasPrefix(plain, "--") {
			*to = append(*to, strings.TrimSpace(current.String()))
			current.Reset()
		}
	}
	if current.Len() > 0 {
		*to = append(*to, strings.TrimSpace(current.String())) // parseStatements refuses it
	}
	return up, down
}

var (
	changesTable = regexp.MustCompile(`(?i)^(?:(CREATE\s+TABLE(?:\s+IF\s+NOT\s+EXISTS)?)|DROP\s+TABLE(?:\s+IF\s+EXISTS)?|ALTER\s+TABLE|` +
		`CREATE\s+(?:UNIQUE\s+)?INDEX\s+\w+\s+ON|DROP\s+INDEX\s+\w+\s+ON)\s+(\w+)\b`)
	changesRows    = regexp.MustCompile(`(?i)^(?:INSERT|REPLACE|UPDATE|DELETE)\s`)
	dropsSeveral   = regexp.MustCompile(`(?i)^DROP\s+TABLE\s[^;]*,`)
	numberOfTables = 2 // the group of changesTable that is the table's name
)

// parseStatements parses the statements. It refuses those that could not be resumed after a kill: each must change the
// definition of one table, or only rows.
func parseStatements(texts []string) ([]statement, error) {
	var all []statement
	for i, text := range texts {
		s := statement{sql: text}
		switch m := changesTable.FindStringSubmatch(text); {
		case !strings.HasSuffix(text, ";"), strings.Contains(text, "+goose"), dropsSeveral.MatchString(text):
			return nil, fmt.Errorf("statement %d does not change one table or only rows, or does not end with a semicolon", i+1)
		case m != nil:
			s.table, s.creates = m[numberOfTables], m[1] != ""
		case !changesRows.MatchString(text):
			return nil, fmt.Errorf("statement %d is of a kind that can't be resumed after a kill", i+1)
		}
		all = append(all, s)
	}
	return all, nil
}
