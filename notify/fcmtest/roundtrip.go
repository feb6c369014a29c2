package fcmtest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
)

// RoundTrip implements http.RoundTripper: it answers the request without a connection, so that a sender in a bubble of
// testing/synctest can use the server. An answer that the server cuts off is io.ErrUnexpectedEOF.
func (s *Server) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	defer func() {
		if r.Body != nil {
			r.Body.Close()
		}
		if p := recover(); p != nil {
			if e, ok := p.(error); !ok || !errors.Is(e, http.ErrAbortHandler) {
				panic(p)
			}
			if resp, err = nil, r.Context().Err(); err == nil {
				err = io.ErrUnexpectedEOF
			}
		}
	}()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}
