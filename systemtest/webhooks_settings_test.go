package systemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"firsttap/repository/repositorytest"
	"firsttap/testkit"
	"firsttap/webhook"
)

// TestWebhookRotation: during a rotation a delivery is signed with the new secret and the old one: the reference library in Node accepts it
// with either. A webhook.test arrives as events do.
func TestWebhookRotation(t *testing.T) {
	t.Parallel()
	v, receiver := startVerifier(t), StartReceiver(t)
	i := Start(t, databaseURL(repositorytest.URL(t, "sqlite")), PrivateWebhooks)
	w := MakeWebhook(t, i, receiver.URL("/hook"))
	var rotated Webhook
	a := i.must(200, "POST", "/v1/admin/webhooks/"+w.ID+"/rotate", AdminKey, "")
	if err := json.Unmarshal([]byte(a.body), &rotated); err != nil || rotated.Secret == w.Secret || rotated.Secret == "" {
		t.Fatalf("%s: %v", a, err)
	}
	i.must(202, "POST", "/v1/admin/webhooks/"+w.ID+"/test", AdminKey, "")
	MakeDispatch(t, i)
	testkit.Eventually(t, "both deliveries arrive", func() bool { return len(receiver.Arrivals("/hook")) >= 2 })
	types := map[string]bool{}
	for _, a := range receiver.Arrivals("/hook") {
		types[a.Type] = true
		for _, secret := range []string{w.Secret, rotated.Secret} {
			v.verify(secret, a)
		}
	}
	if !types["webhook.test"] || !types["dispatch.created"] {
		t.Errorf("%v arrived", types)
	}
	v.mustAccept()
}

// TestWebhooksOfALeader: with FIRSTTAP_RELAY=leader, events of every instance arrive, sent by the one that leads.
func TestWebhooksOfALeader(t *testing.T) {
	t.Parallel()
	receiver := StartReceiver(t)
	instances, _ := startTwo(t, mariaDB(t), ownRedis(t), PrivateWebhooks, "FIRSTTAP_RELAY=leader")
	MakeWebhook(t, instances[0], receiver.URL("/hook"))
	for _, i := range instances {
		id := MakeDispatch(t, i)
		testkit.Eventually(t, "its event arrives", func() bool {
			return slices.ContainsFunc(receiver.Arrivals("/hook"), func(a Arrival) bool { return a.Dispatch == id && a.Type == "dispatch.created" })
		})
	}
}

// TestPrivateWebhooksNeedTheSetting: without FIRSTTAP_WEBHOOK_ALLOW_PRIVATE, an endpoint on this machine can't be registered. One that was
// registered before is sent nothing: the log of its delivery says why. The doctor warns of the setting.
func TestPrivateWebhooksNeedTheSetting(t *testing.T) {
	t.Parallel()
	receiver, url := StartReceiver(t), repositorytest.URL(t, "sqlite")
	i := Start(t, databaseURL(url), PrivateWebhooks)
	w := MakeWebhook(t, i, receiver.URL("/hook"))
	i.end()
	i = Start(t, databaseURL(url))
	for _, target := range []string{receiver.URL("/other"), "https://127.0.0.1/", "https://localhost/", "https://[::1]:8443/"} {
		if a := send("POST", i.URL+"/v1/admin/webhooks", AdminKey, `{"url":"`+target+`","events":["*"]}`); a.status != 422 || a.Code != "ENDPOINT_NOT_ALLOWED" {
			t.Errorf("%s: %s", target, a)
		}
	}
	MakeDispatch(t, i)
	testkit.Retry(t, func() error {
		a := send("GET", i.URL+"/v1/admin/webhooks/"+w.ID+"/deliveries", AdminKey, "")
		if a.status != 200 || !strings.Contains(a.body, `"error":"`+webhook.ErrNotAllowed.Error()) {
			return fmt.Errorf("no delivery was refused: %s", a.body[max(0, len(a.body)-700):])
		}
		return nil
	})
	if n := len(receiver.Arrivals("")); n > 0 {
		t.Errorf("%d deliveries arrived", n)
	}
	if x := examine(t, "FIRSTTAP_DATABASE_URL="+url, PrivateWebhooks); !strings.HasPrefix(x.line("settings.webhooks"), "warning") {
		t.Errorf("the doctor says %s", x.line("settings.webhooks"))
	}
}
