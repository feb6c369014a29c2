package handler

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/lock"
)

// scene is a world in which one request of an operation makes sense: the resource of its path exists in the right state.
type scene struct {
	*world
	driver  caller // the driver that the request is about or comes from
	region  string // where only they work
	path    string
	token   string
	headers []string
	// real replaces the identifiers of the examples in a body.
	real map[string]string
}

const (
	exampleDispatch = "dsp_0pgbv3614gtd3e4fcssuucnphk"
	exampleDriver   = "drv_0pgbv361436pml168urnpi33a8"
	exampleKey      = "ftk_MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmY"
)

// at makes the path of the operation with values for {id} and the like.
func (s *scene) at(path string, values ...string) {
	for _, v := range values {
		start, end := strings.Index(path, "{"), strings.Index(path, "}")
		path = path[:start] + v + path[end+1:]
	}
	s.path = path
}

// scenes prepare a request of each operation by the operation's name, for the driver or the first key to send. An operation without
// a scene fails TestEveryExample.
var scenes = map[string]func(s *scene, path string){
	"getLiveness": plain, "getReadiness": plain, "getDocument": plain, "getDocs": plain,
	"getDocsFile": func(s *scene, path string) { s.at(path, "docs.js") },
	"findConsole": plain, "getConsole": plain, "findDriverPage": plain, "getDriverPage": plain,
	"getConsoleFile": func(s *scene, path string) { s.at(path, "main.js") },
	"getDriverFile":  func(s *scene, path string) { s.at(path, "main.js") },
	"getAsset":       func(s *scene, path string) { s.at(path, "preact.js") },

	"getSession": plain, "signOut": plain, "getSignIn": plain,
	"signIn": func(s *scene, path string) {
		s.path = path
		s.real[exampleKey] = key
	},

	"getMe": plain, "setDuty": plain, "listOffers": plain, "listMyDispatches": plain, "followAsDriver": plain,
	"putDevice":    func(s *scene, path string) { s.at(path, "phone") },
	"deleteDevice": func(s *scene, path string) { s.at(path, "phone") },
	"seeDispatch":  onOpen, "acceptDispatch": onOpen, "markSeen": onOpen, "declineDispatch": onOpen, "getReceipt": onOpen,
	"withdrawFromDispatch": onAccepted, "startWork": onAccepted, "completeWork": onBegun,

	"createDispatch": plain, "listDispatches": plain, "previewDispatch": plain, "followAsAdmin": plain,
	"getDispatch": onOpen, "changeDispatch": onOpen, "cancelDispatch": onOpen, "extendDispatch": onOpen, "assignDispatch": onOpen,
	"listEvents": onOpen, "listAttempts": onOpen, "listOffersOfDispatch": onOpen, "listNotificationsOfDispatch": onOpen,
	"unassignDispatch": onAccepted,
	"reopenDispatch": func(s *scene, path string) {
		id := s.newDispatch()
		s.expire(id, time.Hour, time.Minute)
		s.onDispatch(path, id)
	},

	"createDriver": plain, "listDrivers": plain, "createDrivers": plain,
	"getDriver": onDriver, "changeDriver": onDriver, "suspendDriver": onDriver, "reinstateDriver": onDriver, "issueToken": onDriver,
	"listDevices": onDriver, "getSignals": onDriver, "revokeTokens": onDriver, "eraseDriver": onDriver, "exportDriver": onDriver,
	"removeDevice": func(s *scene, path string) {
		s.device(s.driver, "phone", "token-of-"+s.driver.id)
		s.at(path, s.driver.id, "phone")
	},

	"createKey": plain, "listKeys": plain, "listAudit": plain,
	"revokeKey": func(s *scene, path string) {
		s.putNamedKey("key_to_revoke", dispatch.Viewer, "to revoke")
		s.at(path, "key_to_revoke")
	},

	"createWebhook": plain, "listWebhooks": plain,
	"getWebhook": onWebhook, "changeWebhook": onWebhook, "deleteWebhook": onWebhook, "rotateWebhook": onWebhook, "testWebhook": onWebhook,
	"listDeliveries": onWebhook, "replayWebhook": onWebhook,
	"resendDelivery": func(s *scene, path string) {
		id := s.webhook()
		s.at(path, id, s.call("POST", "/v1/admin/webhooks/"+id+"/test", key, "").want(202).text("id"))
	},

	"getBoard": plain, "getSupply": plain, "listNotifications": plain, "listJobs": plain, "listLocks": plain,
	"listRuns": func(s *scene, path string) { s.at(path, "count") },
	"runJob":   func(s *scene, path string) { s.at(path, "count") },
	"redriveNotification": func(s *scene, path string) {
		s.device(s.driver, "phone", s.driver.id)
		s.newDispatch()
		for s.path == "" {
			for _, p := range s.tell() {
				if string(p.Driver) == s.driver.id {
					s.settle(p, outbox.Dead)
					s.at(path, string(p.ID))
				}
			}
		}
	},
}

