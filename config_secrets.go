package main

import (
	"errors"
	"fmt"
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

// previousSecrets are the secrets that only verify.
func (c *Config) previousSecrets() [][]byte {
	if c.PreviousJWTSecret == "" {
		return nil
	}
	return [][]byte{[]byte(c.PreviousJWTSecret)}
}
