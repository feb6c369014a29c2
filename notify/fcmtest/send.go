package fcmtest

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

const contentJSON = "application/json; charset=UTF-8"

// verdict is the decision on one request.
type verdict struct {
	refused    *refusal // nil: accepted, or never answered
	accepted   bool
	retryAfter string
	hang, cut  bool // no answer: hang leaves the connection open, cut closes it
	badJSON    bool
}

// status returns the answer's status, 0 for no answer.
func (v *verdict) status() int {
	switch {
	case v.hang || v.cut:
		return 0
	case v.refused != nil:
		return v.refused.status
	}
	return http.StatusOK
}

// send answers messages:send.
func (s *Server) send(w http.ResponseWriter, r *http.Request, project string) {
	body, long, err := readBody(r, maxMessage)
	if err != nil {
		panic(http.ErrAbortHandler) // the client went before the request was complete
	}
	at := time.Now()
	m, validateOnly, bad := parse(body)
	if long {
		bad = invalid("message", "Request payload size exceeds the limit.")
	}
	set := s.settings.Load()
	v := s.decide(set, m, bad, body, at, validateOnly)
	req := Request{
		At: at, Project: project, Authorization: r.Header.Get("Authorization"), Body: body,
		Token: m.Token, Topic: m.Topic, Data: m.data(), Tag: m.tag(), Silent: m.silent(), ValidateOnly: validateOnly,
		Status: v.status(), Accepted: v.accepted && !validateOnly,
	}
	if v.refused != nil {
		req.Code = v.refused.code
	}
	s.ledger.record(&req, &v)
	if set.hook != nil {
		set.hook(req)
	}
	wait := set.knobs.wait()
	if v.hang {
		wait = -1
	}
	if !s.pause(r, wait) || v.cut {
		panic(http.ErrAbortHandler)
	}
	reply(w, &v, project, &req)
}

func reply(w http.ResponseWriter, v *verdict, project string, req *Request) {
	h := w.Header()
	if v.refused != nil {
		body, contentType := v.refused.body()
		h.Set("Content-Type", contentType)
		if v.retryAfter != "" {
			h.Set("Retry-After", v.retryAfter)
		}
		w.WriteHeader(v.refused.status)
		_, _ = w.Write(body) // the client may be gone
		return
	}
	h.Set("Content-Type", contentJSON)
	id := "fake_message_id"
	if !req.ValidateOnly {
		id = strconv.FormatInt(req.N, 10)
	}
	if v.badJSON {
		fmt.Fprintf(w, `{"name": "projects/%s/mess`, project)
		return
	}
	fmt.Fprintf(w, "{\"name\":\"projects/%s/messages/%s\"}\n", project, id)
}

// decide decides on a request that arrived at the given time, and delivers an accepted message to the devices.
func (s *Server) decide(set *settings, m *message, bad *refusal, body []byte, at time.Time, validateOnly bool) verdict {
	k := &set.knobs
	if v, faulty := s.ledger.faultBefore(k, at); faulty {
		return v
	}
	if bad != nil {
		return verdict{refused: bad}
	}
	for _, match := range set.poison {
		if bytes.Contains(body, match) {
			return verdict{refused: invalid("message", "Request contains an invalid argument.")}
		}
	}
	if refused := s.deliver(m, at, validateOnly); refused != nil {
		return verdict{refused: refused}
	}
	return s.ledger.faultAfter(k)
}

func (s *Server) deliver(m *message, at time.Time, validateOnly bool) *refusal {
	if s.fleet.full() {
		full := refusalOf(http.StatusInternalServerError, "")
		full.message = "fcmtest: the limit of devices, messages and subscriptions is reached"
		return full
	}
	d := newDelivery(s.fleet.seed, m, at)
	if m.Topic != "" {
		if !validateOnly {
			s.topics.deliver(m.Topic, d)
		}
		return nil
	}
	switch s.fleet.deliver(m.Token, d, validateOnly) {
	case isDead:
		return refusalOf(http.StatusNotFound, "")
	case isForeign:
		return refusalOf(http.StatusForbidden, "")
	}
	return nil
}

// retryIn returns a Retry-After of at least d.
func retryIn(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}
