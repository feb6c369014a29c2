package handler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/lock"
)

// access says who may call a route, and what a driver is answered whose dispatch it is not.
type access struct {
	// role is the least that an admin's key needs; "driver" where drivers call, "" where everybody may.
	role string
	// other is the answer to another driver who could take the dispatch, when the scene's driver has it or was offered it;
	// 0 for the same as anybody: the route is about whoever calls.
	other int
	// code is other's, if it is a problem.
	code string
	// stranger is the answer to a driver from another region; 0 for the same as anybody.
	stranger int
}

// matrix is who may do what. A route that is not in it fails TestMatrix: say here who it is for.
var matrix = map[string]access{
	"GET /livez":        {},
	"GET /readyz":       {},
	"GET /openapi.json": {},
	"GET /docs":         {},
	"GET /docs/{file}":  {},

	"GET /v1/me":                              {role: "driver"},
	"PUT /v1/me/duty":                         {role: "driver"},
	"PUT /v1/me/devices/{installation_id}":    {role: "driver"},
	"DELETE /v1/me/devices/{installation_id}": {role: "driver"},
	"GET /v1/me/offers":                       {role: "driver"},
	"GET /v1/me/dispatches":                   {role: "driver"},
	"GET /v1/stream":                          {role: "driver"},
	"GET /v1/me/dispatches/{id}/claim":        {role: "driver", other: 200, stranger: 404},
	"GET /v1/dispatches/{id}":                 {role: "driver", other: 200, stranger: 404},
	"POST /v1/dispatches/{id}/accept":         {role: "driver", other: 200, stranger: 403}, // NOT_ELIGIBLE, with the reason
	"POST /v1/dispatches/{id}/seen":           {role: "driver", other: 204, stranger: 404},
	"POST /v1/dispatches/{id}/decline":        {role: "driver", other: 204, stranger: 404},
	"POST /v1/dispatches/{id}/withdraw":       {role: "driver", other: 403, code: "FORBIDDEN", stranger: 404},
	"POST /v1/dispatches/{id}/start":          {role: "driver", other: 403, code: "FORBIDDEN", stranger: 404},
	"POST /v1/dispatches/{id}/complete":       {role: "driver", other: 403, code: "FORBIDDEN", stranger: 404},

	"POST /v1/admin/dispatches":                   {role: "dispatcher"},
	"POST /v1/admin/dispatches/preview":           {role: "dispatcher"},
	"GET /v1/admin/dispatches":                    {role: "viewer"},
	"GET /v1/admin/dispatches/{id}":               {role: "viewer"},
	"PATCH /v1/admin/dispatches/{id}":             {role: "dispatcher"},
	"POST /v1/admin/dispatches/{id}/cancel":       {role: "dispatcher"},
	"POST /v1/admin/dispatches/{id}/reopen":       {role: "dispatcher"},
	"POST /v1/admin/dispatches/{id}/extend":       {role: "dispatcher"},
	"POST /v1/admin/dispatches/{id}/assign":       {role: "dispatcher"},
	"POST /v1/admin/dispatches/{id}/unassign":     {role: "dispatcher"},
	"GET /v1/admin/dispatches/{id}/events":        {role: "viewer"},
	"GET /v1/admin/dispatches/{id}/attempts":      {role: "viewer"},
	"GET /v1/admin/dispatches/{id}/offers":        {role: "viewer"},
	"GET /v1/admin/dispatches/{id}/notifications": {role: "viewer"},

	"POST /v1/admin/drivers":                {role: "admin"},
	"GET /v1/admin/drivers":                 {role: "viewer"},
	"GET /v1/admin/drivers/{id}":            {role: "viewer"},
	"PATCH /v1/admin/drivers/{id}":          {role: "admin"},
	"POST /v1/admin/drivers/{id}/suspend":   {role: "admin"},
	"POST /v1/admin/drivers/{id}/reinstate": {role: "admin"},
	"GET /v1/admin/drivers/{id}/devices":    {role: "viewer"},
	"GET /v1/admin/drivers/{id}/signals":    {role: "admin"},
	"POST /v1/admin/drivers/bulk":           {role: "admin"},
	"POST /v1/admin/drivers/{id}/tokens":    {role: "admin"},

	"POST /v1/admin/api-keys":        {role: "admin"},
	"GET /v1/admin/api-keys":         {role: "admin"},
	"DELETE /v1/admin/api-keys/{id}": {role: "admin"},
	"GET /v1/admin/audit":            {role: "admin"},

	"GET /v1/admin/notifications":               {role: "viewer"},
	"POST /v1/admin/notifications/{id}/redrive": {role: "dispatcher"},
	"GET /v1/admin/jobs":                        {role: "viewer"},
	"GET /v1/admin/jobs/{name}/runs":            {role: "viewer"},
	"POST /v1/admin/jobs/{name}/run":            {role: "admin"},
	"GET /v1/admin/board":                       {role: "viewer"},
	"GET /v1/admin/supply":                      {role: "viewer"},
	"GET /v1/admin/stream":                      {role: "viewer"},
}

