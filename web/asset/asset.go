// Package asset prepares embedded files for serving.
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

// File is a file, ready to be sent.
type File struct {
	ContentType string // the content type
	Body        []byte
	Gzip        []byte // Body, compressed
	ETag        string // the ETag, a weak one, as Body and Gzip share it
}

// New returns a file with that content type and body.
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
	return File{ContentType: kind, Body: body, Gzip: small.Bytes(), ETag: `W/"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}

// Load returns the files of a folder by name. A subfolder or a file of an unknown type is an error.
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
			return nil, fmt.Errorf("the type of %s is not known", e.Name())
		}
		if loaded[e.Name()], err = New(kind, body); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}

// types has the content types. Unlike package mime, it does not depend on the system.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
	".webmanifest": "application/manifest+json",
}
