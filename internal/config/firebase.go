package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

const (
	authEmulatorVar   = "FIREBASE_AUTH_EMULATOR_HOST"
	firebaseWebKeyVar = "FIRSTTAP_FIREBASE_WEB_KEY"
)

// checkEmulator refuses an emulator beside the real Firebase: anybody can make the emulator's tokens.
func (c *Push) checkEmulator() []error {
	if c.AuthEmulator == "" {
		return nil
	}
	var problems []error
	if err := CheckAddress(c.AuthEmulator); err != nil {
		problems = append(problems, fmt.Errorf("want host:port: %w", err))
	} else if !namedInAPolicy(c.AuthEmulator) {
		problems = append(problems, fmt.Errorf("%q is not a host and port that a page may connect to", c.AuthEmulator))
	}
	if c.Project == "" {
		problems = append(problems, errors.New("it needs FIRSTTAP_FIREBASE_PROJECT"))
	}
	if c.Credentials != "" {
		problems = append(problems, errors.New("its tokens are not signed, so it must not be used with GOOGLE_APPLICATION_CREDENTIALS"))
	}
	if c.FCM && c.Endpoint == "" {
		problems = append(problems, errors.New("its tokens are not signed, so it must not be used with FIRSTTAP_PUSH=fcm and the real FCM"))
	}
	return problems
}

// namedInAPolicy reports whether a Content-Security-Policy can name the address: no IPv6, and only letters, digits, dots and
// hyphens in a host.
func namedInAPolicy(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return true // the browser gets localhost instead
	}
	return !strings.ContainsFunc(host, func(r rune) bool { return r != '.' && (r == '_' || notOfAKey(r)) })
}

func notOfAKey(r rune) bool {
	letter, digit := r|' ' >= 'a' && r|' ' <= 'z', r >= '0' && r <= '9'
	return !letter && !digit && r != '-' && r != '_'
}

// readWebKey defaults to a made-up key with the emulator, which accepts any.
func (c *Push) readWebKey(get func(name, otherwise string) string) error {
	fallback := ""
	if c.AuthEmulator != "" && c.Project != "" {
		fallback = "emulator"
	}
	c.WebKey = get(firebaseWebKeyVar, fallback)
	switch {
	case c.WebKey == "":
	case strings.ContainsFunc(c.WebKey, notOfAKey):
		return errors.New("want the Web API key of the project's settings, which begins with AIza")
	case c.Project == "":
		return errors.New("it needs FIRSTTAP_FIREBASE_PROJECT")
	}
	return nil
}
