package handler

import (
	"context"
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
	"firsttap/service"
)

const (
	sessionCookie = "firsttap_session"
	// tlsCookie is its name over TLS. A browser takes a cookie of that prefix from this very host only, over TLS: a sibling
	// subdomain can neither sign somebody in with a session of its own nor put a second cookie beside ours.
	tlsCookie      = "__Host-" + sessionCookie
	sessionTTL     = 12 * time.Hour
	sessionPurpose = "firsttap session"
)

// signInStore writes sign-ins to the audit trail.
type signInStore interface {
	NoteSignIn(ctx context.Context, key, address string) error
}

// session is the key that a request is made with, and until when the cookie that brought it is good: the zero time where the
// key itself was sent.
type session struct {
	key   string
	until time.Time
}

// sessions seal an admin's key into a cookie that a page can't read, so that a browser need not keep the key itself. Nothing
// is stored: a session ends with its time, or at once with its key. Whoever knows the secret can make a session of a key
// they have, and nothing else.
type sessions struct {
	cipher      cipher.AEAD
	previous    []cipher.AEAD // open what was sealed under a previous secret
	crossOrigin *http.CrossOriginProtection
}

// newSessions takes the secret that all instances share, and those that it was before, under which no session is made any
// more. Without one the sessions are good at this instance, while it lasts.
func newSessions(secret []byte, previous ...[]byte) *sessions {
	if len(secret) == 0 {
		secret = []byte(rand.Text()) // or everybody could read them
	}
	s := &sessions{cipher: newCipher(secret, nil, sessionPurpose), crossOrigin: http.NewCrossOriginProtection()}
	for _, p := range previous {
		s.previous = append(s.previous, newCipher(p, nil, sessionPurpose))
	}
	return s
}

// cookieText has one way to write a value, so that a cookie that differs in a bit is another.
var cookieText = base64.RawURLEncoding.Strict()

// seal returns the cookie's value. A key is one that signIn takes, of 2 KiB at most, so that the cookie has less than the
// 4 KiB that browsers keep.
func (s *sessions) seal(v session) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(v.until.UnixMilli()))
	return cookieText.EncodeToString(s.cipher.Seal(nil, nil, append(raw, v.key...), nil))
}

// open reads what seal has written with the same secret, or a previous one.
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

// fromRequest returns the session that a request's cookie brings. ErrUnauthenticated where there is none or it is over, errCrossSite
// where another site's page sends it. The cookie of the other name, and who has set it, do not matter.
func (s *sessions) fromRequest(c echo.Context, now time.Time) (session, error) {
	r := c.Request()
	cookies := r.CookiesNamed(cookieName(c))
	if len(cookies) != 1 {
		return session{}, service.ErrUnauthenticated // of two, somebody else may have set the one that is looked at
	}
	if err := s.sameOrigin(r); err != nil {
		return session{}, err
	}
	v, err := s.open(cookies[0].Value)
	if err != nil || !now.Before(v.until) {
		return session{}, service.ErrUnauthenticated
	}
	return v, nil
}

// sameOrigin refuses what another origin's page sends with errCrossSite, what only reads too: a session is for our own pages.
// A sibling's page is another's, although it is of the same site, so that the cookie comes along.
func (s *sessions) sameOrigin(r *http.Request) error {
	change := http.Request{Method: http.MethodPost, URL: r.URL, Host: r.Host, Header: r.Header}
	if err := s.crossOrigin.Check(&change); err != nil {
		return fmt.Errorf("%w: %w", errCrossSite, err)
	}
	return nil
}

// credentials returns what a request is made with: the key in its header, or else that of its cookie.
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
	// ExpiresAt is null where the key itself was sent.
	ExpiresAt *timestamp `json:"expires_at"`
}

func viewSession(k dispatch.Key, v session) sessionView {
	view := sessionView{KeyID: k.ID, Name: k.Name, Role: k.Role.String()}
	if !v.until.IsZero() {
		view.ExpiresAt = optionalTimestamp(&v.until)
	}
	return view
}

// signIn is refused to other sites' pages, which could have somebody work in a session that is not theirs.
func (h *handler) signIn(c echo.Context) error {
	if err := h.sessions.sameOrigin(c.Request()); err != nil {
		return err
	}
	req, err := read[signInRequest](c, maxBody)
	if err != nil {
		return err
	}
	key, err := h.authenticateKey(c, req.Key, service.DoorSession)
	if errors.Is(err, service.ErrUnauthenticated) {
		return fmt.Errorf("%w: %w", errUnknownKey, err)
	}
	if err != nil {
		return err
	}
	if err := allow(c, h.AdminLimit, key.ID, h.Now()); err != nil {
		return err
	}
	err = h.stores.signIns.NoteSignIn(withCaller(c, key.ID), key.ID, clientNetwork(c))
	if errors.Is(err, dispatch.ErrKeyNotFound) { // it was revoked after it was looked up
		return fmt.Errorf("%w: %w", errUnknownKey, service.ErrUnauthenticated)
	}
	if err != nil {
		return err
	}
	h.SignIns.Done(service.DoorSession, clientNetwork(c), service.SignInOK)
	made := session{key: req.Key, until: h.Now().Add(sessionTTL).Truncate(time.Millisecond)}
	h.setSessionCookie(c, h.sessions.seal(made), int(sessionTTL/time.Second))
	return writeJSON(c, 200, viewSession(key, made))
}

// getSession says who the caller is.
func (h *handler) getSession(c echo.Context) error {
	key, with, err := h.authenticateAdmin(c)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewSession(key, with))
}

// signOut takes the cookie back, whoever calls: to be signed out is never wrong. A copy of it is good until its time is over,
// or its key is revoked.
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
		cookie.Secure, cookie.Path = true, "/" // as the prefix of its name demands
	}
	c.SetCookie(&cookie)
}

// cookieName is what a session's cookie is called for the client. Over plain HTTP, on a developer's machine, browsers take no
// cookie of the other name.
func cookieName(c echo.Context) string {
	if overTLS(c) {
		return tlsCookie
	}
	return sessionCookie
}

// FirebaseSignIn is what a browser needs to sign a driver in with Firebase Auth. All of it is public.
type FirebaseSignIn struct {
	Project string
	APIKey  string // the project's Web API key
	// Emulator is the Auth emulator's address, http://host:port, which stands for Firebase's; "" for Firebase itself.
	Emulator string
}

// hosts returns what the driver's page talks to besides this service.
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
	// Firebase is null where a token that was issued here is the only way.
	Firebase *firebaseView `json:"firebase"`
}

type firebaseView struct {
	Project  string  `json:"project"`
	APIKey   string  `json:"api_key"`
	Emulator *string `json:"emulator"`
}

func signInOptions(f *FirebaseSignIn) echo.HandlerFunc {
	var v signInView
	if f != nil {
		v.Firebase = &firebaseView{Project: f.Project, APIKey: f.APIKey, Emulator: nullable(f.Emulator)}
	}
	return func(c echo.Context) error { return writeJSON(c, 200, v) }
}
