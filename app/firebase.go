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
	"firsttap/repository"
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

// trustFirebase has tokens take ID tokens of the Firebase project, if there is one. What it returns closes that.
func trustFirebase(ctx context.Context, c config.Push, tokens *service.Tokens, store *repository.Store,
	metrics prometheus.Registerer, log *slog.Logger,
) (func(), error) {
	if c.Project == "" {
		return func() {}, nil
	}
	ids, err := firebase.New(ctx, firebase.Options{
		Project: c.Project, Emulator: c.AuthEmulator, CredentialsFile: c.Credentials,
		// Where FCM is real it has found the platform's credentials already, or there would be no start.
		Detect: c.FCM && c.Endpoint == "",
		Now:    time.Now, Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, err
	}
	tokens.Trust(ids, store)
	return ids.Close, nil
}
