package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// A service that ends with an error says so in its log, and other commands on stderr.
func TestFail(t *testing.T) {
	for _, args := range [][]string{nil, {"serve"}} {
		var out, errs bytes.Buffer
		Fail(args, errors.New("why"), &out, &errs)
		var line struct{ Level, Error, Version string }
		err := json.Unmarshal(out.Bytes(), &line)
		if err != nil || line.Level != "ERROR" || line.Error != "why" || line.Version != Version || errs.Len() > 0 {
			t.Errorf("%v: %v, %s, %s", args, err, &out, &errs)
		}
	}
	var out, errs bytes.Buffer
	if Fail([]string{"doctor"}, errors.New("why"), &out, &errs); errs.String() != "firsttap: why\n" || out.Len() > 0 {
		t.Errorf("doctor: %s, %s", &out, &errs)
	}
}

// The first line says which version starts with which settings, and the last that it has stopped, and for how long it ran.
func TestFirstAndLastLine(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &testkit.LogBuffer{}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, nil, testkit.Settings("FIRSTTAP_ADDR", "127.0.0.1:0", "FIRSTTAP_OPS_ADDR", "",
			"FIRSTTAP_JWT_SECRET", strings.Repeat("s", 40), "FIRSTTAP_DATABASE_URL", "sqlite://"+t.TempDir()+"/my.db"), patient, out)
	}()
	testkit.Eventually(t, "it is ready", func() bool { return out.Count("FirstTap listens on") > 0 })
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testkit.Patience): //nolint:forbidigo // it gives up, and fails
		t.Fatal("it does not end")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	first, last := lines[0], lines[len(lines)-1]
	for _, want := range []string{`"version":"` + Version + `"`, `"FIRSTTAP_ADDR":"127.0.0.1:0"`, `"FIRSTTAP_JWT_SECRET":"set"`} {
		if !strings.Contains(first, want) {
			t.Errorf("the first line: %s", first)
		}
	}
	if !strings.Contains(last, "firsttap has stopped") || !strings.Contains(last, `"ran":"`) {
		t.Errorf("the last line: %s", last)
	}
}
