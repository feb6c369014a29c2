package asset

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func TestNew(t *testing.T) {
	for _, body := range []string{"", "x", strings.Repeat("the same ", 1000)} {
		f, err := New("text/plain", []byte(body))
		if err != nil || f.ContentType != "text/plain" || string(f.Body) != body {
			t.Fatalf("%+v, %v", f, err)
		}
		z, err := gzip.NewReader(bytes.NewReader(f.Gzip))
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := io.ReadAll(z); err != nil || string(whole) != body {
			t.Errorf("%.20q, compressed: %v", whole, err)
		}
		if len(body) > 1000 && len(f.Gzip) > len(body)/10 {
			t.Errorf("%d bytes of %d", len(f.Gzip), len(body))
		}
	}
}

// TestTag: the tag is a valid ETag that depends on the body only.
func TestTag(t *testing.T) {
	tags := map[string]string{}
	for _, body := range []string{"", "a", "b", "a "} {
		f, err := New("text/plain", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := tags[f.ETag]; ok {
			t.Errorf("%q and %q are both %s", other, body, f.ETag)
		}
		tags[f.ETag] = body
		if !regexp.MustCompile(`^W/"[0-9a-f]{24}"$`).MatchString(f.ETag) {
			t.Errorf("%s", f.ETag)
		}
		if again, err := New("text/css", []byte(body)); err != nil || again.ETag != f.ETag {
			t.Errorf("%s, then %s, %v", f.ETag, again.ETag, err)
		}
	}
}

func TestLoad(t *testing.T) {
	files := fstest.MapFS{
		"web/page/index.html": {Data: []byte("<!doctype html>")}, "web/page/main.js": {Data: []byte("1")}, "web/page/app.webmanifest": {Data: []byte("{}")},
		"web/other/x.css": {Data: []byte("a{}")},
	}
	got, err := Load(files, "web/page")
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	for name, kind := range map[string]string{
		"index.html": "text/html; charset=utf-8", "main.js": "text/javascript; charset=utf-8", "app.webmanifest": "application/manifest+json",
	} {
		if got[name].ContentType != kind || !bytes.Equal(got[name].Body, files["web/page/"+name].Data) {
			t.Errorf("%s is %+v", name, got[name])
		}
	}
}

// TestLoadRefuses what can't be served, instead of leaving it out.
func TestLoadRefuses(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"no such folder": {}, "a folder in it": {"page/more/x.js": {Data: []byte("1")}},
		"an unknown type": {"page/notes.md": {Data: []byte("#")}}, "no type": {"page/LICENSE": {Data: []byte("x")}},
	} {
		if got, err := Load(files, "page"); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
