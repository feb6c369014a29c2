package servertest

import (
	"context"
	"testing"
)

// TestRedisTLS: the server speaks TLS only, with a certificate that only its authority vouches for.
func TestRedisTLS(t *testing.T) {
	r := StartRedisTLS(t, NewAuthority(t))
	if answer := r.Ask(t, "ECHO", "hello"); answer != "hello" {
		t.Errorf("answered with %q", answer)
	}
	if answer, err := ask(context.Background(), r.Addr(), "PING"); err == nil {
		t.Errorf("in plain text it answers with %q", answer)
	}
	r.authority = NewAuthority(t)
	if answer, err := r.ask(t.Context(), "PING"); err == nil {
		t.Errorf("to those who trust another authority it answers with %q", answer)
	}
}