// roles in the order in which each includes the ones before.
var roles = []string{"viewer", "dispatcher", "admin"}

// TestMatrix: every route by every kind of caller. Who is refused hears why, and changes nothing in any table; who is not
// succeeds.
func TestMatrix(t *testing.T) {
	w, c := withJobs(t, lock.NewMemory()), documented()
	for _, route := range w.routes() {
		if _, ok := matrix[route]; !ok {
			t.Errorf("%s is not in the matrix: say who may call it", route)
		}
	}
	for _, r := range []dispatch.Role{dispatch.Viewer, dispatch.Dispatcher, dispatch.Admin} {
		w.putKey(r, r.String())
	}
	w.putNamedKey("key_revoked", dispatch.Admin, "revoked")
	w.exec("UPDATE api_keys SET revoked_at = 1 WHERE id = 'key_revoked'")
	for _, route := range slices.Sorted(maps.Keys(matrix)) {
		i := slices.IndexFunc(c.operations, func(op *operation) bool { return op.route() == route })
		if i < 0 {
			t.Errorf("%s is in the matrix and nowhere else", route)
			continue
		}
		op := c.operations[i]
		if op.role() != matrix[route].role {
			t.Errorf("%s is for %q, and the document says %q", route, matrix[route].role, op.role())
		}
		t.Run(op.id, func(t *testing.T) {
			w.t = t
			w.callers(t, op, matrix[route])
		})
	}
	w.t = t
}

// callers sends a request of op as everybody.
func (w *world) callers(t *testing.T, op *operation, a access) {
	s := newScene(t, w, op)
	body := s.body(op.examples()[0])
	stranger, strange := s.drivers(1, `"regions":["elsewhere"]`)[0], dispatch.NewDriverID(time.Now())
	nobodys, _, err := w.tokens.Issue(strange)
	if err != nil {
		t.Fatal(err)
	}
	other := s.colleague()
	refuse := func(what, token string, status int, code string) {
		t.Helper()
		before := w.everything()
		r := s.call(op.method, s.path, token, body, s.headers...)
		w.refused(fmt.Sprintf("%s as %s", op.route(), what), r, status, code)
		for table, rows := range w.everything() {
			if rows != before[table] {
				t.Errorf("%s as %s has changed %s", op.route(), what, table)
			}
		}
	}
	if a.role != "" {
		for what, token := range map[string]string{"nobody": "", "an unknown key": "key_x", "a revoked key": "revoked"} {
			refuse(what, token, 401, "UNAUTHENTICATED")
		}
	}
	admins := slices.Index(roles, a.role)
	switch {
	case a.role == "driver":
		for _, token := range append(roles, key) {
			refuse("the key "+token, token, 401, "UNAUTHENTICATED")
		}
		if a.other >= 400 {
			refuse("another driver", other.token, a.other, a.code)
		}
		if a.stranger != 0 {
			refuse("a stranger", stranger.token, a.stranger, map[int]string{404: "DISPATCH_NOT_FOUND", 403: "NOT_ELIGIBLE"}[a.stranger])
		}
		refuse("a driver who is not there", nobodys, 401, "UNAUTHENTICATED")
	case admins >= 0:
		for what, token := range map[string]string{"the driver": s.driver.token, "another driver": other.token, "a stranger": stranger.token} {
			refuse(what, token, 401, "UNAUTHENTICATED")
		}
		for _, role := range roles[:admins] {
			refuse("a "+role, role, 403, "FORBIDDEN")
		}
	}
	w.welcome(t, op, a)
}

// welcome sends it as everybody who may, each in a scene of their own.
func (w *world) welcome(t *testing.T, op *operation, a access) {
	may := map[string]func(s *scene) string{"somebody": func(s *scene) string { return s.token }}
	want := map[string]int{"somebody": op.succeeds()}
	add := func(what string, status int, token func(s *scene) string) { may[what], want[what] = token, status }
	switch a.role {
	case "":
		add("a driver", op.succeeds(), func(s *scene) string { return s.driver.token })
		add("a revoked key", op.succeeds(), func(*scene) string { return "revoked" })
	case "driver":
		if a.other < 400 {
			add("another driver", max(a.other, 0), func(s *scene) string { return s.colleague().token })
			if a.other == 0 {
				want["another driver"] = op.succeeds()
			}
		}
	default:
		for _, role := range roles[slices.Index(roles, a.role):] {
			add(role, op.succeeds(), func(*scene) string { return role })
		}
	}
	for what, token := range may {
		s := newScene(t, w, op)
		body := strings.ReplaceAll(s.body(op.examples()[0]), "order-4711", dispatch.Unique("order-", time.Now()))
		if r := s.call(op.method, s.path, token(s), body, s.headers...); r.status != want[what] {
			t.Errorf("%s as %s: %d %s, want %d", op.route(), what, r.status, r.raw, want[what])
		}
	}
}
