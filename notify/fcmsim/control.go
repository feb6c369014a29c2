package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"firsttap/notify/fcmtest"
)

// maxBody bounds the body of a control request.
const maxBody = 16 << 10

// control serves the requests that change and inspect a running simulation.
func control(sim *fcmtest.Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) { answer(w, sim.Stats()) })
	mux.HandleFunc("GET /sim/knobs", func(w http.ResponseWriter, _ *http.Request) { answer(w, viewOf(sim.Knobs())) })
	mux.HandleFunc("PUT /sim/knobs", func(w http.ResponseWriter, r *http.Request) { setKnobs(w, r, sim, fcmtest.Knobs{}) })
	mux.HandleFunc("PATCH /sim/knobs", func(w http.ResponseWriter, r *http.Request) { setKnobs(w, r, sim, sim.Knobs()) })
	mux.HandleFunc("GET /sim/device", withParameter("token", func(w http.ResponseWriter, token string) { answer(w, sim.Device(token)) }))
	mux.HandleFunc("GET /sim/subscribers", withParameter("topic", func(w http.ResponseWriter, topic string) {
		answer(w, sim.Subscribers(topic))
	}))
	mux.HandleFunc("GET /sim/sends", func(w http.ResponseWriter, _ *http.Request) { answer(w, sends(sim)) })
	for path, do := range map[string]func(string){
		"kill": sim.Kill, "revive": sim.Revive, "foreign": sim.SetForeign, "offline": sim.SetOffline, "online": sim.SetOnline,
	} {
		mux.HandleFunc("POST /sim/"+path, withParameter("token", action(do)))
	}
	mux.HandleFunc("POST /sim/poison", withParameter("match", action(sim.Poison)))
	mux.HandleFunc("DELETE /sim/poison", func(w http.ResponseWriter, _ *http.Request) {
		sim.Cure()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// withParameter answers 400 if the query lacks the parameter.
func withParameter(parameter string, handle func(w http.ResponseWriter, value string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value := r.URL.Query().Get(parameter)
		if value == "" {
			http.Error(w, "the query needs "+parameter, http.StatusBadRequest)
			return
		}
		handle(w, value)
	}
}

func action(do func(string)) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, value string) {
		do(value)
		w.WriteHeader(http.StatusNoContent)
	}
}

// setKnobs applies the body to the given knobs, sets the result, and answers with it.
func setKnobs(w http.ResponseWriter, r *http.Request, sim *fcmtest.Server, from fcmtest.Knobs) {
	view := viewOf(from)
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		http.Error(w, "the body is truncated or too large", http.StatusBadRequest)
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&view); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	next := view.knobs()
	if err := next.Validate(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sim.Set(func(k *fcmtest.Knobs) { *k = next })
	answer(w, viewOf(next))
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// knobsView is the JSON form of the knobs.
type knobsView struct {
	Latency         duration `json:"latency"`
	Jitter          duration `json:"jitter"`
	Status          int      `json:"status"`
	ErrorCode       string   `json:"error_code"`
	RetryAfter      string   `json:"retry_after"`
	Rate            float64  `json:"rate"`
	Hang            bool     `json:"hang"`
	Drop            float64  `json:"drop"`
	DropAfterAccept float64  `json:"drop_after_accept"`
	HangAfterAccept float64  `json:"hang_after_accept"`
	BadJSON         float64  `json:"bad_json"`
	QuotaPerMinute  int      `json:"quota_per_minute"`
	QuotaPerSecond  int      `json:"quota_per_second"`
	TopicStatus     int      `json:"topic_status"`
}

// duration is a duration in Go's text form: "50ms".
type duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s duration) MarshalText() ([]byte, error) { //nolint:unparam // the interface has it
	return []byte(time.Duration(s).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *duration) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration like 50ms", text)
	}
	*s = duration(d)
	return nil
}

func viewOf(k fcmtest.Knobs) knobsView {
	return knobsView{
		Latency: duration(k.Latency), Jitter: duration(k.Jitter), Status: k.Status, ErrorCode: k.ErrorCode,
		RetryAfter: k.RetryAfter, Rate: k.Rate, Hang: k.Hang, Drop: k.Drop, DropAfterAccept: k.DropAfterAccept,
		HangAfterAccept: k.HangAfterAccept, BadJSON: k.BadJSON, QuotaPerMinute: k.QuotaPerMinute,
		QuotaPerSecond: k.QuotaPerSecond, TopicStatus: k.TopicStatus,
	}
}

func (v *knobsView) knobs() fcmtest.Knobs {
	return fcmtest.Knobs{
		Latency: time.Duration(v.Latency), Jitter: time.Duration(v.Jitter), Status: v.Status, ErrorCode: v.ErrorCode,
		RetryAfter: v.RetryAfter, Rate: v.Rate, Hang: v.Hang, Drop: v.Drop, DropAfterAccept: v.DropAfterAccept,
		HangAfterAccept: v.HangAfterAccept, BadJSON: v.BadJSON, QuotaPerMinute: v.QuotaPerMinute,
		QuotaPerSecond: v.QuotaPerSecond, TopicStatus: v.TopicStatus,
	}
}

// sendView is the JSON form of a request.
type sendView struct {
	N        int64             `json:"n"`
	At       time.Time         `json:"at"`
	Token    string            `json:"token,omitempty"`
	Topic    string            `json:"topic,omitempty"`
	Tag      string            `json:"tag,omitempty"`
	Silent   bool              `json:"silent"`
	Data     map[string]string `json:"data,omitempty"`
	Status   int               `json:"status"`
	Code     string            `json:"code,omitempty"`
	Accepted bool              `json:"accepted"`
}

func sends(sim *fcmtest.Server) []sendView {
	all := sim.Sends()
	views := make([]sendView, len(all))
	for i := range all {
		r := &all[i]
		views[i] = sendView{r.N, r.At, r.Token, r.Topic, r.Tag, r.Silent, r.Data, r.Status, r.Code, r.Accepted}
	}
	return views
}
