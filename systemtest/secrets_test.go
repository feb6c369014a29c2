package systemtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

const (
	dbPassword    = "db-pass-3f9a1c77"
	redisPassword = "redis-pass-8be2d604"
)

// withPassword is the empty database at the URL, for a user with a password.
func withPassword(t *testing.T, raw string) string {
	t.Helper()
	db := OpenDatabase(t, raw)
	db.exec("CREATE USER 'app'@'%' IDENTIFIED BY '" + dbPassword + "'")
	db.exec("GRANT ALL ON *.* TO 'app'@'%'")
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("app", dbPassword)
	return u.String()
}

// TestNoSecretIsLogged runs through everything at level debug, with failures of all kinds, and searches the logs, spans and
// responses for secrets.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	redis := servertest.StartRedis(t, "--requirepass", redisPassword)
	db := servertest.StartMariaDB(t)
	emulator := servertest.StartFirebaseAuth(t)
	fcm := StartFCM(t)
	dbURL := withPassword(t, db.URL(t))
	redisURL := strings.Replace(redis.URL(), "redis://", "redis://:"+redisPassword+"@", 1)
	settings := []string{
		"FIRSTTAP_LOG=debug", "FIRSTTAP_DATABASE_URL=" + dbURL, "FIRSTTAP_REDIS_URL=" + redisURL,
		"FIRSTTAP_FIREBASE_PROJECT=" + servertest.FirebaseProject, "FIREBASE_AUTH_EMULATOR_HOST=" + emulator.Addr(),
	}
	instances := []*Instance{
		Start(t, settings...), // with FIRSTTAP_PUSH=log
		Start(t, append(settings, "FIRSTTAP_FCM_ENDPOINT="+fcm.URL()+"/v1", "FIRSTTAP_RATE_LIMIT_DRIVER=5/s")...),
	}
	uid, idToken := emulator.SignUp("secret-driver@example.com")
	secrets := map[string]string{
		"the admin key": AdminKey, "the JWT secret": "a-secret-for-the-tests-of-firsttap", "the database's password": dbPassword,
		"Redis' password": redisPassword, "an ID token": idToken, "an e-mail address": "secret-driver@example.com",
	}
	for n, i := range instances {
		for what, secret := range liveAt(t, i, n, uid, idToken) {
			secrets[fmt.Sprintf("%s at instance %d", what, n)] = secret
		}
	}
	// Every server fails while requests are under way.
	redis.Kill()
	d := MakeDrivers(t, instances[0], 1)[0]
	secrets["a token, without Redis"] = d.Token
	for _, i := range instances {
		Accept(i, MakeDispatch(t, instances[0]), d, 1)
	}
	db.Kill()
	for _, i := range instances {
		for _, path := range []string{"/v1/me", "/v1/me/offers"} {
			if a := send("GET", i.URL+path, d.Token, ""); a.status < 500 {
				t.Errorf("without a database: %s", a)
			}
		}
		send("POST", i.URL+"/v1/admin/drivers/bulk", AdminKey, aDriver("+821055599999", ""))
	}
	for n, i := range instances {
		i.end()
		log := i.log.String()
		for _, must := range []string{`"level":"DEBUG"`, `"level":"ERROR"`, redisUnavailable, "EMULATOR IS TRUSTED"} {
			if !strings.Contains(log, must) {
				t.Errorf("instance %d: the log has no %s: nothing was looked at", n, must)
			}
		}
		for what, secret := range secrets {
			for _, form := range forms(secret) {
				if at := strings.Index(log, form); at >= 0 {
					t.Errorf("instance %d: the log has %s: ...%s...", n, what, log[max(0, at-150):min(len(log), at+len(form)+20)])
				}
			}
		}
	}
}

// forms are a secret's encodings that might be logged.
func forms(secret string) []string {
	all := []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))}
	if p := strings.Split(secret, "."); len(p) == 3 && len(p[1]) > 40 {
		all = append(all, p[1]) // a token's claims; its header is no secret
		if len(p[2]) > 10 {
			all = append(all, p[2])
		}
	}
	return all
}

func aDriver(phone, uid string) string {
	return fmt.Sprintf(`{"issue_tokens":true,"drivers":[{"name":"Kim","phone":%q,"regions":["seoul"],"vehicle_class":"45m","on_duty":true,"firebase_uid":%q}]}`, phone, uid)
}

