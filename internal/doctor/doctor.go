// Package doctor collects what the checks of a set-up find, for an operator or a monitoring job. The checks are in the packages that know
// what is checked.
package doctor

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Status says whether something works.
type Status string

// The statuses of a check.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, and the operator should know
	Fails   Status = "fails"   // it would fail in production
	Skipped Status = "skipped" // not checked, because something before it fails
)

// Finding is the result of a check.
type Finding struct {
	Status Status `json:"status"`
	Found  string `json:"found"`
	// Next is what the operator does next, "" for nothing.
	Next string `json:"next,omitempty"`
}

// Good is the finding of a check without a problem.
func Good(found string) Finding { return Finding{Status: OK, Found: found} }

// Doubt is the finding of something that works, and that the operator should know or change.
func Doubt(found, next string) Finding { return Finding{Status: Warning, Found: found, Next: next} }

// Failure is the finding of something that would fail in production.
func Failure(found, next string) Finding { return Finding{Status: Fails, Found: found, Next: next} }

// Line is one check and its finding. Check is a name that stays the same: a part of the set-up, a dot, and what was checked of it.
type Line struct {
	Check string `json:"check"`
	Finding
}

// Options configure a Report.
type Options struct {
	// Each bounds the time of a check.
	Each time.Duration
	// Secrets never appear in a line.
	Secrets []string
	// Show is called with each line at once; nil for none.
	Show func(Line)
}

// Report is the lines of all checks, in their order.
type Report struct {
	Lines   []Line
	options Options
	mask    *strings.Replacer
}

// minSecret is the length from which on a secret is masked wherever it appears. A shorter one would mask parts of words.
const minSecret = 4

// NewReport returns a report without lines.
func NewReport(o Options) *Report {
	var pairs []string
	// The longest first: a secret that another one begins with is masked in full.
	for _, s := range slices.SortedFunc(slices.Values(o.Secrets), func(a, b string) int { return len(b) - len(a) }) {
		if len(s) >= minSecret {
			pairs = append(pairs, s, "***")
		}
	}
	return &Report{options: o, mask: strings.NewReplacer(pairs...)}
}

// Check adds a line with what check finds, and reports whether what depends on it can be checked too. The context ends when the check's
// time is over. If ctx has ended, nothing is checked.
func (r *Report) Check(ctx context.Context, name string, check func(context.Context) Finding) bool {
	if ctx.Err() != nil {
		r.Add(name, Finding{Status: Skipped, Found: "the time for all checks was over before"})
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Each)
	defer cancel()
	f := check(ctx)
	r.Add(name, f)
	return f.Status != Fails
}

// Skip adds a line for each check that could not be made, because of another one.
func (r *Report) Skip(because string, names ...string) {
	for _, name := range names {
		r.Add(name, Finding{Status: Skipped, Found: "not checked because of " + because})
	}
}

// Add adds a line.
func (r *Report) Add(name string, f Finding) {
	f.Found, f.Next = r.clean(f.Found), r.clean(f.Next)
	line := Line{name, f}
	r.Lines = append(r.Lines, line)
	if r.options.Show != nil {
		r.options.Show(line)
	}
}

var (
	// bareCredentials are a user and a password of a URL whose scheme is missing.
	bareCredentials = regexp.MustCompile(`[^\s"':/]+:[^\s"'/][^\s"']*@`)
	// secretParameters are the values of parameters that are named like a secret.
	secretParameters = regexp.MustCompile(`(?i)([?&;][^=&\s]*(?:pass|pwd|secret|token|key|credential|signature)[^=&\s]*=)[^&\s"']+`)
)

// clean returns one line without secrets.
func (r *Report) clean(s string) string {
	words := strings.Fields(strings.ReplaceAll(r.mask.Replace(s), context.DeadlineExceeded.Error(), "no answer in time"))
	for i, word := range words {
		words[i] = secretParameters.ReplaceAllString(withoutCredentials(word), "$1***")
	}
	return strings.Join(words, " ")
}

// withoutCredentials returns the word without the user and the password of the URLs in it. Of a web address these end in front of the path,
// which may have an @ of its own. The URL of a server has none after them, but people leave a / or # in a password as it is.
func withoutCredentials(word string) string {
	before, url, found := strings.Cut(word, "://")
	before = bareCredentials.ReplaceAllString(before, "***@")
	if !found {
		return before
	}
	authority := url
	if end := strings.IndexAny(url, "/?#"); end >= 0 && strings.HasSuffix(strings.TrimSuffix(before, "s"), "http") {
		_, port, _ := strings.Cut(url[strings.LastIndex(url[:end], "]")+1:end], ":")
		if strings.Contains(url[:end], "@") || isNumber(port) {
			authority = url[:end]
		}
	}
	rest := url[len(authority):]
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		authority = "***" + authority[at:]
	}
	if strings.Contains(rest, "://") { // another URL in the same word
		rest = withoutCredentials(rest)
	}
	return before + "://" + authority + rest
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }

// Count returns how many lines have that status.
func (r *Report) Count(s Status) (n int) {
	for _, l := range r.Lines {
		if l.Status == s {
			n++
		}
	}
	return n
}

// OK reports whether everything was checked and nothing would fail in production.
func (r *Report) OK() bool { return r.Count(Fails)+r.Count(Skipped) == 0 }

// Print returns a function that writes a line for people, and below it what they do next.
func Print(w io.Writer, colored bool) func(Line) {
	return func(l Line) {
		status := fmt.Sprintf("%-7s", l.Status)
		if colored {
			color := map[Status]string{OK: "\x1b[32m", Warning: "\x1b[33m", Fails: "\x1b[31m", Skipped: "\x1b[2m"}[l.Status]
			status = color + status + "\x1b[0m"
		}
		fmt.Fprintf(w, "%s  %-22s  %s\n", status, l.Check, l.Found)
		if l.Next != "" {
			fmt.Fprintf(w, "%33snext: %s\n", "", l.Next)
		}
	}
}
