package notify

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
)

func TestLog(t *testing.T) {
	const token = "dGhpcyBpcyBh:token-of_a-phone"
	var out bytes.Buffer
	l := NewLogSender(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	p := outbox.Push{
		Type: dispatch.EventOpened, Round: 2, Driver: "drv_1", Dispatch: dispatch.Dispatch{ID: "dsp_1"},
		Device: dispatch.Device{PushToken: token},
	}
	testkit.Equal(t, "the outcome", Outcome{Class: Sent}, l.Send(t.Context(), p))
	var got any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := any(map[string]any{
		"level": "INFO", "msg": "push", "type": "dispatch.opened", "dispatch": "dsp_1", "round": 2.0, "driver": "drv_1",
		"token": "dGhpcy…29",
	})
	testkit.Equal(t, "the line", want, got)
	out.Reset()
	p.Silent = true
	for _, o := range []Outcome{l.Send(t.Context(), p), second(l.Subscribe(t.Context(), "t", []string{token})), second(l.Unsubscribe(t.Context(), "t", nil))} {
		testkit.Equal(t, "the class", Sent, o.Class)
	}
	testkit.Equal(t, "log of a silent push", 0, out.Len())
	p.Silent, p.Topic, p.Device, p.Driver = false, "dsp_1", dispatch.Device{}, ""
	l.Send(t.Context(), p)
	if !strings.Contains(out.String(), `"topic":"dsp_1"`) || strings.Contains(out.String(), `"token"`) {
		t.Errorf("a topic: %s", &out)
	}
	l.Close()
}

func second(_ []int, o Outcome) Outcome { return o }

func TestMask(t *testing.T) {
	for token, want := range map[string]string{
		"": "…0", "short": "…5", "fifteen-letters": "…15", "sixteen-letters!": "sixtee…16", strings.Repeat("x", 163): "xxxxxx…163",
		"가나다라마바사아자차": "가나…30", "\xff\xffabcdefghijklmnop": "abcd…18",
	} {
		if got := MaskToken(token); got != want || !utf8.ValidString(got) {
			t.Errorf("mask(%q) is %q, want %q", token, got, want)
		}
	}
}
