package kubernetestest

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// patience bounds the wait for a process that starts or ends: on a busy machine either takes more than a minute.
const patience = 10 * time.Minute

// buildProgram builds the program as the Dockerfile does, without its version.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "firsttap")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, ".")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// containers run the program with a container's arguments and variables, and nothing else, in an empty folder.
type containers struct {
	manifests
	program, folder string
	secret          map[string]string
}

func (c containers) command(ctx context.Context, t *testing.T, pod corev1.PodSpec, replaced ...string) *exec.Cmd {
	t.Helper()
	env, err := environment(c.manifests, pod, c.secret)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, c.program, pod.Containers[0].Args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // without a drain
	cmd.Dir, cmd.Env = c.folder, []string{}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, replaced...)
	return cmd
}

// TestProgramRuns: with the manifests' arguments and variables a pod refuses to start until the job has migrated; then its probes and the
// monitor are answered. It writes no file.
func TestProgramRuns(t *testing.T) {
	c := containers{manifests: build(t, plain), program: buildProgram(t), folder: t.TempDir(), secret: secretValues()}
	database := servertest.StartMariaDB(t).URL(t)
	c.secret["database-url"], c.secret["migrate-database-url"] = database, database
	c.secret["redis-url"] = servertest.StartRedis(t).URL()
	pod, api, ops := c.deployment.Spec.Template.Spec, testkit.FreeAddress(t), testkit.FreeAddress(t)
	listens := []string{"FIRSTTAP_ADDR=" + api, "FIRSTTAP_OPS_ADDR=" + ops}

	if out, err := c.command(t.Context(), t, pod, listens...).CombinedOutput(); err == nil || !strings.Contains(string(out), "firsttap migrate up") {
		t.Fatalf("the pod started before the job: %v\n%s", err, out)
	}
	if out, err := c.command(t.Context(), t, c.job.Spec.Template.Spec).CombinedOutput(); err != nil || !strings.Contains(string(out), "migrations applied") {
		t.Fatalf("the job: %v\n%s", err, out)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	running := c.command(ctx, t, pod, listens...)
	log := &testkit.LogBuffer{}
	running.Stdout, running.Stderr = log, log
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	app, monitor := pod.Containers[0], c.monitor.Spec.Endpoints[0]
	for url, want := range map[string]string{
		api + app.LivenessProbe.HTTPGet.Path:  "ok",
		api + app.ReadinessProbe.HTTPGet.Path: `"ok"`,
		ops + monitor.Path:                    "firsttap_database_up 1",
	} {
		testkit.Within(t, patience, url+" answers "+want, func() bool { return strings.Contains(get(url), want) })
	}
	http.DefaultClient.CloseIdleConnections()
	end()
	if err := running.Wait(); running.ProcessState.ExitCode() != 0 {
		t.Errorf("the pod ended with %v:\n%s", err, log)
	}
	testkit.MustHoldFiles(t, c.folder)
}

// get returns the body of a 200, else nothing.
func get(addr string) string {
	resp, err := http.Get("http://" + addr)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
