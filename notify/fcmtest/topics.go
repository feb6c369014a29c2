package fcmtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const (
	batchAdd       = "batchAdd"
	batchRemove    = "batchRemove"
	maxBatch       = 1000    // tokens of a call
	maxBatchBody   = 4 << 20 // bytes of a call
	maxPhoneTopics = 2000
)

// topics are the subscriptions.
type topics struct {
	fleet  *fleet
	mu     sync.RWMutex
	byName map[string]map[string]struct{} // tokens by topic
}

func (t *topics) init(f *fleet) { t.fleet, t.byName = f, map[string]map[string]struct{}{} }

func (t *topics) deliver(name string, d *delivery) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for token := range t.byName[name] {
		t.fleet.deliver(token, d, false)
	}
}

// add subscribes the token, or returns FCM's error code.
func (t *topics) add(name, token string) (refused string) {
	members := t.byName[name]
	_, is := members[token]
	t.fleet.with(token, func(p *phone) (c delta) {
		switch {
		case p.dead:
			refused = "NOT_FOUND"
		case p.foreign:
			refused = codeInvalid
		case is:
		case p.topics >= maxPhoneTopics:
			refused = "TOO_MANY_TOPICS"
		case t.fleet.full():
			refused = codeInternal
		default:
			p.topics++
			c.held = 1
			if members == nil {
				members = map[string]struct{}{}
				t.byName[name] = members
			}
			members[token] = struct{}{}
		}
		return c
	})
	return refused
}

// remove unsubscribes the token, also a dead one.
func (t *topics) remove(name, token string) (refused string) {
	_, is := t.byName[name][token]
	t.fleet.with(token, func(p *phone) (c delta) {
		switch {
		case p.foreign:
			refused = codeInvalid
			return c
		case p.dead:
			refused = "NOT_FOUND"
		}
		if is {
			p.topics--
			c.held = -1
			delete(t.byName[name], token)
		}
		return c
	})
	if len(t.byName[name]) == 0 {
		delete(t.byName, name)
	}
	return refused
}

// result is the answer for one token: {} or an error.
type result struct {
	Error string `json:"error,omitempty"`
}

// batch answers the topic calls.
func (s *Server) batch(w http.ResponseWriter, r *http.Request, operation string) {
	body, long, err := readBody(r, maxBatchBody)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.ledger.topicCall()
	k := s.Knobs()
	status, answer := http.StatusBadRequest, any(result{codeInvalid})
	switch {
	case k.Hang:
		s.pause(r, -1)
		panic(http.ErrAbortHandler)
	case k.TopicStatus != 0:
		status, answer = k.TopicStatus, result{http.StatusText(k.TopicStatus)}
		if k.RetryAfter != "" {
			w.Header().Set("Retry-After", k.RetryAfter)
		}
	case r.Header.Get("access_token_auth") != "true":
		status, answer = http.StatusUnauthorized, result{"Unauthorized: access_token_auth is not true"}
	case !long:
		status, answer = s.subscribe(body, operation)
	}
	if !s.pause(r, k.wait()) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}

func (s *Server) subscribe(body []byte, operation string) (status int, answer any) {
	var call struct {
		To     string   `json:"to"`
		Tokens []string `json:"registration_tokens"`
	}
	if err := json.Unmarshal(body, &call); err != nil {
		return http.StatusBadRequest, result{"InvalidJson"}
	}
	name, ok := strings.CutPrefix(call.To, "/topics/")
	switch {
	case !ok || !topicName(strings.TrimPrefix(name, "private/")):
		return http.StatusBadRequest, result{"InvalidTopicName"}
	case len(call.Tokens) == 0 || len(call.Tokens) > maxBatch:
		return http.StatusBadRequest, result{codeInvalid}
	}
	apply := s.topics.add
	if operation == batchRemove {
		apply = s.topics.remove
	}
	results := make([]result, len(call.Tokens))
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	for i, token := range call.Tokens {
		if malformed(token) {
			results[i].Error = codeInvalid
			continue
		}
		results[i].Error = apply(name, token)
	}
	return http.StatusOK, map[string][]result{"results": results}
}

// Subscribers returns the tokens subscribed to the topic, sorted, with dead ones that were not unsubscribed.
func (s *Server) Subscribers(topic string) []string {
	s.topics.mu.RLock()
	defer s.topics.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.topics.byName[strings.TrimPrefix(topic, "/topics/")]))
}
