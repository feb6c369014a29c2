package handler

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/auth"
)

const (
	sessionCookie = "firsttap_session"
	// tlsCookie is the cookie's name over TLS. Browsers accept a cookie with this prefix only from this host itself and over TLS:
	// a sibling subdomain can neither sign a user in to another session nor set a second cookie.
	tlsCookie      = "__Host-" + sessionCookie
	sessionTTL     = 12 * time.Hour
	sessionPurpose = "firsttap session"
)

// session is the admin key that a request is made with, and when the cookie that carried the key expires. The time is zero
// where the key itself was sent.
type session struct {
	key   string
	until time.Time
}

// sessions encrypt an admin's key into a cookie that scripts can't read, so that a page need not store the key. The server stores
// nothing: a session ends when it expires or when its key is revoked. Knowing the secret is not enough to make a session; it also
// takes a valid key.
type sessions struct {
	cipher      cipher.AEAD
	previous    []cipher.AEAD // decrypt cookies that were made with a previous secret
	crossOrigin *http.CrossOriginProtection
}

// newSessions takes the secret that all instances share, and the previous ones, which only decrypt. Without a secret, sessions are
// valid at this instance only, and until it stops.
func newSessions(secret []byte, previous ...[]byte) *sessions {
	if len(secret) == 0 {
		secret = []byte(rand.Text()) // an empty secret would let anybody decrypt them
	}
	s := &sessions{cipher: newCipher(secret, nil, sessionPurpose), crossOrigin: http.NewCrossOriginProtection()}
	for _, p := range previous {
		s.previous = append(s.previous, newCipher(p, nil, sessionPurpose))
	}
	return s
}

// cookieText is strict: each value has exactly one encoding.
var cookieText = base64.RawURLEncoding.Strict()

// seal returns the cookie's value. The keys that signIn accepts have 2 KiB at most, so that the cookie stays below the 4 KiB that
// browsers store.
func (s *sessions) seal(v session) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(v.until.UnixMilli()))
	return cookieText.EncodeToString(s.cipher.Seal(nil, nil, append(raw, v.key...), nil))
}

// open decrypts what seal returned with the same secret or with a previous one.
func (s *sessions) open(value string) (session, error) {
	sealed, err := cookieText.DecodeString(value)
	if err != nil {
		return session{}, err
	}
	raw, err := s.cipher.Open(nil, nil, sealed, nil)
	for i := 0; err != nil && i < len(s.previous); i++ {
		raw, err = s.previous[i].Open(nil, nil, sealed, nil)
	}
	if err != nil {
		return session{}, err
	}
	const head = 8
	if len(raw) <= head {
		return session{}, errors.New("not a session")
	}
	return session{key: string(raw[head:]), until: time.UnixMilli(int64(binary.BigEndian.Uint64(raw)))}, nil
}

// fromRequest returns the session of a request's cookie. It returns ErrUnauthenticated if there is no cookie or the session has
// expired, and errCrossSite if a page of another origin sent the request. It ignores a cookie with the other of the two names.
func (s *sessions) fromRequest(c echo.Context, now time.Time) (session, error) {
	r := c.Request()
	cookies := r.CookiesNamed(cookieName(c))
	if len(cookies) != 1 {
		return session{}, auth.ErrUnauthenticated // with two cookies, another host may have set the first one
	}
	if err := s.sameOrigin(r); err != nil {
		return session{}, err
	}
	v, err := s.open(cookies[0].Value)
	if err != nil || !now.Before(v.until) {
		return session{}, auth.ErrUnauthenticated
	}
	return v, nil
}

// sameOrigin returns errCrossSite for a request from a page of another origin, reads included: sessions are for this service's
// own pages. A sibling subdomain is another origin, although browsers send it the cookie as it is of the same site.
func (s *sessions) sameOrigin(r *http.Request) error {
	change := http.Request{Method: http.MethodPost, URL: r.URL, Host: r.Host, Header: r.Header}
	if err := s.crossOrigin.Check(&change); err != nil {
		return fmt.Errorf("%w: %w", errCrossSite, err)
	}
	return nil
}

// credentials returns the key of the Authorization header, or else the session of the cookie.
func (h *handler) credentials(c echo.Context) (session, error) {
	if len(c.Request().Header.Values(echo.HeaderAuthorization)) > 0 {
		key, err := bearer(c)
		return session{key: key}, err
	}
	return h.sessions.fromRequest(c, h.Now())
}

