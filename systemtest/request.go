package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Response is an HTTP response, with the fields of its body that tests read.
type Response struct {
	status int
	header http.Header
	body   string
	Code   string
	Final  *bool
	Result string
	Round  int
	Status string
	ID     string
	// Replayed is nil where the response has no such field.
	Replayed *bool
	Claim    struct{ ID string }
	Outcome  string
	Version  int
	err      error
}

func (a Response) String() string { return fmt.Sprintf("%d %s %v", a.status, a.body, a.err) }

// Won reports whether this is the response to a claim that won.
func (a Response) Won() bool { return a.status == 200 && a.Result == "SUCCESS" }

// Client sends the requests to instances. It does not use a connection that has been idle for long: an instance closes one that has
// carried no request for 5 s, and a test that has stood still does not know it yet.
var Client = &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 2 * time.Second}}

func send(method, url, token, body string) Response { return sendWith(method, url, token, body) }

// sendWith is send with headers: name, value, name, value.
func sendWith(method, url, token, body string, headers ...string) (a Response) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return Response{err: err}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := Client.Do(req)
	if err != nil {
		return Response{err: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a = Response{status: resp.StatusCode, header: resp.Header, body: string(raw), err: err}
	_ = json.Unmarshal(raw, &a)
	return a
}

// Request sends a request to the instance.
func (i *Instance) Request(method, path, token, body string) Response {
	return send(method, i.URL+path, token, body)
}

// RequestIf is Request for that version of what is changed.
func (i *Instance) RequestIf(version, method, path, token, body string) Response {
	return sendWith(method, i.URL+path, token, body, "If-Match", `"`+version+`"`)
}

// Succeeded reports whether the status is 2xx.
func (a Response) Succeeded() bool { return a.status/100 == 2 }
