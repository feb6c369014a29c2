package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"
	_ "time/tzdata" // a container may lack the time zone database
)

// Push holds the settings of pushes and of Firebase.
type Push struct {
	FCM         bool // otherwise pushes are logged only
	Project     string
	Credentials string // a file; "" for the platform's own, or none
	Endpoint    string // "" for FCM's
	// AuthEmulator is host:port of a Firebase Auth emulator, "" for Firebase Auth itself.
	AuthEmulator string
	// WebKey is the project's Web API key for signing in from browsers, "" for no such sign-in.
	WebKey string
	// Leader makes one elected instance relay all pushes; otherwise each instance relays what it has leased.
	Leader bool
	// Attempts is how many requests a push gets at most, 0 for as many as there is time for.
	Attempts     int
	Zone         *time.Location
	RemindBefore time.Duration
}

// noZone is what a system has among its zones, and browsers do not.
var noZone = regexp.MustCompile(`^(?i:Local|localtime|posixrules|Factory|(?:posix|right)/.*)$`)

func readPush(get func(name, otherwise string) string, bad func(name string, err error)) Push {
	c := Push{
		Project:     get("FIRSTTAP_FIREBASE_PROJECT", ""),
		Credentials: get("GOOGLE_APPLICATION_CREDENTIALS", ""),
		Endpoint:    get("FIRSTTAP_FCM_ENDPOINT", ""),

		AuthEmulator: get(authEmulatorVar, ""),
	}
	fallback := "log"
	if c.Project != "" && (c.AuthEmulator == "" || c.Endpoint != "") {
		fallback = "fcm"
	}
	switch get("FIRSTTAP_PUSH", fallback) {
	case "log":
	case "fcm":
		c.FCM = true
		if c.Project == "" {
			bad("FIRSTTAP_PUSH", errors.New("fcm needs FIRSTTAP_FIREBASE_PROJECT"))
		}
	default:
		bad("FIRSTTAP_PUSH", errors.New("want log or fcm"))
	}
	for _, err := range c.checkEmulator() {
		bad(authEmulatorVar, err)
	}
	if err := c.readWebKey(get); err != nil {
		bad(firebaseWebKeyVar, err)
	}
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad("FIRSTTAP_FCM_ENDPOINT", errors.New("want a URL like http://127.0.0.1:9099/v1"))
		} else if !c.FCM {
			bad("FIRSTTAP_FCM_ENDPOINT", errors.New(
				"pushes are only logged, so it does nothing: set FIRSTTAP_PUSH to fcm, or leave it unset"))
		}
	}
	switch get("FIRSTTAP_RELAY", "all") {
	case "all":
	case "leader":
		c.Leader = true
	default:
		bad("FIRSTTAP_RELAY", errors.New("want all or leader"))
	}
	var err error
	if c.Attempts, err = readAttempts(get("FIRSTTAP_PUSH_ATTEMPTS", "")); err != nil {
		bad("FIRSTTAP_PUSH_ATTEMPTS", err)
	}
	if zone := get("FIRSTTAP_TIMEZONE", "Asia/Seoul"); noZone.MatchString(zone) {
		bad("FIRSTTAP_TIMEZONE", fmt.Errorf("browsers know no zone %s: want a name like Asia/Seoul", zone))
	} else if c.Zone, err = time.LoadLocation(zone); err != nil {
		bad("FIRSTTAP_TIMEZONE", fmt.Errorf("%w: want a name like Asia/Seoul", err))
	}
	if c.RemindBefore, err = time.ParseDuration(get("FIRSTTAP_REMIND_BEFORE", "60m")); err != nil {
		bad("FIRSTTAP_REMIND_BEFORE", err)
	} else if c.RemindBefore < 0 {
		bad("FIRSTTAP_REMIND_BEFORE", fmt.Errorf("%s is negative; 0 turns reminders off", c.RemindBefore))
	}
	return c
}

const maxPushAttempts = 1000

func readAttempts(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case s == "":
		return 0, nil
	case err != nil || n < 1 || n > maxPushAttempts:
		return 0, fmt.Errorf("want a number from 1 to %d, or leave it unset", maxPushAttempts)
	}
	return n, nil
}
