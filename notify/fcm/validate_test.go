package fcm

import (
	"strings"
	"testing"

	"firsttap/internal/testkit"
	"firsttap/notify"
)

// TestValidate: the push service sees the credentials, and delivers nothing.
func TestValidate(t *testing.T) {
	url, _ := answering(t, saying(200, `{"access_token":"let-me-in","token_type":"Bearer","expires_in":3600}`))
	g := newGoogle(t, url, 0)
	if o := g.sender.Validate(t.Context()); o.Class != notify.Sent {
		t.Errorf("%+v", o)
	}
	sends := g.fcm.Sends()
	if len(sends) != 1 || !sends[0].ValidateOnly || sends[0].Authorization != "Bearer let-me-in" {
		t.Errorf("%+v", sends)
	}
	if received, _, _, _ := g.fcm.Totals(); received != 0 {
		t.Errorf("%d phones received it", received)
	}
	refused, _ := answering(t, saying(400, `{"error":"invalid_grant"}`))
	if o := newGoogle(t, refused, 0).sender.Validate(t.Context()); o.Class != notify.Auth || !strings.Contains(o.Reason, "invalid_grant") {
		t.Errorf("%+v", o)
	}
	if o := newGoogle(t, "http://"+testkit.FreeAddress(t), 0).sender.Validate(t.Context()); o.Class != notify.Unreached {
		t.Errorf("%+v", o)
	}
}
