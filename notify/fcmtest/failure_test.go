package fcmtest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"firebase.google.com/go/v4/errorutils"
	"firebase.google.com/go/v4/messaging"
	"github.com/google/go-cmp/cmp"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// classes returns the SDK's classes of an error.
func classes(err error) []string {
	var is []string
	for _, c := range []struct {
		name string
		is   func(error) bool
	}{
		{"IsInvalidArgument", messaging.IsInvalidArgument},
		{"IsUnregistered", messaging.IsUnregistered},
		{"IsSenderIDMismatch", messaging.IsSenderIDMismatch},
		{"IsQuotaExceeded", messaging.IsQuotaExceeded},
		{"IsUnavailable", messaging.IsUnavailable},
		{"IsInternal", messaging.IsInternal},
		{"IsThirdPartyAuthError", messaging.IsThirdPartyAuthError},
		{"invalid argument", errorutils.IsInvalidArgument},
		{"not found", errorutils.IsNotFound},
		{"permission denied", errorutils.IsPermissionDenied},
		{"resource exhausted", errorutils.IsResourceExhausted},
		{"unavailable", errorutils.IsUnavailable},
		{"internal", errorutils.IsInternal},
		{"unauthenticated", errorutils.IsUnauthenticated},
		{"unknown", errorutils.IsUnknown},
	} {
		if c.is(err) {
			is = append(is, c.name)
		}
	}
	return is
}

// The SDK recognizes each error, and takes it for no other.
func TestStatus(t *testing.T) {
	s, client := connect(t)
	for _, c := range []struct {
		status int
		code   string
		want   []string
	}{
		{400, "", []string{"IsInvalidArgument", "invalid argument"}},
		{401, "", []string{"IsThirdPartyAuthError", "unauthenticated"}},
		{401, "-", []string{"unauthenticated"}},
		{403, "", []string{"IsSenderIDMismatch", "permission denied"}},
		{403, "-", []string{"permission denied"}},
		{404, "", []string{"IsUnregistered", "not found"}},
		{429, "", []string{"IsQuotaExceeded", "resource exhausted"}},
		{500, "", []string{"IsInternal", "internal"}},
		{500, "UNAVAILABLE", []string{"IsUnavailable", "internal"}},
		{503, "", []string{"IsUnavailable", "unavailable"}},
		{503, "-", []string{"unavailable"}},
		{502, "", []string{"unknown"}},
	} {
		s.Set(func(k *fcmtest.Knobs) { k.Status, k.ErrorCode, k.RetryAfter = c.status, c.code, "17" })
		_, err := client.Send(t.Context(), to("tok"))
		if got := classes(err); !cmp.Equal(got, c.want) {
			t.Errorf("%d %s: %q, want %q: %v", c.status, c.code, got, c.want, err)
			continue
		}
		body, retryAfter := answerOf(t, err)
		testkit.Equal(t, fmt.Sprintf("%d %s, Retry-After", c.status, c.code), "17", retryAfter)
		testkit.Equal(t, fmt.Sprintf("%d %s is a page", c.status, c.code), c.status == 502, strings.HasPrefix(body, "<!DOCTYPE html>"))
		if coded := strings.Contains(body, "FcmError"); coded != (c.code != "-" && c.status != 502) {
			t.Errorf("%d %s: %s", c.status, c.code, body)
		}
	}
	testkit.Equal(t, "received by the phone", 0, s.Device("tok").Received)
	s.Set(func(k *fcmtest.Knobs) { *k = fcmtest.Knobs{} })
	testkit.Equal(t, "the 13th message's name", "projects/demo/messages/13", mustSend(t, client, to("tok")))
}

func TestTokenFates(t *testing.T) {
	s, client := connect(t)
	s.Kill("dead")
	s.SetForeign("foreign")
	for token, want := range map[string]string{
		"dead": "IsUnregistered", "foreign": "IsSenderIDMismatch", "BAD": "IsInvalidArgument", "a b": "IsInvalidArgument",
	} {
		_, err := client.Send(t.Context(), to(token))
		if got := classes(err); len(got) != 2 || got[0] != want {
			t.Errorf("%s: %q: %v", token, got, err)
			continue
		}
		body, _ := answerOf(t, err)
		testkit.Equal(t, token+": the answer blames the token", want == "IsInvalidArgument", strings.Contains(body, `"field":"message.token"`))
	}
	s.Revive("dead")
	s.Revive("foreign")
	for _, token := range []string{"dead", "foreign"} {
		mustSend(t, client, to(token))
		if got := s.Device(token); got.Received != 1 || len(got.Visible) != 1 {
			t.Errorf("%s revived: %+v", token, got)
		}
	}
}

