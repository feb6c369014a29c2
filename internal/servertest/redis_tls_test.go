package servertest

import "testing"

// TestRedisTLS: the server speaks TLS only, with a certificate that only its authority vouches for.
func TestRedisTLS(t *testing.T) {
	r := StartRedisTLS(t, NewAuthority(t))
	if answer := r.Ask(t, "ECHO", "hello"); answer != "hello" {
		t.Errorf("answered with %q", answer)
	}
	for what, dial := range map[string]dialer{"in plain text": plainText, "to those who trust another authority": NewAuthority(t).dial} {
		if answer, err := askOver(t.Context(), dial, r.Addr(), "PING"); err == nil {
			t.Errorf("%s it answers with %q", what, answer)
		}
	}
}
