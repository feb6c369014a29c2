package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// previousSecretVar names the secret before the current one, for rotation.
const previousSecretVar = "FIRSTTAP_JWT_SECRET_PREVIOUS"

// The endings of the files in which secrets are kept beside the SQLite database.
const (
	adminKeyFile  = ".admin-key"
	jwtSecretFile = ".jwt-secret"
)

// minSecret is the least number of characters of a secret. A shorter one can be guessed: with one token an attacker can try
// secrets against its signature offline.
const minSecret = 32

// maxKey is the greatest number of characters of a key with which somebody can sign in.
const maxKey = 512

// checkSecrets reports the secrets in the environment that are too short, or with which nobody could sign in, or that make no sense
// together.
func (c *Config) checkSecrets(bad func(name string, err error)) {
	for _, s := range []struct{ name, value string }{
		{adminKeyVar, c.AdminKey}, {jwtSecretVar, c.JWTSecret}, {previousSecretVar, c.PreviousJWTSecret},
	} {
		if err := checkSecret(s.value); err != nil && s.value != "" {
			bad(s.name, err)
		}
		if s.value == "" && s.name != previousSecretVar && strings.HasPrefix(c.DatabaseURL, "mysql://") {
			bad(s.name, errors.New("it must be set with MySQL: all instances need the same value"))
		}
	}
	if err := checkAdminKey(c.AdminKey); err != nil {
		bad(adminKeyVar, err)
	}
	if err := c.checkPrevious(); err != nil {
		bad(previousSecretVar, err)
	}
}

func checkSecret(secret string) error {
	if n := utf8.RuneCountInString(secret); n < minSecret {
		return fmt.Errorf("it has %d characters, which can be guessed: want at least %d random characters", n, minSecret)
	}
	return nil
}

// checkAdminKey returns an error if nobody could sign in with the key.
func checkAdminKey(key string) error {
	if n := utf8.RuneCountInString(key); n > maxKey {
		return fmt.Errorf("it has %d characters: want at most %d", n, maxKey)
	}
	if strings.TrimSpace(key) != key || strings.ContainsFunc(key, unicode.IsControl) {
		return errors.New("it has a line end or another control character, or space around it, which requests can't carry")
	}
	return nil
}

// checkPrevious returns an error if the previous secret equals the current one.
func (c *Config) checkPrevious() error {
	if c.PreviousJWTSecret != "" && c.PreviousJWTSecret == c.JWTSecret {
		return errors.New("it equals the current secret: set it to the secret before that one, or leave it unset")
	}
	return nil
}

// PreviousSecrets returns the secrets that verify tokens but sign none.
func (c *Config) PreviousSecrets() [][]byte {
	if c.PreviousJWTSecret == "" {
		return nil
	}
	return [][]byte{[]byte(c.PreviousJWTSecret)}
}

// sampleSecret begins the secrets of docker-compose.yml.
const sampleSecret = "dev-only-"

// SampleSecrets returns the settings with secrets of docker-compose.yml, which anybody can read.
func (c *Config) SampleSecrets() (settings []string) {
	for _, s := range []struct{ name, value string }{
		{adminKeyVar, c.AdminKey}, {jwtSecretVar, c.JWTSecret}, {previousSecretVar, c.PreviousJWTSecret},
		{"FIRSTTAP_DATABASE_URL", c.DatabaseURL},
	} {
		if strings.HasPrefix(s.value, sampleSecret) || strings.Contains(s.value, ":"+sampleSecret) {
			settings = append(settings, s.name)
		}
	}
	return settings
}

// FindAdminKey reads the first admin key from its file beside the SQLite database, unless the environment gives it.
func (c *Config) FindAdminKey() error {
	if c.AdminKey != "" {
		return nil
	}
	var err error
	if c.AdminKey, err = readSecret(c.beside(adminKeyFile)); err != nil {
		return fmt.Errorf("%s is not set, and the file with the key can't be read: %w", adminKeyVar, err)
	}
	return nil
}

