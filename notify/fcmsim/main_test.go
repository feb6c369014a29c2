package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// start runs fcmsim; out are its lines. Ending it returns what is left of them.
func start(t *testing.T, args ...string) (base string, out *bufio.Scanner, end func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w, io.Discard)
		w.CloseWithError(err)
		done <- err
	}()
	out = bufio.NewScanner(r)
	if !out.Scan() {
		t.Fatal(out.Err())
	}
	base, ok := strings.CutPrefix(out.Text(), "fcmsim: FCM is ")
	if !ok {
		t.Fatal(out.Text())
	}
	end = func() (rest []string) {
		cancel()
		for out.Scan() {
			rest = append(rest, out.Text())
		}
		if err := testkit.Await(t, "it ends", done); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return rest
	}
	return strings.TrimSuffix(base, "/v1"), out, end
}

// ask returns the status and the body of an answer.
func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const (
	sendPath = "/v1/projects/demo/messages:send"
	message  = `{"message":{"token":"tok","notification":{"title":"t"},"data":{"event_id":"e","type":"dispatch.opened"}}}`
)

// Requests change and inspect a running simulation.
func TestControl(t *testing.T) {
	base, _, end := start(t, "-keep", "10", "-retry-after", "5")
	for _, step := range []struct {
		method, path, body string
		want               int
		contains           string
	}{
		{"POST", sendPath, message, 200, "projects/demo/messages/1"},
		{"PATCH", "/sim/knobs", `{"status":503,"latency":"1ms"}`, 200, `"latency":"1ms"`},
		{"POST", sendPath, message, 503, "UNAVAILABLE"},
		{"GET", "/sim/knobs", "", 200, `"status":503,"error_code":"","retry_after":"5"`},
		{"PUT", "/sim/knobs", `{"latency":"2ms"}`, 200, `"latency":"2ms","jitter":"0s","status":0,"error_code":"","retry_after":""`},
		{"POST", "/sim/kill?token=tok", "", 204, ""},
		{"POST", sendPath, message, 404, "UNREGISTERED"},
		{"POST", "/sim/revive?token=tok", "", 204, ""},
		{"POST", "/sim/foreign?token=tok", "", 204, ""},
		{"POST", sendPath, message, 403, "SENDER_ID_MISMATCH"},
		{"POST", "/sim/revive?token=tok", "", 204, ""},
		{"POST", "/sim/offline?token=tok", "", 204, ""},
		{"POST", sendPath, message, 200, ""},
		{"GET", "/sim/device?token=tok", "", 200, `"received":1,"duplicates":0`},
		{"POST", "/sim/online?token=tok", "", 204, ""},
		{"GET", "/sim/device?token=tok", "", 200, `"received":2,"duplicates":1`},
		{"POST", "/sim/poison?match=dispatch.opened", "", 204, ""},
		{"POST", sendPath, message, 400, "INVALID_ARGUMENT"},
		{"DELETE", "/sim/poison", "", 204, ""},
		{"POST", sendPath, message, 200, ""},
		{"GET", "/sim/stats", "", 200, `"requests":7,"accepted":3,"unanswered":0,"statuses":{"200":3,"400":1,"403":1,"404":1,"503":1}`},
		{"GET", "/sim/sends", "", 200, `[{"n":1,`},
		{"GET", "/sim/subscribers?topic=x", "", 200, ""},
		{"PUT", "/sim/knobs", `{"status":200}`, 400, "status 200"},
		{"PUT", "/sim/knobs", `{"stauts":500}`, 400, "stauts"},
		{"PUT", "/sim/knobs", `{"latency":5}`, 400, ""},
		{"PUT", "/sim/knobs", `{"latency":"soon"}`, 400, "soon"},
		{"PUT", "/sim/knobs", `{"error_code":"` + strings.Repeat("x", maxBody) + `"}`, 400, "too large"},
		{"POST", "/sim/kill", "", 400, "token"},
		{"GET", "/sim/knobs", "", 200, `"latency":"2ms","jitter":"0s","status":0`},
		{"GET", "/sim/kill?token=tok", "", 405, ""},
		{"GET", "/", "", 404, ""},
	} {
		status, body := ask(t, step.method, base+step.path, step.body)
		if status != step.want || !strings.Contains(strings.ToLower(body), strings.ToLower(step.contains)) {
			t.Errorf("%s %s: %d %s", step.method, step.path, status, body)
		}
	}
	if rest := end(); len(rest) != 1 || !strings.HasPrefix(rest[0], "requests 7 accepted 3") {
		t.Errorf("%q", rest)
	}
}

// It prints totals at intervals, and ends at once, also while requests hang.
func TestStatsAndEnd(t *testing.T) {
	base, out, end := start(t, "-hang", "-stats", "10ms")
	gone := make(chan error, 1)
	go func() {
		resp, err := http.Post(base+sendPath, "application/json", strings.NewReader(message))
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	for out.Scan() && !strings.Contains(out.Text(), "requests 1 (") { // lines until the send is counted
	}
	if err := out.Err(); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, "GET", base+"/sim/sends", ""); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("without -keep it remembers: %d %s", status, body)
	}
	end()
	if err := testkit.Await(t, "the request ends", gone); err == nil {
		t.Error("answered")
	}
}

// Every knob has a flag and a name in JSON, and comes back from it as it was.
func TestEveryKnob(t *testing.T) {
	args := []string{
		"-latency", "1ms", "-jitter", "2ms", "-status", "429", "-error-code", "-", "-retry-after", "3", "-rate", "0.4", "-hang",
		"-drop", "0.5", "-drop-after-accept", "0.6", "-hang-after-accept", "0.7", "-bad-json", "0.8",
		"-quota-per-minute", "9", "-quota-per-second", "10", "-topic-status", "500",
	}
	c, err := parseFlags(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	knobs := reflect.ValueOf(c.knobs)
	for i := range knobs.NumField() {
		if knobs.Field(i).IsZero() {
			t.Errorf("no flag sets %s", knobs.Type().Field(i).Name)
		}
	}
	text, err := json.Marshal(viewOf(c.knobs))
	if err != nil {
		t.Fatal(err)
	}
	var back knobsView
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the knobs", c.knobs, back.knobs())
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-status", "200"}, {"-rate", "2"}, {"-keep", "-1"}, {"-keep", "1000000"}, {"-stats", "-1s"}, {"more"}, {"-what"},
		{"-addr", "nowhere:x"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
