package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"firsttap/testkit"
)

// FirebaseProject is the emulator's project. No project of Firebase itself begins with demo-.
const FirebaseProject = "demo-firsttap"

// FirebaseAuth is a Firebase Auth emulator of the test's own.
type FirebaseAuth struct{ *server }

// StartFirebaseAuth starts the emulator of firebase-tools and returns when it answers. It is beside FIRSTTAP_MYSQL_ROOT,
// where install.sh puts it, or in PATH, and is "firebase" in FIRSTTAP_TEST_REQUIRE. It ends with the test.
func StartFirebaseAuth(t testing.TB) *FirebaseAuth {
	t.Helper()
	program, err := firebaseTools()
	require(t, "firebase", err)
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	command := func(s *server) []string {
		if err := writeEmulators(s); err != nil {
			t.Fatal(err)
		}
		// It keeps files in its home, and would use an account that it finds there.
		return append([]string{"env", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_CACHE_HOME=" + dir, "CI=1"}, append(program,
			"emulators:start", "--only", "auth", "--project", FirebaseProject)...)
	}
	e := &FirebaseAuth{&server{name: "firebase", dir: dir, command: command, probe: probeFirebase}}
	if err := e.launch(); err != nil {
		t.Fatal(err)
	}
	e.own(t)
	return e
}

// firebaseTools is the command that starts the emulator.
func firebaseTools() ([]string, error) {
	script := filepath.Join(filepath.Dir(os.Getenv("FIRSTTAP_MYSQL_ROOT")), "firebase", "node_modules", "firebase-tools",
		"lib", "bin", "firebase.js")
	if _, err := os.Stat(script); err == nil {
		node, err := exec.LookPath("node")
		return []string{node, script}, err
	}
	path, err := exec.LookPath("firebase")
	if err != nil {
		return nil, errors.New("firebase-tools is not installed")
	}
	return []string{path}, nil
}

func writeEmulators(s *server) error {
	hub, err := testkit.FreePort()
	if err != nil {
		return err
	}
	logging, err := testkit.FreePort()
	if err != nil {
		return err
	}
	type emulator map[string]any
	at := func(port int) emulator { return emulator{"host": "127.0.0.1", "port": port} }
	raw, err := json.Marshal(map[string]any{"emulators": map[string]any{
		"auth": at(s.port), "hub": at(hub), "logging": at(logging), "ui": emulator{"enabled": false}, // the UI would be downloaded
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "firebase.json"), raw, 0o600)
}

func probeFirebase(ctx context.Context, s *server) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), "authEmulator") {
		return errors.New("a stranger answers on its port")
	}
	return nil
}

// SignUp makes a user, as an app does, and returns the user's id and an ID token.
func (e *FirebaseAuth) SignUp(email string) (uid, token string) {
	e.t.Helper()
	var made struct{ LocalID, IDToken string }
	e.call("/v1/accounts:signUp?key=any", "", map[string]any{"email": email, "password": "a-password", "returnSecureToken": true}, &made)
	if made.LocalID == "" || made.IDToken == "" {
		e.t.Fatalf("firebase: sign-up without a token: %+v", made)
	}
	return made.LocalID, made.IDToken
}

// SignIn returns a new token of the user with that address.
func (e *FirebaseAuth) SignIn(email string) (token string) {
	e.t.Helper()
	var made struct{ IDToken string }
	e.call("/v1/accounts:signInWithPassword?key=any", "", map[string]any{"email": email, "password": "a-password", "returnSecureToken": true}, &made)
	return made.IDToken
}

// Disable disables the user, or enables them again.
func (e *FirebaseAuth) Disable(uid string, disabled bool) {
	e.t.Helper()
	e.update(map[string]any{"localId": uid, "disableUser": disabled})
}

// Revoke ends the user's tokens that were issued before that second.
func (e *FirebaseAuth) Revoke(uid string, before int64) {
	e.t.Helper()
	e.update(map[string]any{"localId": uid, "validSince": strconv.FormatInt(before, 10)})
}

// Delete removes the user.
func (e *FirebaseAuth) Delete(uid string) {
	e.t.Helper()
	e.call("/v1/projects/"+FirebaseProject+"/accounts:delete", "owner", map[string]any{"localId": uid}, &struct{}{})
}

func (e *FirebaseAuth) update(change map[string]any) {
	e.t.Helper()
	e.call("/v1/projects/"+FirebaseProject+"/accounts:update", "owner", change, &struct{}{})
}

func (e *FirebaseAuth) call(path, bearer string, body, answer any) {
	e.t.Helper()
	if err := e.ask(path, bearer, body, answer); err != nil {
		e.t.Fatalf("firebase: %v", err)
	}
}

func (e *FirebaseAuth) ask(path, bearer string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+e.Addr()+"/identitytoolkit.googleapis.com"+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}
