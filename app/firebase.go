package app

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/config"
	"firsttap/firebase"
	"firsttap/handler"
	"firsttap/service"
)

// signIn is how browsers sign drivers in with Firebase; nil where they don't. An emulator that listens everywhere, or at
// IPv6's own address, is asked at localhost.
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

// openFirebase returns the verifier of the Firebase project's ID tokens, nil without a project, and a function that closes it.
func openFirebase(ctx context.Context, c config.Push, metrics prometheus.Registerer, log *slog.Logger) (service.IDTokens, func(), error) {
	if c.Project == "" {
		return nil, func() {}, nil
	}
	ids, err := firebase.New(ctx, firebase.Options{
		Project: c.Project, Emulator: c.AuthEmulator, CredentialsFile: c.Credentials,
		// Where FCM is real it has found the platform's credentials already, or there would be no start.
		Detect: c.FCM && c.Endpoint == "",
		Now:    time.Now, Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return ids, ids.Close, nil
}
