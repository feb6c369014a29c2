package firebase

import (
	"strings"
	"testing"
)

// TestChecks: what the doctor asks Google, with and without credentials, and while Google is away.
func TestChecks(t *testing.T) {
	for name, withUsers := range map[string]bool{"with credentials": true, "without": false} {
		p := newPlace(t, withUsers)
		if n, err := p.CheckKeys(t.Context()); n != 1 || err != nil {
			t.Errorf("%s: %d keys, %v", name, n, err)
		}
		if asked, err := p.CheckLookup(t.Context()); asked != withUsers || err != nil {
			t.Errorf("%s: asked %v, %v", name, asked, err)
		}
		p.google.set(func() { p.google.down = true })
		if _, err := p.CheckKeys(t.Context()); err == nil || !strings.Contains(err.Error(), "502") {
			t.Errorf("%s: the keys while Google is away: %v", name, err)
		}
		if _, err := p.CheckLookup(t.Context()); (err != nil) != withUsers {
			t.Errorf("%s: a look-up while Google is away: %v", name, err)
		}
	}
}
