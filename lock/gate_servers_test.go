package lock

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/servertest"
)

// A gate works with every kind of Redis that has a URL: one owner, the owner's mark, the release.
func TestGateOnEachKindOfRedis(t *testing.T) {
	for kind, start := range map[string]func(*testing.T) string{
		"sentinel": func(t *testing.T) string { return servertest.StartRedisSentinel(t).URL() },
		"cluster":  func(t *testing.T) string { return servertest.StartRedisCluster(t).URL() },
		"TLS": func(t *testing.T) string {
			_, url, certFile := servertest.StartRedisTLS(t)
			t.Setenv("SSL_CERT_FILE", certFile) // before anything in this process reads it, which happens once
			return url
		},
	} {
		t.Run(kind, func(t *testing.T) {
			url := start(t)
			g, _ := newGate(t, url)
			rival, _ := newGate(t, url)
			for range 10 { // in a cluster, on several nodes
				takeATurn(t, g, rival, "gate:{"+rand.Text()+"}")
			}
			if policy, err := g.EvictionPolicy(t.Context()); policy != "noeviction" || err != nil {
				t.Errorf("the eviction policy is %q, %v", policy, err)
			}
		})
	}
}

func takeATurn(t *testing.T, g, rival *Gate, name string) {
	t.Helper()
	lease := mustObtain(t, g, name, "me")
	var held *HeldError
	if _, err := rival.Obtain(t.Context(), name, "you", time.Minute); !errors.As(err, &held) || held.Owner != "me" {
		t.Errorf("a second owner: %v", err)
	}
	wantErr(t, "a rival's release", rival.Release(t.Context(), name, "you"), ErrLost)
	wantErr(t, "replace", lease.Replace(t.Context(), "mark", time.Minute), nil)
	if owner, err := rival.Owner(t.Context(), name); owner != "mark" || err != nil {
		t.Errorf("the owner is %q, %v", owner, err)
	}
	wantErr(t, "release", rival.Release(t.Context(), name, "mark"), nil)
	wantErr(t, "release", mustObtain(t, rival, name, "you").Release(t.Context()), nil)
}

// A certificate for another name is refused: the server may be anybody's.
func TestGateRefusesAnothersCertificate(t *testing.T) {
	_, url, _ := servertest.StartRedisTLS(t)
	g := newIdleGate(t, strings.Replace(url, "127.0.0.1", "localhost", 1))
	if _, err := g.Obtain(t.Context(), "a", "me", time.Minute); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}
