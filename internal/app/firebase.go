package app

import (
	"context"
	"net"
	"time"

	"firsttap/handler"
	"firsttap/internal/auth"
	"firsttap/internal/config"
	"firsttap/internal/firebase"
)

// browserSignIn returns the settings for signing drivers in with Firebase in a browser, nil without a Web API key. The browser
// gets localhost as the host of an emulator that listens on all addresses or on the IPv6 loopback.
func browserSignIn(c config.Push) *handler.FirebaseSignIn {
	if c.WebKey == "" {
		return nil
	}
	s := &handler.FirebaseSignIn{Project: c.Project, APIKey: c.WebKey}
	if host, port, err := net.SplitHostPort(c.AuthEmulator); err == nil {
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() || ip.To4() == nil && ip.IsLoopback() {
			host = "localhost"
		}
		s.Emulator = "http://" + net.JoinHostPort(host, port)
	}
	return s
}

// openFirebase returns the verifier of the Firebase project's ID tokens, nil if no project is configured.
func (i *instance) openFirebase(ctx context.Context) (auth.IDTokens, error) {
	c := i.config.Push
	if c.Project == "" {
		return nil, nil
	}
	ids, err := firebase.New(ctx, firebase.Options{
		Project: c.Project, Emulator: c.AuthEmulator, CredentialsFile: c.Credentials,
		// With the real FCM, the start would have failed without the platform's credentials.
		Detect: c.FCM && c.Endpoint == "",
		Now:    time.Now, Metrics: i.telemetry, Log: i.log,
	})
	if err != nil {
		return nil, err
	}
	i.ending.firebase = func() error { ids.Close(); return nil }
	return ids, nil
}
