package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"firsttap/internal/testkit"
)

// openTerminal opens a pseudo-terminal. What is written to the terminal can be read from the screen.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return screen, terminal
}

// startAtTerminal starts the program without settings but its addresses, in the folder, and returns it when the screen shows the first
// steps.
func startAtTerminal(t *testing.T, folder, api string) *Instance {
	t.Helper()
	screen, terminal := openTerminal(t)
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env = folder, append(newcomer(), "FIRSTTAP_ADDR="+api, "FIRSTTAP_OPS_ADDR="+testkit.FreeAddress(t))
	cmd.Stdout, cmd.Stderr = terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	i := &Instance{T: t, URL: "http://" + api, cmd: cmd, log: &testkit.LogBuffer{}, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close() // the screen's end of file is when the program has ended
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(i.log, screen) // ends with an error, because the terminal is gone
	}()
	go func() {
		_ = cmd.Wait()
		<-read
		close(i.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-i.done
	})
	testkit.Poll(startOrEnd, func() bool { return i.log.Count("Ctrl-C ends it") > 0 || i.ended() })
	if i.ended() {
		t.Fatalf("it does not start:\n%s", i.log)
	}
	return i
}

// newcomer is the environment of somebody without settings. The test program is the program.
func newcomer() []string { return []string{runAsInstance + "=1", coverage(), patientClaims} }

// TestFirstMinute: at a terminal the first start shows where the console, the API and a race are, and what it has made; each of them
// works. The next start has made nothing. A pipe gets JSON, with the same. Neither shows a secret.
func TestFirstMinute(t *testing.T) {
	t.Parallel()
	folder, api := t.TempDir(), testkit.FreeAddress(t)
	i := startAtTerminal(t, folder, api)
	steps := stepsOn(t, i)
	for name, want := range map[string]string{
		"console":  i.URL + `/console/ +sign in with the key in firsttap\.admin-key`,
		"API":      i.URL + "/docs +to read and try",
		"a race":   `\S.* race --drivers 5 --url ` + i.URL + ` +five drivers tap together, and one wins`,
		"database": `firsttap\.db +made now, with [1-9]\d* migrations`,
		"secret":   `firsttap\.jwt-secret +made now; only your account can read it`,
	} {
		if !regexp.MustCompile("^" + want + "$").MatchString(steps[name]) {
			t.Errorf("%s is %q, want %s", name, steps[name], want)
		}
	}
	for _, page := range []string{"/console/", "/docs"} {
		if a := send("GET", i.URL+page, "", ""); a.status != 200 || !strings.Contains(a.body, "<html") {
			t.Errorf("%s: %.200s", page, a)
		}
	}
	key := mustRead(t, folder+"/firsttap.admin-key")
	i.must(200, "GET", "/v1/admin/board", key, "")
	race, _, _ := strings.Cut(steps["a race"], "   ")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", fmt.Sprintf("go() { shift 2; %s \"$@\"; }\n%s", os.Args[0], race))
	cmd.Dir, cmd.Env = folder, append(newcomer(), "PATH="+os.Getenv("PATH"), "FIRSTTAP_ADDR="+api)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "exactly one winner") || strings.Contains(string(out), "temporary") {
		t.Errorf("%s: %v\n%s", race, err, out)
	}
	Client.CloseIdleConnections()
	i.endBy(syscall.SIGINT)
	showsNoSecret(t, i, folder)

	i = startAtTerminal(t, folder, api)
	if steps := stepsOn(t, i); steps["database"] != "firsttap.db" || steps["secret"] != "firsttap.jwt-secret   only your account can read it" {
		t.Errorf("the second start shows %q", steps)
	}
	i.endBy(syscall.SIGINT)
	showsNoSecret(t, i, folder)

	i = plainStart(t, os.Args[0], t.TempDir(), newcomer()...)
	i.endBy(syscall.SIGINT)
	var said map[string]any
	for line := range strings.Lines(i.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("a pipe gets no JSON: %v: %q", err, line)
		}
		if fields["msg"] == "FirstTap listens on "+i.URL {
			said = fields
		}
	}
	files := []any{"firsttap.admin-key", "firsttap.jwt-secret"}
	testkit.Equal(t, "what a pipe gets", map[string]any{
		"level": "INFO", "msg": "FirstTap listens on " + i.URL, "console": i.URL + "/console/", "docs": i.URL + "/docs", "roles": "api,relay,jobs",
		"database": "firsttap.db", "database_created": true, "secret_files": files, "secret_files_created": files,
	}, without(said, "time", "migrations_applied"))
}

// stepsOn returns the lines of the first steps by their names: columns that are aligned, with no line of the log in between.
func stepsOn(t *testing.T, i *Instance) map[string]string {
	t.Helper()
	screen := strings.ReplaceAll(i.log.String(), "\r\n", "\n")
	found := regexp.MustCompile(`(?ms)^FirstTap listens on (\S+)\n\n(.*?)\n\nCtrl-C ends it\.\n`).FindStringSubmatch(screen)
	if found == nil || found[1] != i.URL {
		t.Fatalf("the screen shows:\n%s", screen)
	}
	steps, second := map[string]string{}, map[int]bool{}
	for _, line := range strings.Split(found[2], "\n") {
		columns := regexp.MustCompile(`^  (\S+(?: \S+)*) {3,}(\S.*)$`).FindStringSubmatchIndex(line)
		if columns == nil {
			t.Fatalf("%q is no step in:\n%s", line, screen)
		}
		steps[line[columns[2]:columns[3]]] = line[columns[4]:]
		second[columns[4]] = true
	}
	if len(second) != 1 {
		t.Errorf("the columns are not aligned:\n%s", screen)
	}
	return steps
}

func showsNoSecret(t *testing.T, i *Instance, folder string) {
	t.Helper()
	for _, name := range []string{"firsttap.admin-key", "firsttap.jwt-secret"} {
		if i.log.Count(mustRead(t, folder+"/"+name)) > 0 {
			t.Errorf("the screen shows the secret of %s", name)
		}
	}
}

func mustRead(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func without(fields map[string]any, names ...string) map[string]any {
	left := map[string]any{}
	for name, value := range fields {
		if !slices.Contains(names, name) {
			left[name] = value
		}
	}
	return left
}
