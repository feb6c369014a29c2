package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/firebase"
	"firsttap/repository"
	"firsttap/service"
)

const authEmulatorVar = "FIREBASE_AUTH_EMULATOR_HOST"

// checkEmulator keeps an emulator, whose tokens anybody can make, from whatever has to do with the real Firebase.
func (c *PushConfig) checkEmulator() []error {
	if c.AuthEmulator == "" {
		return nil
	}
	var problems []error
	if err := checkAddress(c.AuthEmulator); err != nil {
		problems = append(problems, fmt.Errorf("want host:port: %w", err))
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

// trustFirebase has tokens take ID tokens of the Firebase project, if there is one. What it returns closes that.
func trustFirebase(ctx context.Context, c PushConfig, tokens *service.Tokens, store *repository.Store,
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