// AdminKeyFile returns the file with the first admin key, or "" if the environment gives it.
func (c *Config) AdminKeyFile() string {
	file := c.beside(".admin-key")
	if c.AdminKey == "" || slices.Contains(c.SecretFiles, file) {
		return file
	}
	return ""
}

// beside returns the path of the SQLite database with another file extension.
func (c *Config) beside(ending string) string {
	path := strings.TrimPrefix(c.DatabaseURL, "sqlite://")
	return strings.TrimSuffix(path, filepath.Ext(path)) + ending
}

// MakeSecrets reads the secrets that the environment does not give from files beside the SQLite database, and creates the
// files that are missing.
func (c *Config) MakeSecrets() error {
	for _, s := range []struct {
		name, file string
		value      *string
	}{{adminKeyVar, c.beside(adminKeyFile), &c.AdminKey}, {jwtSecretVar, c.beside(jwtSecretFile), &c.JWTSecret}} {
		if *s.value != "" {
			continue
		}
		secret, created, err := secretFile(s.file)
		if err != nil {
			return fmt.Errorf("%s is not set, and its file beside the database can't be read or made: %w; "+
				"create the folder and let this user write to it, or set it", s.name, err)
		}
		*s.value, c.SecretFiles = secret, append(c.SecretFiles, s.file)
		if created {
			c.NewSecretFiles = append(c.NewSecretFiles, s.file)
		}
	}
	if err := c.checkPrevious(); err != nil {
		return fmt.Errorf("%s: %w", previousSecretVar, err)
	}
	return nil
}

// secretFile returns the secret in the file, and creates the file if it is missing. Of two processes that create it at the
// same time one succeeds, and both read its secret.
func secretFile(name string) (secret string, created bool, err error) {
	if secret, err := readSecret(name); !errors.Is(err, fs.ErrNotExist) {
		return secret, false, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // mode 0600
	if refused := (*fs.PathError)(nil); errors.As(err, &refused) {
		refused.Path = name
	}
	if err != nil {
		return "", false, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return "", false, err
	}
	err = os.Link(tmp.Name(), name)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", false, err
	}
	created = err == nil
	secret, err = readSecret(name)
	return secret, created, err
}

func readSecret(name string) (string, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return "", fmt.Errorf("%s is empty: its secret was lost; remove the file, and the next start makes a new one", name)
	}
	if err := checkSecret(secret); err != nil {
		return "", fmt.Errorf("%s: %w; remove the file, and the next start makes a new one", name, err)
	}
	return secret, nil
}

// StoredSecrets returns the files that exist of those that MakeSecrets reads, and those that it would create. An error says which file
// can't be used.
func (c *Config) StoredSecrets() (found, missing []string, err error) {
	for _, s := range []struct{ value, ending string }{{c.AdminKey, adminKeyFile}, {c.JWTSecret, jwtSecretFile}} {
		if s.value != "" {
			continue
		}
		file := c.beside(s.ending)
		switch _, e := readSecret(file); {
		case e == nil:
			found = append(found, file)
		case errors.Is(e, fs.ErrNotExist):
			missing = append(missing, file)
		default:
			err = errors.Join(err, e)
		}
	}
	return found, missing, err
}

// SecretValues returns every secret in the settings, with the passwords of URLs as they are written and as they are sent.
func (c *Config) SecretValues() []string {
	secrets := []string{c.AdminKey, c.JWTSecret, c.PreviousJWTSecret}
	if strings.Contains(c.Push.Credentials, "{") { // the key itself instead of the name of its file
		secrets = append(secrets, c.Push.Credentials)
	}
	for _, s := range append([]string{c.DatabaseURL, c.ReadURL, c.RedisURL, c.Push.Endpoint}, c.QuorumURLs...) {
		_, rest, _ := strings.Cut(s, "://")
		end := strings.LastIndex(rest, "@")
		if end < 0 {
			continue
		}
		_, password, _ := strings.Cut(rest[:end], ":")
		secrets = append(secrets, password)
		if sent, err := url.PathUnescape(password); err == nil {
			secrets = append(secrets, sent)
		}
	}
	return secrets
}
