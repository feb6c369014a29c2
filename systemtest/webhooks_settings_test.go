package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository/repositorytest"
)

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