// liveAt sends every kind of request to an instance, valid and invalid, and returns the secrets in them.
func liveAt(t *testing.T, i *Instance, n int, uid, idToken string) map[string]string {
	t.Helper()
	phone, push := fmt.Sprintf("+8210555%05d", 12345+n), fmt.Sprintf("push-token-of-the-phone-%d:APA91bExample", n)
	secrets := map[string]string{"a phone number": phone, "its digits": phone[3:], "a push token": push}
	if n > 0 {
		uid = ""
	}
	made := i.must(200, "POST", "/v1/admin/drivers/bulk", AdminKey, aDriver(phone, uid))
	id, token := textOf(made.body, "id"), textOf(made.body, "token")
	d := Driver{id, token}
	secrets["a token"], secrets["an issued token"] = token, newToken(t, i, id)
	testkit.Eventually(t, "the ID token is verified", func() bool { return send("GET", i.URL+"/v1/me", idToken, "").status == 200 })
	testkit.Eventually(t, "the phone is known", func() bool {
		a := send("PUT", i.URL+"/v1/me/devices/phone", token, fmt.Sprintf(`{"platform":"android","push_token":%q,"app_version":"1.0"}`, push))
		return a.status == 200
	})
	dispatch := MakeDispatch(t, i)
	testkit.Eventually(t, "an accept is won", func() bool { return Accept(i, dispatch, d, 1).Won() })
	send("POST", i.URL+"/v1/dispatches/"+dispatch+"/withdraw", token, `{"reason_code":"BREAKDOWN"}`)

	forged := token[:len(token)-4] + "AAAA"
	secrets["a forged token"], secrets["a wrong key"] = forged, "a-wrong-admin-key-of-somebody"
	for _, bad := range []string{forged, "a-wrong-admin-key-of-somebody", token + ".", strings.ToLower(token), idToken + "eA"} {
		for _, path := range []string{"/v1/me", "/v1/admin/dispatches", "/v1/stream"} {
			if a := patiently(func() Response { return send("GET", i.URL+path, bad, "") }); a.status != 401 {
				t.Errorf("%s with a wrong token: %s", path, a)
			}
		}
	}
	// Secrets in the wrong places: in URLs, in bodies that are refused, in other headers.
	for _, body := range []string{
		`{"platform":"android","push_token":"` + push + `"`, `{"platform":"` + push + `","push_token":1}`, `{"` + push + `":1}`, `"` + phone + `"`,
		`{"platform":"android","push_token":"` + push + `","phone":"` + phone + `"}`,
	} {
		send("PUT", i.URL+"/v1/me/devices/phone", token, body)
	}
	send("POST", i.URL+"/v1/admin/drivers/bulk", AdminKey, strings.Replace(aDriver(phone, uid), "seoul", "", 1))
	send("POST", i.URL+"/v1/admin/drivers/bulk", AdminKey, aDriver(phone, "one-uid"))
	send("POST", i.URL+"/v1/admin/drivers/bulk", AdminKey, aDriver(phone, "one-uid"))
	send("GET", i.URL+"/v1/me?access_token="+token, "", "")
	send("GET", i.URL+"/v1/admin/dispatches?q="+url.QueryEscape(phone), AdminKey, "")
	sendWith("GET", i.URL+"/v1/me", token, "", "Cookie", "session="+token)
	signInAndOut(t, i, token, secrets)
	for range 60 { // beyond the rate
		send("GET", i.URL+"/v1/me", token, "")
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", i.URL+"/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secrets["an issued token"])
	if resp, err := (&http.Client{Timeout: 300 * time.Millisecond}).Do(req); err == nil {
		resp.Body.Close()
	}
	return secrets
}

// signInAndOut signs in and out as a browser does, with and without success, and adds the secrets in it.
func signInAndOut(t *testing.T, i *Instance, token string, secrets map[string]string) {
	t.Helper()
	made := i.must(201, "POST", "/v1/admin/api-keys", AdminKey, `{"name":"a browser's","role":"dispatcher"}`)
	secrets["a key"] = textOf(made.body, "key")
	signIn := fmt.Sprintf(`{"key":%q}`, secrets["a key"])
	cookie := ""
	testkit.Eventually(t, "a browser signs in", func() bool {
		a := send("POST", i.URL+"/v1/session", "", signIn)
		cookie, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
		return a.status == 200
	})
	_, value, _ := strings.Cut(cookie, "=")
	secrets["a session"] = value
	for want, headers := range map[int][]string{200: {"Cookie", cookie}, 403: {"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, 401: {"Cookie", cookie + "AAAA"}} {
		if a := patiently(func() Response { return sendWith("GET", i.URL+"/v1/admin/board", "", "", headers...) }); a.status != want {
			t.Errorf("the board, with %q: %s, want %d", headers, a, want)
		}
	}
	for _, body := range []string{signIn[1:], `{"` + secrets["a key"] + `":1}`, `{"key":"` + token + `"}`, `"` + secrets["a key"] + `"`, strings.Replace(signIn, "ftk", "FTK", 1)} {
		testkit.Retry(t, func() error { // a database that does not answer is no refusal
			if a := send("POST", i.URL+"/v1/session", "", body); a.status < 400 || a.status >= 500 {
				return fmt.Errorf("a wrong sign-in: %s", a)
			}
			return nil
		})
	}
	secrets["a wrong key of a browser"] = strings.Replace(secrets["a key"], "ftk", "FTK", 1)
	sendWith("GET", i.URL+"/v1/session?key="+secrets["a key"], "", "", "Cookie", cookie)
	sendWith("POST", i.URL+"/v1/admin/dispatches", "", `{"region":1}`, "Cookie", cookie, "Idempotency-Key", "of a session")
	sendWith("DELETE", i.URL+"/v1/session", "", "", "Cookie", cookie)
}
