package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Authority signs servers' certificates. Clients trust it if they have read its File.
type Authority struct {
	File string // PEM, as in SSL_CERT_FILE

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority that nobody knows. Its file ends with the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "authority.pem")}
	raw, key, err := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority of the tests"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	if err == nil {
		a.key = key
		a.certificate, err = x509.ParseCertificate(raw)
	}
	if err == nil {
		err = writePEM(a.File, "CERTIFICATE", raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a key and its certificate, signed by the authority, or by itself while there is none.
func (a *Authority) issue(template *x509.Certificate) (raw []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	return raw, key, err
}

// issueServer writes a certificate for 127.0.0.1 and its key to dir.
func (a *Authority) issueServer(dir string) error {
	raw, key, err := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, "server.pem"), "CERTIFICATE", raw); err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, "server.key"), "PRIVATE KEY", private)
}

func writePEM(path, kind string, raw []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600)
}

// dial connects to a server with a certificate of the authority's.
func (a *Authority) dial(ctx context.Context, addr string) (net.Conn, error) {
	trusted := x509.NewCertPool()
	trusted.AddCert(a.certificate)
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: answerWithin}, Config: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	return dialer.DialContext(ctx, "tcp", addr)
}

// RedisTLS is a Redis that speaks TLS only.
type RedisTLS struct {
	*Redis
	authority *Authority
}

// StartRedisTLS is StartRedis with a certificate of the authority's for 127.0.0.1, and without a port that speaks plain text.
func StartRedisTLS(t testing.TB, a *Authority) *RedisTLS {
	t.Helper()
	p := redisProgram(nil, func(s *server) []string {
		return []string{
			"--port", "0", "--tls-port", strconv.Itoa(s.port), "--tls-cert-file", "server.pem", "--tls-key-file", "server.key",
			"--tls-ca-cert-file", a.File, "--tls-auth-clients", "no",
		}
	})
	p.prepare = func(s *server) error { return a.issueServer(s.dir) }
	p.probe = probeRedis(a.dial)
	return &RedisTLS{startRedis(t, p), a}
}

// URL is rediss://host:port.
func (r *RedisTLS) URL() string { return "rediss://" + r.Addr() }

// Ask sends one command, again if no answer comes, and returns the answer as text: an array has a line for each item, and nil is empty.
func (r *RedisTLS) Ask(t testing.TB, words ...string) (answer string) {
	t.Helper()
	err := until(func(ctx context.Context) (err error) {
		answer, err = askOver(ctx, r.authority.dial, r.Addr(), words...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
