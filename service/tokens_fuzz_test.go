package service

import (
	"errors"
	"strings"
	"testing"
)

// FuzzTokens: no text is anybody's token but one that our secret has signed, in our words.
func FuzzTokens(f *testing.F) {
	tokens := NewTokens(TokenOptions{Secret: secret, Now: (&clock{fixed}).now})
	good := with(nil)
	p := strings.Split(good, ".")
	for _, seed := range []string{
		good + ".", p[0] + "." + p[1] + ".", signed(map[string]any{"alg": "none"}, goodClaims(), nil), with(map[string]any{"exp": nil}),
		signed(hs256, goodClaims(), []byte("x")), strings.ToLower(good), good + "\n", "..",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if got, err := tokens.Driver(token); token != good && (!errors.Is(err, ErrUnauthenticated) || got != "") {
			t.Errorf("%q is taken for %q, %v", token, got, err)
		}
	})
}
