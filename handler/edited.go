package handler

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// edited is a field of a PATCH: one that is not given stays as it is, and null clears one that need not be there.
type edited[T any] struct {
	given, null bool
	value       T
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom, as strictly as what it is part of is read.
func (e *edited[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	e.given = true
	if dec.PeekKind() == jsontext.KindNull {
		e.null = true
		return dec.SkipValue()
	}
	return json.UnmarshalDecode(dec, &e.value)
}

// set puts the field where it is given; null is nothing.
func (e *edited[T]) set(to *T) {
	if e.given {
		*to = e.value
	}
}

// setOptional puts the field where it is given; null is nil.
func (e *edited[T]) setOptional(to **T) {
	switch {
	case e.null:
		*to = nil
	case e.given:
		*to = &e.value
	}
}
