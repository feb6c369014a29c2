package systemtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/testkit"
)

// buildProgram builds the program as go run does, and returns where it is. It is built with the settings of the test program, which
// decide whether the compiler has to compile a package again: with these it takes all but the main package from the build cache.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "firsttap")
	build := []string{"build", "-ldflags=-s -w", "-o", program}
	env := os.Environ()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" {
				env = append(env, s.Key+"="+s.Value)
			}
			if slices.Contains([]string{"-race", "-trimpath", "-gcflags"}, s.Key) {
				build = append(build, s.Key+"="+s.Value)
			}
		}
	}
	build = append(build, "firsttap")
	cmd := exec.CommandContext(t.Context(), "go", build...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// plainStart runs the program in the folder as README's "go run ." does: the settings have nothing but two addresses, because
// the usual ones may be in use. more are variables of the test program only. It ends with a signal or with the test.
func plainStart(t *testing.T, program, folder string, more ...string) *Instance {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Dir = folder
	cmd.Env = append([]string{coverage(), "FIRSTTAP_ADDR=" + testkit.FreeAddress(t), "FIRSTTAP_OPS_ADDR=" + testkit.FreeAddress(t)}, more...)
	i := launch(t, cmd)
	i.awaitURL()
	return i
}

// secretsIn returns the secrets that the instance has in the folder. It must say in which files, and only their owner may read
// them.
func secretsIn(t *testing.T, i *Instance, folder string) (secrets []string) {
	t.Helper()
	files := []string{"firsttap.admin-key", "firsttap.jwt-secret"}
	testkit.Eventually(t, "it says where they are", func() bool { return i.log.Count(`"secret_files":["`+strings.Join(files, `","`)+`"]`) == 1 })
	for _, name := range files {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
		raw, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		secret := strings.TrimSpace(string(raw))
		if strings.Contains(i.log.String(), secret) {
			t.Errorf("the log has the secret of %s", name)
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

// TestPlainStart: without settings the program makes its database and its secrets where it is started, and says where they are. The
// next start has the same secrets: tokens and keys stay valid. It does what README.md prints. For that the test program is the program,
// because it waits longer for a decision than the 2 s of production, after which a tap is answered with CLAIM_UNAVAILABLE.
func TestPlainStart(t *testing.T) {
	t.Parallel()
	program, folder := buildProgram(t), t.TempDir()
	i := plainStart(t, program, folder)
	secrets := secretsIn(t, i, folder)
	made := i.must(200, "POST", "/v1/admin/drivers/bulk", secrets[0],
		`{"issue_tokens":true,"drivers":[{"name":"Lee","phone":"+821012345679","regions":["busan"],"vehicle_class":"45m"}]}`)
	token := regexp.MustCompile(`eyJ[^"]*`).FindString(made.body)
	if token == "" {
		t.Fatal(made)
	}
	Client.CloseIdleConnections()
	i.endBy(syscall.SIGINT)

	patient := []string{runAsInstance + "=1", patientClaims}
	i = plainStart(t, os.Args[0], folder, patient...)
	if again := secretsIn(t, i, folder); !slices.Equal(again, secrets) {
		t.Error("the second start has other secrets")
	}
	i.must(200, "GET", "/v1/me", token, "")
	i.must(200, "GET", "/v1/admin/board", secrets[0], "")
	runReadme(t, i, os.Args[0], folder, patient...)
	Client.CloseIdleConnections()
	i.endBy(syscall.SIGINT)
	testkit.MustHoldFiles(t, folder, "firsttap.admin-key", "firsttap.db", "firsttap.jwt-secret")
}

// notByReadme are the commands of README.md that the test does not run from there: it has started the second already, other tests
// run the demo, and make test runs this one.
var notByReadme = []string{"go run . demo", "go run .", "make test"}

// readmeBlocks returns the commands of each code block in README.md: all lines of an sh block, in other blocks those with a prompt.
func readmeBlocks(t *testing.T) (blocks []string) {
	t.Helper()
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(raw), -1) {
		var commands strings.Builder
		for line := range strings.Lines(found[2]) {
			line, prompt := strings.CutPrefix(line, "$ ")
			command, _, _ := strings.Cut(line, " #")
			if (prompt || found[1] == "sh") && !slices.Contains(notByReadme, strings.TrimSpace(command)) {
				commands.WriteString(line)
			}
		}
		if commands.Len() > 0 {
			blocks = append(blocks, commands.String())
		}
	}
	return blocks
}

// runReadme runs the commands of README.md in bash, as they are printed but for the address, in the folder where i was started.
// It checks that they do what README.md says. more are variables of the program that go run stands for.
func runReadme(t *testing.T, i *Instance, program, folder string, more ...string) {
	t.Helper()
	blocks := readmeBlocks(t)
	want := [][]string{
		{"409 ALREADY_TAKEN", "409 ALREADY_TAKEN", "409 ALREADY_TAKEN", "409 ALREADY_TAKEN", "200 SUCCESS", "exactly one winner: drv_"},
		{`"result":"SUCCESS"`, `"replayed":false`, `"status":"ACCEPTED"`},
	}
	if len(blocks) != len(want) {
		t.Fatalf("README.md has %d blocks of commands, and the test knows what %d do:\n%s", len(blocks), len(want), strings.Join(blocks, "\n"))
	}
	for k, block := range blocks {
		addr := strings.TrimPrefix(i.URL, "http://")
		block = strings.ReplaceAll(block, "localhost:8080", addr)
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", fmt.Sprintf(
			"go() { test \"$1 $2\" = 'run .' && shift 2 && %s \"$@\"; }\n%s", program, block))
		cmd.Dir, cmd.Env = folder, append([]string{coverage(), "PATH=" + os.Getenv("PATH"), "FIRSTTAP_ADDR=" + addr}, more...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v of\n%s\n%s", err, block, &said)
		}
		rest := said.String()
		for _, text := range want[k] {
			before, after, found := strings.Cut(rest, text)
			if !found {
				t.Errorf("%q is missing in the output of\n%s\n%s", text, block, &said)
			}
			rest = before + after
		}
	}
}
