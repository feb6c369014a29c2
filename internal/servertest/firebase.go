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
)

// FirebaseProject is the emulator's project. No project of Firebase itself begins with demo-.
const FirebaseProject = "demo-firsttap"

// FirebaseAuth is a Firebase Auth emulator of the test's own.
type FirebaseAuth struct{ *server }

// StartFirebaseAuth starts the emulator of firebase-tools and returns when it answers. It is beside FIRSTTAP_MYSQL_ROOT,
// where install.sh puts it, or in PATH, and is "firebase" in FIRSTTAP_TEST_REQUIRE. It ends with the test.
func StartFirebaseAuth(t testing.TB) *FirebaseAuth {
	t.Helper()
	library, err := firebaseTools()
	require(t, "firebase", err)
	node, err := look("node")
	require(t, "firebase", err)
	return &FirebaseAuth{startServer(t, program{
		name: "firebase",
		probe: func(ctx context.Context, s *server) error {
			raw, err := askHTTP(ctx, http.MethodGet, "http://"+s.Addr()+"/", "", nil)
			if err == nil && !strings.Contains(string(raw), "authEmulator") {
				err = errStranger
			}
			return err
		},
		command: func(s *server) []string {
			// It keeps files in its home, and would use an account that it finds there.
			return []string{
				"env", "HOME=" + s.dir, "TMPDIR=" + s.dir, "XDG_CONFIG_HOME=" + s.dir, "XDG_CACHE_HOME=" + s.dir, "CI=1",
				node, "-e", emulate, library, FirebaseProject, strconv.Itoa(s.port),
			}
		},
	})}
}

// emulate runs the emulator with the operations that tests use: it takes a quarter of the processor time that `firebase emulators:start`
// takes, which prepares all of them.
const emulate = `
const [, library, projectId, port] = process.argv;
const { paths } = require(library + "/emulator/auth/apiSpec").default;
for (const path in paths) if (!/accounts:(signUp|signInWithPassword|lookup|update|delete)$/.test(path)) delete paths[path];
const { AuthEmulator } = require(library + "/emulator/auth");
new AuthEmulator({ projectId, host: "127.0.0.1", port: Number(port), singleProjectMode: 0 }).start();`

// firebaseTools is the folder of firebase-tools' modules.
func firebaseTools() (string, error) {
	library := filepath.Join(filepath.Dir(os.Getenv("FIRSTTAP_MYSQL_ROOT")), "firebase", "node_modules", "firebase-tools", "lib")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	program, err := exec.LookPath("firebase")
	if err != nil {
		return "", errors.New("firebase-tools is not installed")
	}
	program, err = filepath.EvalSymlinks(program) // to lib/bin/firebase.js
	return filepath.Dir(filepath.Dir(program)), err
}

// SignUp makes a user, as an app does, and returns the user's id and an ID token.
func (e *FirebaseAuth) SignUp(email string) (uid, token string) {
	e.t.Helper()
	return e.token("signUp", email)
}

// SignIn returns a new token of the user with that address.
func (e *FirebaseAuth) SignIn(email string) (token string) {
	e.t.Helper()
	_, token = e.token("signInWithPassword", email)
	return token
}

func (e *FirebaseAuth) token(operation, email string) (uid, token string) {
	e.t.Helper()
	var made struct{ LocalID, IDToken string }
	raw := e.call(
		"/v1/accounts:"+operation+"?key=any", "", map[string]any{"email": email, "password": "a-password", "returnSecureToken": true},
	)
	if err := json.Unmarshal(raw, &made); err != nil || made.LocalID == "" || made.IDToken == "" {
		e.t.Fatalf("firebase: %s: no token in %s, %v", operation, raw, err)
	}
	return made.LocalID, made.IDToken
}

// Disable disables the user, or enables them again.
func (e *FirebaseAuth) Disable(uid string, disabled bool) {
	e.t.Helper()
	e.change("update", map[string]any{"localId": uid, "disableUser": disabled})
}

// Revoke ends the user's tokens that were issued before that second.
func (e *FirebaseAuth) Revoke(uid string, before int64) {
	e.t.Helper()
	e.change("update", map[string]any{"localId": uid, "validSince": strconv.FormatInt(before, 10)})
}

// Delete removes the user.
func (e *FirebaseAuth) Delete(uid string) {
	e.t.Helper()
	e.change("delete", map[string]any{"localId": uid})
}

// change calls an operation that only the project's owner may call.
func (e *FirebaseAuth) change(operation string, body map[string]any) {
	e.t.Helper()
	e.call("/v1/projects/"+FirebaseProject+"/accounts:"+operation, "owner", body)
}

func (e *FirebaseAuth) call(path, bearer string, body map[string]any) []byte {
	e.t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		e.t.Fatal(err)
	}
	raw, err := askHTTP(context.Background(), http.MethodPost, "http://"+e.Addr()+"/identitytoolkit.googleapis.com"+path, bearer, sent)
	if err != nil {
		e.t.Fatalf("firebase: %v", err)
	}
	return raw
}

// askHTTP sends a request on a connection of its own, and returns the body of the answer, which must be 200.
func askHTTP(ctx context.Context, method, url, bearer string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
