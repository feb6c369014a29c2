package testkit

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// ServiceAccount writes the key file of a service account of Google, whose access tokens come from tokenURL, and returns its path.
func ServiceAccount(t testing.TB, tokenURL string) (path string) {
	t.Helper()
	key, err := accountKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "demo", "client_email": "push@demo.iam.gserviceaccount.com",
		"private_key_id": "1", "private_key": key, "token_uri": tokenURL, "quota_project_id": "payer",
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var accountKey = sync.OnceValues(func() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), err
})