// The server refuses what FCM refuses, and names the field. It accepts messages at the limits.
func TestRefusals(t *testing.T) {
	s, client := connect(t)
	s.Poison("sour")
	with := func(change func(*messaging.Message)) *messaging.Message {
		m := to("tok")
		change(m)
		return m
	}
	data := func(key, value string) *messaging.Message {
		return with(func(m *messaging.Message) { m.Data[key] = value })
	}
	collapse := func(n int) *messaging.Message {
		return with(func(m *messaging.Message) {
			m.APNS = &messaging.APNSConfig{Headers: map[string]string{"apns-collapse-id": strings.Repeat("x", n)}}
		})
	}
	size := func(target func(*messaging.Message), n int) *messaging.Message {
		m := &messaging.Message{Data: map[string]string{"k": strings.Repeat("x", n-1)}}
		target(m)
		return m
	}
	token := func(m *messaging.Message) { m.Token = "tok" }
	topic := func(m *messaging.Message) { m.Topic = "news" }
	ttl := func(d time.Duration) *messaging.Message {
		return with(func(m *messaging.Message) { m.Android.TTL = &d })
	}
	for name, c := range map[string]struct {
		message *messaging.Message
		field   string // "" if it is taken
	}{
		"poison":                {data("k", "a sour b"), "message"},
		"from":                  {data("from", "x"), "message.data"},
		"message_type":          {data("message_type", "x"), "message.data"},
		"google.":               {data("google.x", "x"), "message.data"},
		"gcm":                   {data("gcm.x", "x"), "message.data"},
		"another key":           {data("fromage", "x"), ""},
		"4096 bytes":            {size(token, 4096), ""},
		"4097 bytes":            {size(token, 4097), "message"},
		"2048 to a topic":       {size(topic, 2048), ""},
		"2049 to a topic":       {size(topic, 2049), "message"},
		"text counts":           {with(func(m *messaging.Message) { m.Notification.Body = strings.Repeat("x", 4096) }), "message"},
		"collapse id":           {collapse(64), ""},
		"long collapse id":      {collapse(65), "message.apns.headers"},
		"no ttl":                {ttl(0), ""},
		"four weeks":            {ttl(28 * 24 * time.Hour), ""},
		"more":                  {ttl(28*24*time.Hour + time.Second), "message.android.ttl"},
		"condition":             {&messaging.Message{Condition: "'a' in topics"}, "message.condition"},
		"nothing is the matter": {to("tok"), ""},
	} {
		_, err := client.Send(t.Context(), c.message)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field == "":
		case !messaging.IsInvalidArgument(err):
			t.Errorf("%s: %v", name, err)
		default:
			if body, _ := answerOf(t, err); !strings.Contains(body, `"fieldViolations":[{"field":"`+c.field+`",`) {
				t.Errorf("%s: blames another field than %s: %s", name, c.field, body)
			}
		}
	}
	s.Cure()
	mustSend(t, client, data("k", "sour"))
}

// The server also refuses what the SDK would not send.
func TestRawRefusals(t *testing.T) {
	s := fcmtest.New()
	defer s.Close()
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"no json":       {"{", 400},
		"no message":    {"{}", 400},
		"no recipient":  {`{"message":{"data":{"a":"b"}}}`, 400},
		"two":           {`{"message":{"token":"t","topic":"u"}}`, 400},
		"number":        {`{"message":{"token":"t","data":{"a":1}}}`, 400},
		"negative ttl":  {`{"message":{"token":"t","android":{"ttl":"-1s"}}}`, 400},
		"minutes":       {`{"message":{"token":"t","android":{"ttl":"1m"}}}`, 400},
		"priority":      {`{"message":{"token":"t","android":{"priority":"urgent"}}}`, 400},
		"/topics/":      {`{"message":{"topic":"/topics/x"}}`, 400},
		"huge":          {`{"message":{"token":"t","x":"` + strings.Repeat("x", 64<<10) + `"}}`, 400},
		"unknown field": {`{"message":{"token":"t","fcm_options":{}}}`, 200},
	} {
		if w, cut := post(t.Context(), s, sendPath, c.body); w.Code != c.want || cut {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	// With an unknown length, as in chunks.
	for n, want := range map[int]int{64<<10 - 100: 200, 64 << 10: 400} {
		body := strings.NewReader(`{"message":{"token":"t"}}` + strings.Repeat(" ", n))
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, sendPath, io.MultiReader(body))); w.Code != want {
			t.Errorf("%d bytes in chunks: %d", n, w.Code)
		}
	}
	if got := s.Stats(); got.Requests != 13 || got.Accepted != 2 || got.Statuses[400] != 11 {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]int{
		"/v1/projects/messages:send": 404, "/v1/projects/a/b/messages:send": 404, "/": 404, "/iid/v1:batchOther": 404,
	} {
		if w, _ := post(t.Context(), s, path, "{}"); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, sendPath, nil)); w.Code != 405 || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d, allowed is %s", w.Code, w.Header().Get("Allow"))
	}
}
