package fcmtest_test

import (
	"fmt"
	"strings"
	"testing"

	"firebase.google.com/go/v4/messaging"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// A message to a topic reaches the tokens that the SDK subscribed, and counts as one request.
func TestTopics(t *testing.T) {
	s, client := connect(t)
	s.Kill("dead")
	s.SetForeign("foreign")
	r, err := client.SubscribeToTopic(t.Context(), []string{"b", "dead", "a", "foreign", "BAD", "a"}, "news")
	if err != nil {
		t.Fatal(err)
	}
	want := &messaging.TopicManagementResponse{SuccessCount: 3, FailureCount: 3, Errors: []*messaging.ErrorInfo{
		{Index: 1, Reason: "NOT_FOUND"}, {Index: 3, Reason: "INVALID_ARGUMENT"}, {Index: 4, Reason: "INVALID_ARGUMENT"},
	}}
	testkit.Equal(t, "subscribed", want, r)
	mustSubscribe(t, client, "other", "c")
	testkit.Equal(t, "subscribers", []string{"a", "b"}, s.Subscribers("news"))
	testkit.Equal(t, "subscribers of another topic", []string{"c"}, s.Subscribers("other"))
	taken := silent("", "dispatch.taken", "e2", "dsp_1", 1)
	taken.Topic = "news"
	mustSend(t, client, to("a"))
	mustSend(t, client, taken)
	for token, received := range map[string]int{"a": 2, "b": 1, "c": 0} {
		if d := s.Device(token); d.Received != received || len(d.Visible) != 0 {
			t.Errorf("%s: %+v", token, d)
		}
	}
	s.Kill("b")
	mustSend(t, client, taken)
	if a, b := s.Device("a"), s.Device("b"); a.Received != 3 || a.Duplicates != 1 || b.Received != 1 {
		t.Errorf("a %+v, b %+v", a, b)
	}
	r, err = client.UnsubscribeFromTopic(t.Context(), []string{"a", "b", "nobody"}, "news")
	if err != nil || r.SuccessCount != 2 || r.Errors[0].Index != 1 || r.Errors[0].Reason != "NOT_FOUND" {
		t.Errorf("%+v %v", r, err)
	}
	if got := s.Subscribers("news"); len(got) > 0 {
		t.Errorf("still subscribed: %q", got)
	}
	mustSend(t, client, taken)
	if d := s.Device("a"); d.Received != 3 {
		t.Errorf("a got a topic that it has left: %+v", d)
	}
	if s.Requests() != 4 || s.TopicCalls() != 3 {
		t.Errorf("%d sends, %d topic calls", s.Requests(), s.TopicCalls())
	}
}

func mustSubscribe(t testing.TB, client *messaging.Client, topic string, tokens ...string) {
	t.Helper()
	if r, err := client.SubscribeToTopic(t.Context(), tokens, topic); err != nil || r.FailureCount > 0 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestTopicCallsThatAreRefused(t *testing.T) {
	tokens := func(n int) string { return strings.Repeat(`"tok",`, n-1) + `"tok"` }
	authorized := []string{"access_token_auth", "true"}
	for name, c := range map[string]struct {
		body    string
		headers []string
		set     func(*fcmtest.Knobs)
		want    int
	}{
		"1,000 tokens": {body: `{"to":"/topics/x","registration_tokens":[` + tokens(1000) + `]}`, headers: authorized, want: 200},
		"1,001 tokens": {body: `{"to":"/topics/x","registration_tokens":[` + tokens(1001) + `]}`, headers: authorized, want: 400},
		"no tokens":    {body: `{"to":"/topics/x","registration_tokens":[]}`, headers: authorized, want: 400},
		"no topic":     {body: `{"to":"x","registration_tokens":["tok"]}`, headers: authorized, want: 400},
		"a bad topic":  {body: `{"to":"/topics/a b","registration_tokens":["tok"]}`, headers: authorized, want: 400},
		"no json":      {body: `{`, headers: authorized, want: 400},
		"huge":         {body: strings.Repeat(" ", 4<<20+1), headers: authorized, want: 400},
		"no header":    {body: `{"to":"/topics/x","registration_tokens":["tok"]}`, want: 401},
		"a status": {
			body: `{"to":"/topics/x","registration_tokens":["tok"]}`, headers: authorized,
			set: func(k *fcmtest.Knobs) { k.TopicStatus, k.RetryAfter = 503, "3" }, want: 503,
		},
		"a send's status": {
			body: `{"to":"/topics/x","registration_tokens":["tok"]}`, headers: authorized,
			set: func(k *fcmtest.Knobs) { k.Status = 503 }, want: 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fcmtest.New()
			if c.set != nil {
				s.Set(c.set)
			}
			w, _ := post(t.Context(), s, "/iid/v1:batchAdd", c.body, c.headers...)
			if w.Code != c.want || len(s.Subscribers("x")) != map[bool]int{true: 1}[c.want == 200] || s.TopicCalls() != 1 {
				t.Errorf("%d %s: subscribers %q", w.Code, w.Body, s.Subscribers("x"))
			}
			testkit.Equal(t, "Retry-After", s.Knobs().RetryAfter, w.Header().Get("Retry-After"))
			if c.want != 200 && !strings.Contains(w.Body.String(), `{"error":"`) {
				t.Error(w.Body)
			}
		})
	}
}

// A phone can subscribe to 2,000 topics, and unsubscribing makes room.
func TestTooManyTopics(t *testing.T) {
	s := fcmtest.New()
	call := func(operation string, topic int) string {
		body := fmt.Sprintf(`{"to":"/topics/t%d","registration_tokens":["tok"]}`, topic)
		w, _ := post(t.Context(), s, "/iid/v1:"+operation, body, "access_token_auth", "true")
		return strings.TrimSpace(w.Body.String())
	}
	const fine, tooMany = `{"results":[{}]}`, `{"results":[{"error":"TOO_MANY_TOPICS"}]}`
	for i := range 2000 {
		if got := call("batchAdd", i); got != fine {
			t.Fatalf("topic %d: %s", i, got)
		}
	}
	for _, step := range []struct {
		operation string
		topic     int
		want      string
	}{
		{"batchAdd", 2000, tooMany},
		{"batchAdd", 7, fine}, // again
		{"batchRemove", 2000, fine},
		{"batchAdd", 2000, tooMany},
		{"batchRemove", 7, fine},
		{"batchAdd", 2000, fine},
	} {
		testkit.Equal(t, fmt.Sprintf("%s %d", step.operation, step.topic), step.want, call(step.operation, step.topic))
	}
}