func plain(s *scene, path string)     { s.path = path }
func onDriver(s *scene, path string)  { s.at(path, s.driver.id) }
func onWebhook(s *scene, path string) { s.at(path, s.webhook()) }
func onOpen(s *scene, path string)    { s.onDispatch(path, s.newDispatch()) }
func onAccepted(s *scene, path string) {
	id := s.newDispatch()
	s.takes(id)
	s.onDispatch(path, id)
}

func onBegun(s *scene, path string) {
	id := s.newDispatch()
	s.takes(id)
	s.on(id, "start", s.driver).want(200)
	s.onDispatch(path, id)
}

// onDispatch makes the request one for that dispatch, at its version.
func (s *scene) onDispatch(path, id string) {
	s.at(path, id)
	s.real[exampleDispatch] = id
	d := s.call("GET", "/v1/admin/dispatches/"+id, key, "")
	s.headers = append(s.headers, "If-Match", d.header.Get("ETag"))
}

// newDispatch returns a dispatch that the driver and colleagues are eligible for.
func (s *scene) newDispatch() string { return s.dispatch(1, fmt.Sprintf(`"region":%q`, s.region)) }

// colleague returns a driver who works where the scene is.
func (s *scene) colleague() caller { return s.drivers(1, fmt.Sprintf(`"regions":[%q]`, s.region))[0] }

func (s *scene) takes(id string) {
	s.t.Helper()
	s.accept(id, s.driver, `{"round":1}`).want(200)
}

// newScene prepares a request of op in w, which several scenes may share.
func newScene(t testing.TB, w *world, op *operation) *scene {
	t.Helper()
	prepare, ok := scenes[op.id]
	if !ok {
		t.Fatalf("%s has no scene: say in scenes how it is called", op.id)
	}
	s := &scene{world: w, token: key, region: dispatch.NewUniqueID("region-", time.Now())}
	s.driver = s.colleague()
	s.real = map[string]string{exampleDriver: s.driver.id}
	switch op.role() {
	case "driver":
		s.token = s.driver.token
	case "":
		s.token = ""
	}
	prepare(s, op.path)
	return s
}

// role returns the role that the operation requires by the document: "" for none, "driver", or an admin's.
func (o *operation) role() string {
	for _, requirement := range o.spec["security"].([]any) {
		for scheme, roles := range requirement.(map[string]any) {
			if scheme == "driverToken" {
				return "driver"
			}
			return roles.([]any)[0].(string)
		}
	}
	return ""
}

var moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`)

// body makes an example a request of now: in the examples it is the beginning of December 2026.
func (s *scene) body(example any) string {
	if example == nil {
		return ""
	}
	raw, err := json.Marshal(example)
	noError(s.t, err)
	then := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	text := moment.ReplaceAllStringFunc(string(raw), func(at string) string {
		parsed, err := time.Parse(time.RFC3339, at)
		noError(s.t, err)
		return shown(time.Now().Add(parsed.Sub(then)))
	})
	for example, real := range s.real {
		text = strings.ReplaceAll(text, example, real)
	}
	return text
}

// examples returns the documented bodies of a request; one nil where it has none.
func (o *operation) examples() (all []any) {
	request, _ := o.spec["requestBody"].(map[string]any)
	if request == nil {
		return []any{nil}
	}
	named := request["content"].(map[string]any)["application/json"].(map[string]any)["examples"].(map[string]any)
	for _, e := range named {
		all = append(all, e.(map[string]any)["value"])
	}
	return all
}

// succeeds returns the documented status of a success.
func (o *operation) succeeds() int {
	for _, status := range []int{200, 201, 202, 204, 308} {
		if _, ok := o.spec["responses"].(map[string]any)[fmt.Sprint(status)]; ok {
			return status
		}
	}
	return 0
}

// TestEveryExample sends every documented request to the API, and is answered as documented: world.call compares.
func TestEveryExample(t *testing.T) {
	w, sent := withJobs(t, lock.NewMemory()), 0
	for _, op := range documented().operations {
		for _, example := range op.examples() {
			s := newScene(t, w, op)
			body := s.body(example)
			if op.id == "createDispatch" { // its external_id is one that only one may have
				body = strings.Replace(body, "order-4711", fmt.Sprint("order-", sent), 1)
			}
			sent++
			s.call(op.method, s.path, s.token, body, s.headers...).want(op.succeeds())
		}
	}
	for id := range scenes {
		if !slices.ContainsFunc(documented().operations, func(op *operation) bool { return op.id == id }) {
			t.Errorf("there is no operation %s", id)
		}
	}
}