type signInRequest struct {
	Key string `json:"key" validate:"required,max=512"`
}

type sessionView struct {
	KeyID string `json:"key_id"`
	Name  string `json:"name"`
	Role  string `json:"role"`
	// ExpiresAt is null if the key itself was sent.
	ExpiresAt *timestamp `json:"expires_at"`
}

func viewSession(k dispatch.Key, v session) sessionView {
	view := sessionView{KeyID: k.ID, Name: k.Name, Role: k.Role.String()}
	if !v.until.IsZero() {
		view.ExpiresAt = optionalTimestamp(&v.until)
	}
	return view
}

// signIn refuses other origins: their pages could sign a user in to a session that is not the user's.
func (h *handler) signIn(c echo.Context) error {
	if err := h.sessions.sameOrigin(c.Request()); err != nil {
		return err
	}
	req, err := read[signInRequest](c, maxKeyBody)
	if err != nil {
		return err
	}
	key, err := h.authenticateKey(c, req.Key, auth.BySession)
	if errors.Is(err, auth.ErrUnauthenticated) {
		return fmt.Errorf("%w: %w", errUnknownKey, err)
	}
	if err != nil {
		return err
	}
	err = h.entries.run(c, key.ID, func() error {
		return h.Stores.Keys.RecordSignIn(withCaller(c, key.ID), key.ID, clientNetwork(c))
	})
	if errors.Is(err, dispatch.ErrKeyNotFound) { // revoked after the lookup
		return fmt.Errorf("%w: %w", errUnknownKey, auth.ErrUnauthenticated)
	}
	if err != nil {
		return err
	}
	h.SignIns.Succeed(auth.BySession)
	made := session{key: req.Key, until: h.Now().Add(sessionTTL).Truncate(time.Millisecond)}
	h.setSessionCookie(c, h.sessions.seal(made), int(sessionTTL/time.Second))
	return writeJSON(c, 200, viewSession(key, made))
}

func (h *handler) getSession(c echo.Context) error {
	key, with, err := h.authenticateAdmin(c)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewSession(key, with))
}

// signOut deletes the cookie, also without a valid session. A copy of the cookie stays valid until it expires or its key is
// revoked.
func (h *handler) signOut(c echo.Context) error {
	if err := h.sessions.sameOrigin(c.Request()); err != nil {
		return err
	}
	h.setSessionCookie(c, "", -1)
	return c.NoContent(http.StatusNoContent)
}

func (h *handler) setSessionCookie(c echo.Context, value string, seconds int) {
	cookie := http.Cookie{
		Name: cookieName(c), Value: value, Path: "/v1", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if overTLS(c) {
		cookie.Secure, cookie.Path = true, "/" // required by the prefix of its name
	}
	c.SetCookie(&cookie)
}

// cookieName returns the name of the session's cookie. Over plain HTTP, on a developer's machine, browsers don't accept tlsCookie.
func cookieName(c echo.Context) string {
	if overTLS(c) {
		return tlsCookie
	}
	return sessionCookie
}

// FirebaseSignIn tells a browser how to sign a driver in with Firebase Auth. None of it is secret.
type FirebaseSignIn struct {
	Project string
	APIKey  string // the project's Web API key
	// Emulator is the Auth emulator's address, http://host:port, used instead of Firebase's; "" for Firebase itself.
	Emulator string
}

// hosts returns the other hosts that the driver's page connects to.
func (f *FirebaseSignIn) hosts() []string {
	switch {
	case f == nil:
		return nil
	case f.Emulator != "":
		return []string{f.Emulator}
	}
	return []string{"https://identitytoolkit.googleapis.com", "https://securetoken.googleapis.com"}
}

type signInView struct {
	// Timezone is that of the sites, in which pages show times.
	Timezone string `json:"timezone"`
	// Firebase is null if drivers sign in with this service's tokens only.
	Firebase *firebaseView `json:"firebase"`
}

type firebaseView struct {
	Project  string  `json:"project"`
	APIKey   string  `json:"api_key"`
	Emulator *string `json:"emulator"`
}

func signInOptions(zone *time.Location, f *FirebaseSignIn) echo.HandlerFunc {
	v := signInView{Timezone: zone.String()}
	if f != nil {
		v.Firebase = &firebaseView{Project: f.Project, APIKey: f.APIKey, Emulator: nullable(f.Emulator)}
	}
	return func(c echo.Context) error { return writeJSON(c, 200, v) }
}
