package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
)

//go:embed page
var page embed.FS

// File is something to be served as it is.
type File struct {
	Type string // the content type
	Body []byte
	Gzip []byte // Body, compressed
	Tag  string // the ETag, which changes with Body
}

// PagePolicy is the page's Content-Security-Policy: nothing from another host, and no script but what is served.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page returns the page's files by name. index.html is the page itself, to be served one level above the others, which
// it looks for under docs/.
func Page() (map[string]File, error) {
	names, err := fs.ReadDir(page, "page")
	if err != nil {
		return nil, err
	}
	files := map[string]File{}
	for _, e := range names {
		body, err := page.ReadFile("page/" + e.Name())
		if err != nil {
			return nil, err
		}
		kind, known := types[path.Ext(e.Name())]
		if !known {
			return nil, fmt.Errorf("nobody knows the type of %s", e.Name())
		}
		if files[e.Name()], err = NewFile(kind, body); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// types do not depend on what the system knows of file names.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8",
}

// NewFile returns body as a file to be served.
func NewFile(kind string, body []byte) (File, error) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := z.Write(body); err != nil {
		return File{}, err
	}
	if err := z.Close(); err != nil {
		return File{}, err
	}
	sum := sha256.Sum256(body)
	return File{Type: kind, Body: body, Gzip: small.Bytes(), Tag: `"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}
