package handler

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/lock"
)

// access says which callers a route accepts, and what it answers to other drivers.
type access struct {
	// role is the least that an admin's key needs; "driver" where drivers call, "" for public routes.
	role string
	// other is the answer to another driver who could take the dispatch, when the scene's driver has it or was offered it;
	// 0 for the same as to the first driver: the route is about the caller.
	other int
	// code is other's, if it is a problem.
	code string
	// stranger is the answer to a driver from another region; 0 for the same as to others.
	stranger int
}

// matrix has the access rules of all routes. A route that is missing here fails TestMatrix.
var matrix = map[string]access{
	"GET /livez":        {},
	"GET /readyz":       {},
	"GET /openapi.json": {},
	"GET /docs":         {},
	"GET /docs/{file}":  {},

	"GET /console":        {},
	"GET /console/":       {},
	"GET /console/{file}": {},
	"GET /driver":         {},
	"GET /driver/":        {},
	"GET /driver/{file}":  {},
	"GET /assets/{file}":  {},

	"GET /v1/sign-in":    {},
	"POST /v1/session":   {},
	"DELETE /v1/session": {},
	"GET /v1/session":    {role: "viewer"},

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

	"DELETE /v1/admin/drivers/{id}/devices/{installation_id}": {role: "admin"},

	"GET /v1/admin/drivers/{id}/signals":   {role: "admin"},
	"POST /v1/admin/drivers/bulk":          {role: "admin"},
	"POST /v1/admin/drivers/{id}/tokens":   {role: "admin"},
	"DELETE /v1/admin/drivers/{id}/tokens": {role: "admin"},
	"POST /v1/admin/drivers/{id}/erase":    {role: "admin"},
	"GET /v1/admin/drivers/{id}/export":    {role: "admin"},

	"POST /v1/admin/api-keys":        {role: "admin"},
	"GET /v1/admin/api-keys":         {role: "admin"},
	"DELETE /v1/admin/api-keys/{id}": {role: "admin"},
	"GET /v1/admin/audit":            {role: "admin"},

	"POST /v1/admin/webhooks":                                      {role: "admin"},
	"GET /v1/admin/webhooks":                                       {role: "admin"},
	"GET /v1/admin/webhooks/{id}":                                  {role: "admin"},
	"PATCH /v1/admin/webhooks/{id}":                                {role: "admin"},
	"DELETE /v1/admin/webhooks/{id}":                               {role: "admin"},
	"POST /v1/admin/webhooks/{id}/rotate":                          {role: "admin"},
	"POST /v1/admin/webhooks/{id}/test":                            {role: "admin"},
	"POST /v1/admin/webhooks/{id}/replay":                          {role: "admin"},
	"GET /v1/admin/webhooks/{id}/deliveries":                       {role: "admin"},
	"POST /v1/admin/webhooks/{id}/deliveries/{delivery_id}/resend": {role: "admin"},

	"GET /v1/admin/notifications":               {role: "viewer"},
	"POST /v1/admin/notifications/{id}/redrive": {role: "dispatcher"},
	"GET /v1/admin/jobs":                        {role: "viewer"},
	"GET /v1/admin/locks":                       {role: "viewer"},
	"GET /v1/admin/jobs/{name}/runs":            {role: "viewer"},
	"POST /v1/admin/jobs/{name}/run":            {role: "admin"},
	"GET /v1/admin/board":                       {role: "viewer"},
	"GET /v1/admin/supply":                      {role: "viewer"},
	"GET /v1/admin/stream":                      {role: "viewer"},
}

// roles in the order in which each includes the ones before.
var roles = []string{"viewer", "dispatcher", "admin"}

