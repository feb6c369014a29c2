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

// checkEmulator keeps an emulator, whose tokens anybody can make, from whatever has to do with the real Firebase.
func (c *Push) checkEmulator() []error {
	if c.AuthEmulator == "" {
		return nil
	}
	var problems []error
	if err := CheckAddress(c.AuthEmulator); err != nil {
		problems = append(problems, fmt.Errorf("want host:port: %w", err))
	} else if !namedInAPolicy(c.AuthEmulator) {
		problems = append(problems, fmt.Errorf("%q is not a host with a port that a browser can be told of", c.AuthEmulator))
	}
	if c.Project == "" {
		problems = append(problems, errors.New("it needs FIRSTTAP_FIREBASE_PROJECT"))
	}
	if c.Credentials != "" {
		problems = append(problems, errors.New("its tokens are not signed: not beside real credentials, GOOGLE_APPLICATION_CREDENTIALS"))
	}
	if c.FCM && c.Endpoint == "" {
		problems = append(problems, errors.New("its tokens are not signed: not beside the real FCM, FIRSTTAP_PUSH=fcm"))
	}
	return problems
}

// namedInAPolicy reports whether a page's Content-Security-Policy can name the address: of IPv6 it knows nothing, and of a
// host only letters, digits, dots and hyphens.
func namedInAPolicy(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return true // for a browser that is localhost
	}
	return !strings.ContainsFunc(host, func(r rune) bool { return r != '.' && (r == '_' || notOfAKey(r)) })
}

func notOfAKey(r rune) bool {
	letter, digit := r|' ' >= 'a' && r|' ' <= 'z', r >= '0' && r <= '9'
	return !letter && !digit && r != '-' && r != '_'
}

// readWebKey takes any key for the emulator, which does: an app that has none need not make one up.
func (c *Push) readWebKey(get func(name, otherwise string) string) error {
	usual := ""
	if c.AuthEmulator != "" && c.Project != "" {
		usual = "emulator"
	}
	c.WebKey = get(firebaseWebKeyVar, usual)
	switch {
	case c.WebKey == "":
	case strings.ContainsFunc(c.WebKey, notOfAKey):
		return errors.New("want the Web API key of the project's settings, which begins with AIza")
	case c.Project == "":
		return errors.New("it needs FIRSTTAP_FIREBASE_PROJECT")
	}
	return nil
}
