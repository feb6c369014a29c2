package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// previousSecretVar is what jwtSecretVar was before.
const previousSecretVar = "FIRSTTAP_JWT_SECRET_PREVIOUS"

// minSecret is how many characters a secret has at least. Fewer can be guessed: whoever has one token can try secrets against
// its signature for as long as they like.
const minSecret = 32

// checkSecrets reports the secrets of the environment that are too short or mean nothing.
func (c *Config) checkSecrets(bad func(name string, err error)) {
	for _, s := range []struct{ name, value string }{
		{adminKeyVar, c.AdminKey}, {jwtSecretVar, c.JWTSecret}, {previousSecretVar, c.PreviousJWTSecret},
	} {
		if err := checkSecret(s.value); err != nil && s.value != "" {
			bad(s.name, err)
		}
	}
	if err := c.checkPrevious(); err != nil {
		bad(previousSecretVar, err)
	}
}

func checkSecret(secret string) error {
	if n := utf8.RuneCountInString(secret); n < minSecret {
		return fmt.Errorf("it has %d characters and can be guessed: want at least %d, random ones", n, minSecret)
	}
	return nil
}

// checkPrevious wants another secret than the current one, wherever that comes from.
func (c *Config) checkPrevious() error {
	if c.PreviousJWTSecret != "" && c.PreviousJWTSecret == c.JWTSecret {
		return errors.New("it is the current secret: want another one, or nothing")
	}
	return nil
}

// PreviousSecrets are the secrets that only verify.
func (c *Config) PreviousSecrets() [][]byte {
	if c.PreviousJWTSecret == "" {
		return nil
	}
	return [][]byte{[]byte(c.PreviousJWTSecret)}
}

// FindAdminKey reads the first admin key from beside the SQLite database where the environment does not give it.
func (c *Config) FindAdminKey() error {
	if c.AdminKey != "" {
		return nil
	}
	var err error
	if c.AdminKey, err = readSecret(c.beside(".admin-key")); err != nil {
		return fmt.Errorf("%s is not set, and there is no key here: %w", adminKeyVar, err)
	}
	return nil
}

// beside names a file like the SQLite database's, with another ending.
func (c *Config) beside(ending string) string {
	path := strings.TrimPrefix(c.DatabaseURL, "sqlite://")
	return strings.TrimSuffix(path, filepath.Ext(path)) + ending
}

// MakeSecrets reads the secrets that the environment does not give from files beside the SQLite database, and makes
// them where there are none.
func (c *Config) MakeSecrets() error {
	for _, s := range []struct {
		value *string
		file  string
	}{{&c.AdminKey, c.beside(".admin-key")}, {&c.JWTSecret, c.beside(".jwt-secret")}} {
		if *s.value != "" {
			continue
		}
		var err error
		if *s.value, err = secretFile(s.file); err != nil {
			return err
		}
		c.SecretFiles = append(c.SecretFiles, s.file)
	}
	if err := c.checkPrevious(); err != nil {
		return fmt.Errorf("%s: %w", previousSecretVar, err)
	}
	return nil
}

// secretFile returns what the file holds, and fills it first if it is not there. Of two processes that fill it at
// the same time one wins, and both read its secret.
func secretFile(name string) (string, error) {
	if secret, err := readSecret(name); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(tmp.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readSecret(name)
}

func readSecret(name string) (string, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return "", fmt.Errorf("%s is empty: a secret was lost; remove the file to have a new one made", name)
	}
	if err := checkSecret(secret); err != nil {
		return "", fmt.Errorf("%s: %w; remove the file to have a new one made", name, err)
	}
	return secret, nil
}
