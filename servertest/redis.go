package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a redis-server process of the test's own. Its keys do not survive Kill and Start: nothing is saved.
type Redis struct{ *server }

// StartRedis starts redis-server and returns when it answers. It neither saves nor evicts. args are
// added to its command line ("--replicaof", "127.0.0.1 6379"). The server ends with the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	require(t, "redis", redisInstalled())
	r, err := newRedis(args...)
	if err != nil {
		t.Fatal(err)
	}
	r.own(t)
	return r
}

// StartRedisTLS is StartRedis for a server that also listens with TLS, at the rediss:// URL that it returns. certFile has
// the certificate that a client must trust (SSL_CERT_FILE). It is for 127.0.0.1, and no other name.
func StartRedisTLS(t testing.TB) (r *Redis, url, certFile string) {
	t.Helper()
	require(t, "redis", redisInstalled())
	certFile, keyFile, err := writeCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		r, err = newRedis("--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no")
		if err == nil {
			r.own(t)
			return r, fmt.Sprintf("rediss://127.0.0.1:%d", port), certFile
		}
		if try == portTries {
			t.Fatal(err)
		}
	}
}

// writeCertificate makes a certificate for 127.0.0.1 that signs itself.
func writeCertificate(dir string) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "servertest"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, "redis.crt"), filepath.Join(dir, "redis.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: signed}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return "", "", err
		}
	}
	return certFile, keyFile, nil
}

// URL is redis://host:port.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

func redisInstalled() error {
	_, err := exec.LookPath("redis-server")
	return err
}

func newRedis(args ...string) (*Redis, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	command := func(s *server) []string {
		return append([]string{
			"redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", dir,
			"--save", "", "--maxmemory-policy", "noeviction",
		}, args...)
	}
	s := &server{name: "redis", dir: dir, command: command, probe: probeRedis}
	return &Redis{s}, s.launch()
}

// probeRedis returns nil when the process answers, has loaded its data and is not a stranger on the port. A server with a
// password does not say its process id, and counts as the right one.
func probeRedis(ctx context.Context, s *server) error {
	switch _, err := ask(ctx, s.Addr(), "PING"); {
	case err == nil:
		return probeSentinel(ctx, s)
	case strings.Contains(err.Error(), "NOAUTH"):
		return nil
	default:
		return err
	}
}
