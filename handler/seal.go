package handler

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"firsttap/idempotency"
)

// seal closes answers, which hold drivers' tokens and admins' keys, so that only who knows the caller's secret and the
// Idempotency-Key opens them: the database holds neither, only what they hash to.
type seal struct {
	secret []byte
	salt   []byte
	bound  []byte // an answer is good for its own request alone
}

func newSeal(secret, key string, once idempotency.Request) *seal {
	return &seal{
		secret: []byte(secret), salt: []byte(key),
		bound: fmt.Appendf(nil, "%s\n%s\n%s", once.Caller, once.Name, once.Fingerprint),
	}
}

func (s *seal) cipher() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.secret, s.salt, "firsttap answer", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (s *seal) close(a *answer) ([]byte, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	c, err := s.cipher()
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, nil, raw, s.bound), nil
}

func (s *seal) open(sealed []byte) (*answer, error) {
	c, err := s.cipher()
	if err != nil {
		return nil, err
	}
	raw, err := c.Open(nil, nil, sealed, s.bound)
	if err != nil {
		return nil, err
	}
	a := &answer{}
	if err := json.Unmarshal(raw, a); err != nil || a.Status < 200 {
		return nil, errors.Join(err, errors.New("not an answer"))
	}
	return a, nil
}
