package handler

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"firsttap/dispatch/idempotency"
)

// newCipher returns an AEAD whose key is derived from secret and salt, for this purpose only.
func newCipher(secret, salt []byte, purpose string) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, secret, salt, purpose, 32)
	if err != nil {
		panic(err) // the length is one that HKDF accepts
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length is one that AES accepts
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block size of AES is the one that GCM accepts
	}
	return aead
}

// answerSeal encrypts stored answers, which can contain drivers' tokens and admins' keys. Decryption takes the caller's secret and
// the Idempotency-Key; the database has hashes of both only.
type answerSeal struct {
	cipher  cipher.AEAD
	request []byte // additional data: an answer decrypts for its own request only
}

func newAnswerSeal(secret, key string, r idempotency.Request) *answerSeal {
	return &answerSeal{
		cipher:  newCipher([]byte(secret), []byte(key), "firsttap answer"),
		request: fmt.Appendf(nil, "%s\n%s\n%s", r.Caller, r.Name, r.Fingerprint),
	}
}

func (s *answerSeal) close(a *answer) ([]byte, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return s.cipher.Seal(nil, nil, raw, s.request), nil
}

func (s *answerSeal) open(sealed []byte) (*answer, error) {
	raw, err := s.cipher.Open(nil, nil, sealed, s.request)
	if err != nil {
		return nil, err
	}
	a := &answer{}
	if err := json.Unmarshal(raw, a); err != nil || a.Status < 200 {
		return nil, errors.Join(err, errors.New("not an answer"))
	}
	return a, nil
}
