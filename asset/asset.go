// Package asset has files that are served from the binary as they are.
package asset

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
)

// File is one of them, ready to be sent.
type File struct {
	Type string // the content type
	Body []byte
	Gzip []byte // Body, compressed
	Tag  string // the ETag, which changes with Body; a weak one, as it is the same for both forms
}

// New returns body as a file.
func New(kind string, body []byte) (File, error) {
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return File{}, err
	}
	if _, err := z.Write(body); err != nil {
		return File{}, err
	}
	if err := z.Close(); err != nil {
		return File{}, err
	}
	sum := sha256.Sum256(body)
	return File{Type: kind, Body: body, Gzip: small.Bytes(), Tag: `W/"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}

// Load returns the files of a folder by name. What it holds besides, and a type that is not in the table, are errors.
func Load(files fs.FS, folder string) (map[string]File, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, err
	}
	loaded := map[string]File{}
	for _, e := range entries {
		body, err := fs.ReadFile(files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		kind, known := types[path.Ext(e.Name())]
		if !known {
			return nil, fmt.Errorf("nobody knows the type of %s", e.Name())
		}
		if loaded[e.Name()], err = New(kind, body); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}

// types do not depend on what the system knows of file names.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
	".webmanifest": "application/manifest+json",
}
