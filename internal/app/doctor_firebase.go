package app

import (
	"context"
	"fmt"
	"time"

	"firsttap/internal/doctor"
	"firsttap/internal/firebase"
	"firsttap/notify"
	"firsttap/notify/fcm"
)

const (
	checkPush   = "firebase.push"
	checkAuth   = "firebase.auth"
	checkLookup = "firebase.users"
)

// firebase checks the push service and the sign-in of drivers. It sends no message.
func (x *examination) firebase(ctx context.Context) {
	c := x.config.Push
	switch {
	case x.wrong["FIRSTTAP_PUSH"] || x.wrong["FIRSTTAP_FCM_ENDPOINT"] || x.wrong["FIREBASE_AUTH_EMULATOR_HOST"]:
		x.Skip("the settings", checkPush, checkAuth)
		return
	case c.FCM:
		x.Check(ctx, checkPush, x.push)
	default:
		x.Add(
			checkPush,
			doctor.Doubt("pushes are logged only: no phone gets one",
				"set FIRSTTAP_FIREBASE_PROJECT and GOOGLE_APPLICATION_CREDENTIALS, and FIRSTTAP_PUSH to fcm"),
		)
	}
	if c.Project == "" {
		x.Add(checkAuth, doctor.Good("not used: drivers sign in with tokens of this service"))
		return
	}
	x.signIn(ctx)
}

// push asks the push service to validate a message.
func (x *examination) push(ctx context.Context) doctor.Finding {
	c := x.config.Push
	const credentials = "GOOGLE_APPLICATION_CREDENTIALS names the key file of a service account of the project: " +
		"Firebase console, project settings, service accounts"
	sender, err := fcm.New(ctx, fcm.Options{Project: c.Project, CredentialsFile: c.Credentials, Endpoint: c.Endpoint, Zone: c.Zone})
	if err != nil {
		return doctor.Failure(err.Error(), credentials)
	}
	defer sender.Close()
	o := sender.Validate(ctx)
	switch o.Class {
	case notify.Sent:
		found := fmt.Sprintf("project %s: a message was validated, and not sent", c.Project)
		if c.Endpoint != "" {
			return doctor.Doubt(found+", at FIRSTTAP_FCM_ENDPOINT instead of FCM", "unset FIRSTTAP_FCM_ENDPOINT in production")
		}
		return doctor.Good(found)
	case notify.Auth:
		return doctor.Failure("the credentials are refused: "+o.Reason,
			credentials+"; give it the role Firebase Cloud Messaging API Admin, enable that API, and check that this machine's clock is "+
				"right")
	case notify.Quota, notify.Unavailable:
		return doctor.Doubt("the push service is busy: "+o.Reason, "look again in a minute")
	case notify.Unreached:
		return doctor.Failure("the push service can't be reached: "+o.Reason,
			"let this machine connect to oauth2.googleapis.com and fcm.googleapis.com, port 443; HTTPS_PROXY names a proxy")
	}
	return doctor.Failure(fmt.Sprintf("the push service answered oddly (%s): %s", o.Class, o.Reason),
		"check FIRSTTAP_FIREBASE_PROJECT, and that no proxy changes the answers")
}

// signIn checks that ID tokens can be verified and their users be looked up.
func (x *examination) signIn(ctx context.Context) {
	c := x.config.Push
	ids, err := firebase.New(ctx, firebase.Options{
		Project: c.Project, Emulator: c.AuthEmulator, CredentialsFile: c.Credentials, Detect: c.FCM && c.Endpoint == "",
		Now: time.Now, Log: x.log,
	})
	if err != nil {
		x.Add(checkAuth, doctor.Failure(err.Error(), "correct GOOGLE_APPLICATION_CREDENTIALS"))
		return
	}
	defer ids.Close()
	x.Check(ctx, checkAuth, func(ctx context.Context) doctor.Finding {
		switch n, err := ids.CheckKeys(ctx); {
		case c.AuthEmulator != "":
			return doctor.Doubt("the emulator at "+c.AuthEmulator+" is trusted: any client can pose as any driver",
				"unset FIREBASE_AUTH_EMULATOR_HOST in production")
		case err != nil:
			return doctor.Failure("the keys of ID tokens can't be fetched: "+err.Error(),
				"let this machine connect to www.googleapis.com, port 443; HTTPS_PROXY names a proxy")
		default:
			return doctor.Good(fmt.Sprintf("%d keys that sign ID tokens", n))
		}
	})
	x.Check(ctx, checkLookup, func(ctx context.Context) doctor.Finding {
		switch asked, err := ids.CheckLookup(ctx); {
		case err != nil:
			return doctor.Failure("users can't be looked up: "+err.Error(),
				"give the account the role Firebase Authentication Viewer, and let this machine connect to identitytoolkit.googleapis.com")
		case !asked:
			return doctor.Doubt(
				"not looked up: a disabled user is accepted until the token expires, within the hour", "set GOOGLE_APPLICATION_CREDENTIALS",
			)
		}
		return doctor.Good("can be looked up")
	})
}
