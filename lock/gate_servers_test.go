package lock

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
)

// A gate works with every kind of Redis that has a URL: one owner, the owner's mark, the release.
func TestGateOnASentinel(t *testing.T) { checkGate(t, servertest.StartRedisSentinel(t).URL()) }

func TestGateOnACluster(t *testing.T) { checkGate(t, servertest.StartRedisCluster(t).URL()) }

// The server's certificate has to be for the host of the URL.
func TestGateOverTLS(t *testing.T) {
	authority := servertest.NewAuthority(t)
	t.Setenv("SSL_CERT_FILE", authority.File) // which a process reads once
	r := servertest.StartRedisTLS(t, authority)
	checkGate(t, r.URL())
	g, _ := newGate(t, strings.Replace(r.URL(), "127.0.0.1", "localhost", 1))
	if _, err := g.Obtain(t.Context(), "a", "me", time.Minute); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with a certificate for another host: %v", err)
	}
}

func checkGate(t *testing.T, url string) {
	t.Helper()
	g, _ := newGate(t, url)
	rival, _ := newGate(t, url)
	for range 10 { // in a cluster, on several nodes
		takeATurn(t, g, rival, "gate:"+rand.Text())
	}
	if policy, err := g.EvictionPolicy(t.Context()); policy != "noeviction" || err != nil {
		t.Errorf("the eviction policy is %q, %v", policy, err)
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
