package fcmtest_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// Sends returns the requests as they were sent, with their outcomes; the hook gets the same.
func TestSends(t *testing.T) {
	s, client := connect(t)
	s.Kill("dead")
	var mu sync.Mutex
	var hooked []fcmtest.Request
	s.OnSend(func(r fcmtest.Request) {
		mu.Lock()
		defer mu.Unlock()
		hooked = append(hooked, r)
	})
	before := time.Now()
	mustSend(t, client, to("tok"))
	if _, err := client.Send(t.Context(), silent("dead", "dispatch.taken", "evt_2", "dsp_1", 1)); err == nil {
		t.Error("taken")
	}
	if name, err := client.SendDryRun(t.Context(), to("tok")); err != nil || name != "projects/demo/messages/fake_message_id" {
		t.Error(name, err)
	}
	got := s.Sends()
	want := []fcmtest.Request{
		{N: 1, Project: "demo", Token: "tok", Tag: "dsp_1", Data: to("").Data, Status: 200, Accepted: true},
		{
			N: 2, Project: "demo", Token: "dead", Data: silent("", "dispatch.taken", "evt_2", "dsp_1", 1).Data, Silent: true,
			Status: 404, Code: "UNREGISTERED",
		},
		{N: 3, Project: "demo", Token: "tok", Tag: "dsp_1", Data: to("").Data, ValidateOnly: true, Status: 200},
	}
	testkit.Equal(t, "the requests", want, got, cmpopts.IgnoreFields(fcmtest.Request{}, "At", "Body"))
	testkit.Equal(t, "what the hook got", got, hooked)
	for _, r := range got {
		if r.At.Before(before) || r.At.After(time.Now()) || !json.Valid(r.Body) {
			t.Errorf("%d at %v: %s", r.N, r.At, r.Body)
		}
	}
	if d := s.Device("tok"); d.Received != 1 {
		t.Errorf("the phone got a dry run: %+v", d)
	}
}

func TestKeep(t *testing.T) {
	s := fcmtest.New()
	send := func(n int) {
		for range n {
			post(t.Context(), s, sendPath, rawOffer, "Authorization", "Bearer x")
		}
	}
	kept := func() (numbers []int64) {
		for _, r := range s.Sends() {
			numbers = append(numbers, r.N)
		}
		return numbers
	}
	send(2)
	if got := s.Sends(); len(got) != 2 || got[0].Authorization != "Bearer x" {
		t.Errorf("%+v", got)
	}
	s.KeepSends(3)
	for _, c := range []struct {
		send int
		want []int64
	}{{0, nil}, {2, []int64{3, 4}}, {1, []int64{3, 4, 5}}, {2, []int64{5, 6, 7}}, {3, []int64{8, 9, 10}}} {
		if send(c.send); !slices.Equal(kept(), c.want) {
			t.Errorf("kept %v, want %v", kept(), c.want)
		}
	}
	s.KeepSends(0)
	if send(2); len(s.Sends()) != 0 || s.Requests() != 12 {
		t.Errorf("kept %v of %d", kept(), s.Requests())
	}
}
