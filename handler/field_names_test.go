package handler

import (
	"strings"
	"testing"
)

// TestNamesCountOnceAndByCase: bodies that another parser might read differently are refused.
func TestNamesCountOnceAndByCase(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	for name, c := range map[string]struct{ body, field string }{
		"another case":      {strings.Replace(order(1), `"region"`, `"Region"`, 1), "Region"},
		"twice":             {strings.Replace(order(1), `{`, `{"region":"busan",`, 1), "region"},
		"twice, at the end": {strings.TrimSuffix(order(1), "}") + `,"fee":{"amount":2,"currency":"KRW"}}`, "fee"},
		"inside":            {order(1, `"fee":{"amount":1,"Currency":"KRW"}`), "fee.Currency"},
		"a number":          {order(1, `"region":5`), "region"},
		"no whole number":   {order(1, `"fee":{"amount":1.5,"currency":"KRW"}`), "fee.amount"},
		"too large":         {strings.Replace(order(1, `"fee":{"amount":77,"currency":"KRW"}`), "77", "1e30", 1), "fee.amount"},
		"no time":           {order(1, `"work_starts_at":"tomorrow"`), "work_starts_at"},
		"a list":            {order(1, `"site_address":["a"]`), "site_address"},
		"accepted by":       {order(1, `"accepted_by":"drv_00000000000000000000000000"`), "accepted_by"},
	} {
		w.refused(name, w.call("POST", "/v1/admin/dispatches", key, c.body), 422, "VALIDATION_FAILED").hasField(c.field)
	}
	bulk := `{"drivers":[{"name":"Kim","phone":"+821000000000","regions":["seoul"],"vehicle_class":"45m"},{"name":"Lee","Phone":"x"}]}`
	if r := w.call("POST", "/v1/admin/drivers/bulk", key, bulk); !strings.Contains(r.raw, `"field":"drivers[1].Phone"`) {
		t.Errorf("in a list: %s", r.raw)
	}
	for _, body := range []string{`[]`, `5`, `"x"`, `true`, `{`, `{"round":1}{}`, `{"round":1},`, "\xff", `{"round":01}`} {
		w.refused(body, w.accept(w.dispatch(1), d, body), 400, "MALFORMED_REQUEST")
	}
}