// TestMatrix calls every route as every kind of caller. A refused call says why and writes nothing; any other succeeds.
func TestMatrix(t *testing.T) {
	t.Parallel()
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

// callers sends a request of op as every kind of caller.
func (w *world) callers(t *testing.T, op *operation, a access) {
	s := newScene(t, w, op)
	body := s.body(op.examples()[0])
	stranger, strange := s.drivers(1, `"regions":["elsewhere"]`)[0], dispatch.NewDriverID(time.Now())
	nobodys, _, err := w.tokens.Issue(strange, 0)
	noError(t, err)
	other := s.colleague()
	wrote := w.writes(t)
	refuse := func(what, token string, status int, code string) {
		t.Helper()
		r := w.refused(op.route()+" as "+what, s.call(op.method, s.path, token, body, s.headers...), status, code)
		if status == 401 {
			r.wantHeader("WWW-Authenticate", "Bearer")
		}
		if wrote() {
			t.Errorf("%s as %s has changed the database", op.route(), what)
		}
	}
	if a.role != "" {
		for what, token := range map[string]string{
			"nobody": "", "an unknown key": "key_x", "a revoked key": "revoked", "a key in another case": strings.ToUpper(key),
		} {
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
		refuse("an unknown driver", nobodys, 401, "UNAUTHENTICATED")
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

// welcome calls the route as every caller that it accepts, each in a scene of its own.
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
		body := strings.ReplaceAll(s.body(op.examples()[0]), "order-4711", dispatch.NewUniqueID("order-", time.Now()))
		s.call(op.method, s.path, token(s), body, s.headers...).want(want[what])
	}
}

// TestMatrixBySession: what a key may do, its session may, on our own pages; elsewhere and for drivers it is nothing.
func TestMatrixBySession(t *testing.T) {
	t.Parallel()
	w, c := withJobs(t, lock.NewMemory()), documented()
	cookies := map[string]string{}
	for _, r := range []dispatch.Role{dispatch.Viewer, dispatch.Dispatcher, dispatch.Admin} {
		w.putKey(r, r.String())
		cookies[r.String()] = w.signIn(r.String())
	}
	for _, op := range c.operations {
		t.Run(op.id, func(t *testing.T) {
			w.t = t
			w.sessions(t, op, cookies)
		})
	}
	w.t = t
}

// sessions sends a request of op in the session of each role.
func (w *world) sessions(t *testing.T, op *operation, cookies map[string]string) {
	s := newScene(t, w, op)
	body, least := s.body(op.examples()[0]), slices.Index(roles, op.role())
	send := func(role string, headers ...string) reply {
		return s.by(cookies[role], op.method, s.path, body, append(headers, s.headers...)...)
	}
	_, bySession := op.alternatives()["session"]
	if bySession != (least >= 0) {
		t.Errorf("the document says of sessions: %v", op.spec["security"])
	}
	refused := func(what string, r reply, status int, code string) {
		t.Helper()
		w.refused(op.route()+" "+what, r, status, code)
	}
	wrote := w.writes(t)
	switch {
	case op.role() == "driver":
		for _, role := range roles {
			refused("in a session", send(role), 401, "UNAUTHENTICATED")
		}
	case least >= 0:
		for _, role := range roles[:least] {
			refused("as a "+role, send(role), 403, "FORBIDDEN")
		}
		refused("of another site", send("admin", "Sec-Fetch-Site", "cross-site"), 403, "FORBIDDEN")
		refused("of a sibling", send("admin", "Sec-Fetch-Site", "same-site"), 403, "FORBIDDEN")
		refused("of another origin", send("admin", "Origin", "https://evil.example"), 403, "FORBIDDEN")
	}
	if op.role() != "" && wrote() {
		t.Errorf("%s, refused, has changed the database", op.route())
	}
	if least < 0 {
		return
	}
	for _, role := range roles[least:] {
		s := newScene(t, w, op)
		body := strings.ReplaceAll(s.body(op.examples()[0]), "order-4711", dispatch.NewUniqueID("order-", time.Now()))
		s.by(cookies[role], op.method, s.path, body, append(s.headers, "Sec-Fetch-Site", "same-origin")...).want(op.succeeds())
	}
}

// alternatives returns the ways to sign in that an operation takes, with the roles.
func (o *operation) alternatives() map[string]any {
	all := map[string]any{}
	for _, requirement := range o.spec["security"].([]any) {
		maps.Copy(all, requirement.(map[string]any))
	}
	return all
}
