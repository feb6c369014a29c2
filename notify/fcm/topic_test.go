package fcm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
)

func TestTopics(t *testing.T) {
	server := simulate(t)
	server.Kill("gone")
	s := senderTo(t, server.URL()+"/v1")

	refused, o := s.Subscribe(t.Context(), "dsp_1", []string{"one", "gone", "two", "BAD"})
	if o.Class != notify.Sent || !cmp.Equal(refused, []int{1, 3}) {
		t.Fatalf("refused %v, %+v", refused, o)
	}
	if diff := cmp.Diff([]string{"one", "two"}, server.Subscribers("dsp_1")); diff != "" {
		t.Fatal(diff)
	}
	told := offered()
	told.Device, told.Driver, told.Topic, told.Silent, told.Type = dispatch.Device{}, "", "dsp_1", true, dispatch.EventTaken
	if o := s.Send(t.Context(), told); o.Class != notify.Sent {
		t.Fatalf("to the topic: %+v", o)
	}
	if d := server.Device("two"); len(d.Silent) != 1 || d.Silent[0].Type != "dispatch.taken" {
		t.Fatalf("a subscriber got %+v", d)
	}
	refused, o = s.Unsubscribe(t.Context(), "dsp_1", []string{"one", "two"})
	if o.Class != notify.Sent || len(refused) != 0 || len(server.Subscribers("dsp_1")) != 0 {
		t.Fatalf("refused %v, %+v, left %v", refused, o, server.Subscribers("dsp_1"))
	}
}

func TestTopicLimits(t *testing.T) {
	server := simulate(t)
	s := senderTo(t, server.URL()+"/v1")
	tokens := make([]string, 1001)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token-%d", i)
	}
	if refused, o := s.Subscribe(t.Context(), "dsp_1", nil); o.Class != notify.Sent || refused != nil {
		t.Errorf("no members: %v, %+v", refused, o)
	}
	if _, o := s.Subscribe(t.Context(), "dsp_1", tokens); o.Class != notify.Poison {
		t.Errorf("too many: %+v", o)
	}
	testkit.Equal(t, "calls for that", 0, server.TopicCalls())
	if refused, o := s.Subscribe(t.Context(), "dsp_1", tokens[:1000]); o.Class != notify.Sent || refused != nil {
		t.Errorf("the most: %v, %+v", refused, o)
	}
	testkit.Equal(t, "subscribers", 1000, len(server.Subscribers("dsp_1")))
}

func TestTopicFailures(t *testing.T) {
	for status, want := range map[int]notify.Class{
		400: notify.Poison, 401: notify.Auth, 403: notify.Auth, 404: notify.Auth, 429: notify.Quota,
		500: notify.Unsure, 503: notify.Unavailable,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := simulate(t)
			server.Set(func(k *fcmtest.Knobs) { k.TopicStatus, k.RetryAfter = status, "5" })
			refused, o := senderTo(t, server.URL()+"/v1").Unsubscribe(t.Context(), "dsp_1", []string{aToken})
			if o.Class != want || o.RetryAfter != 5*time.Second || refused != nil || o.Reason == "" {
				t.Errorf("refused %v, %+v; want %s", refused, o, want)
			}
			testkit.Equal(t, "calls", 1, server.TopicCalls())
		})
	}
	for name, body := range map[string]string{
		"too few":               `{"results":[{}]}`,
		"not an error":          `{"results":[{"error":7},{}]}`, // the SDK panics
		"something else":        `{"results":[{"topic":"x"},{}]}`,
		"nothing":               ``,
		"cut off":               `{"results":[{},{`,
		"results of other kind": `{"results":"all"}`,
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, requests := answering(t, saying(200, body))
			refused, o := senderTo(t, endpoint+"/v1").Subscribe(t.Context(), "dsp_1", []string{aToken, "another"})
			if o.Class != notify.Unsure || refused != nil || o.Reason == "" || requests.Load() != 1 {
				t.Errorf("refused %v, %+v after %d requests", refused, o, requests.Load())
			}
		})
	}
}
