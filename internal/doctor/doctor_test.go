package doctor

import (
	"context"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

func TestLines(t *testing.T) {
	var text strings.Builder
	r := NewReport(Options{Each: time.Second, Secrets: []string{"s3cret", "", "a"}, Show: Print(&text, false)})
	if !r.Check(t.Context(), "part.works", func(context.Context) Finding { return Good("a word") }) || !r.OK() {
		t.Error("a good finding is a failure")
	}
	if !r.Check(t.Context(), "part.odd", func(context.Context) Finding { return Doubt("s3cret\nat mysql://u:p@h", "look") }) || !r.OK() {
		t.Error("a doubt is a failure")
	}
	if r.Check(t.Context(), "part.broken", func(context.Context) Finding { return Failure("no", "repair s3cret") }) || r.OK() {
		t.Error("a failure is none")
	}
	r.Skip("part.broken", "part.last")
	testkit.Equal(t, "the lines", `ok       part.works              a word
warning  part.odd                *** at mysql://***@h
                                 next: look
fails    part.broken             no
                                 next: repair ***
skipped  part.last               not checked because of part.broken
`, text.String())
	testkit.Equal(t, "the lines kept", 4, len(r.Lines))
}

// Users and passwords of URLs that no setting is known to have, as when a URL is in the wrong setting. An @ in a path is no password's end.
func TestCredentialsAreMasked(t *testing.T) {
	for text, want := range map[string]string{
		"address u:p@h:1/x: too many colons":               "address ***@h:1/x: too many colons",
		`"redis://u:p/w@h" and "u:p/w@h"`:                  `"redis://***@h" and "***@h"`,
		"user 'app'@'10.0.0.1' (using password: YES)":      "user 'app'@'10.0.0.1' (using password: YES)",
		"127.0.0.1:3306, as user app: admin@example.com":   "127.0.0.1:3306, as user app: admin@example.com",
		"http://127.0.0.1:4318/v1 and rediss://h:1,h:2/m ": "http://127.0.0.1:4318/v1 and rediss://h:1,h:2/m",
		`Get "https://www.googleapis.com/v1/jwk/securetoken@system.gserviceaccount.com": EOF`: `Get "https://www.googleapis.com/v1/jwk/` +
			`securetoken@system.gserviceaccount.com": EOF`,
		"http://127.0.0.1:9099/v1/a:b@c and http://[::1]:9/a@b?to=c@d": "http://127.0.0.1:9099/v1/a:b@c and http://[::1]:9/a@b?to=c@d",
		"https://u:p@h:8/a@b": "https://***@h:8/a@b",
		"https://u:p/w@h/x, https://u:p#w@h/x https://u:p?w@h/x": "https://***@h/x, https://***@h/x https://***@h/x",
		"https://token@h/x": "https://***@h/x",
		"mysql://u:1/2@h/d mysql://u:p@w@h/d mysql://u:p%40w@h/d":           "mysql://***@h/d mysql://***@h/d mysql://***@h/d",
		"redis+sentinel://u:p@h1:1,h2:2,h3/m":                               "redis+sentinel://***@h1:1,h2:2,h3/m",
		"redis+sentinel://u:p@h1,u:p@h2/m?sentinel_password=secret&db=1":    "redis+sentinel://***@h2/m?sentinel_password=***&db=1",
		`["https://h/x","https://u:p@h/y"] https://u:p@h/x,https://u:p@h/y`: `["https://h/x","https://***@h/y"] https://***@h/x,https://***@h/y`,
		`Post "https://h/x?access_token=t0ken&n=1": refused`:                `Post "https://h/x?access_token=***&n=1": refused`,
		"two words, two\twords and two words more":                          "***, *** and *** more",
	} {
		r := NewReport(Options{Secrets: []string{"two", "two words", "two\twords"}})
		r.Add("part", Good(text))
		testkit.Equal(t, text, want, r.Lines[0].Found)
	}
}

// A skipped check alone is no success: nobody knows.
func TestSkippedIsNotOK(t *testing.T) {
	r := NewReport(Options{})
	r.Skip("something", "part")
	if r.OK() {
		t.Error("ok")
	}
}

// TestChecksAreBounded: each check of the doctor is bounded, and so are all together.
func TestChecksAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := NewReport(Options{Each: time.Second})
		hang := func(ctx context.Context) Finding {
			<-ctx.Done()
			return Failure("asked: "+ctx.Err().Error(), "")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		began := time.Now()
		for _, name := range []string{"one", "two", "three"} {
			r.Check(ctx, name, hang)
		}
		testkit.Equal(t, "the time", 1500*time.Millisecond, time.Since(began))
		testkit.Equal(t, "the first", Failure("asked: no answer in time", ""), r.Lines[0].Finding)
		testkit.Equal(t, "the last", Skipped, r.Lines[2].Status)
	})
}
