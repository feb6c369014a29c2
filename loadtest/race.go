// Package loadtest puts load on a running FirstTap over its public API: a race of drivers on one dispatch.
package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Race is a race's settings.
type Race struct {
	URLs     []string // the instances; driver i uses the i-th, modulo their number
	AdminKey string
	Drivers  int
	Leave    bool // what the race makes stays, because the service goes with it
}

// Tap is the result of one driver's request.
type Tap struct {
	Driver string
	Won    bool
	Answer string        // status and code
	At     time.Duration // when it was sent, from the first one on
	Took   time.Duration // until the response
}

// Result is a race's result.
type Result struct {
	Dispatch string
	Stored   string // the driver that the service stored, as an admin reads it afterwards
	Taps     []Tap  // in the order in which they were sent
}

// ErrNotOneWinner means that a race had no winner, several, or another than the stored one.
var ErrNotOneWinner = errors.New("the race did not have exactly one winner that the service also stored")

// removalTime is how long a race tries to remove what it made.
const removalTime = time.Minute

// Run makes the drivers and a dispatch, lets the drivers accept it at the same time, and removes both, also if ctx ends: the dispatch is
// canceled, the drivers are erased. It returns the Result with ErrNotOneWinner too.
func (r Race) Run(ctx context.Context) (result Result, err error) {
	client := &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: r.Drivers, MaxConnsPerHost: r.Drivers},
		Timeout:   30 * time.Second,
	}
	defer client.CloseIdleConnections()
	// Whoever ends ctx meanwhile waits for the answers: they name what has to be removed.
	drivers, err := r.makeDrivers(context.WithoutCancel(ctx), client)
	if err != nil {
		return Result{}, fmt.Errorf("make drivers: %w", err)
	}
	var job job
	if !r.Leave {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
			defer cancel()
			if failed := r.remove(ctx, client, drivers, job); failed != nil {
				err = errors.Join(err, fmt.Errorf(
					"the race's drivers, region \"race\", are still there, because they can't be removed: %w", failed))
			}
		}()
	}
	if job, err = r.makeDispatch(context.WithoutCancel(ctx), client); err != nil {
		return Result{}, fmt.Errorf("make a dispatch: %w", err)
	}
	result = Result{Dispatch: job.ID, Taps: r.tapTogether(ctx, client, drivers, job)}
	if err := Call(ctx, client, "GET", r.URLs[0]+"/v1/admin/dispatches/"+job.ID, r.AdminKey, nil, &job); err != nil {
		return result, err
	}
	result.Stored = job.AcceptedBy
	return result, result.check()
}

func (r Result) check() error {
	won := slices.DeleteFunc(slices.Clone(r.Taps), func(t Tap) bool { return !t.Won })
	if len(won) != 1 || won[0].Driver != r.Stored {
		return fmt.Errorf("%w: %d drivers got SUCCESS, the stored driver is %q", ErrNotOneWinner, len(won), r.Stored)
	}
	return nil
}

type racer struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

type job struct {
	ID         string `json:"id"`
	Round      int    `json:"round"`
	Version    int    `json:"version"`
	AcceptedBy string `json:"accepted_by"`
}

func (r Race) makeDrivers(ctx context.Context, client *http.Client) ([]racer, error) {
	drivers := make([]map[string]any, r.Drivers)
	for i := range drivers {
		drivers[i] = map[string]any{
			"name": fmt.Sprintf("Racer %d", i+1), "phone": fmt.Sprintf("+8210%08d", i), "on_duty": true,
			"regions": []string{"race"}, "vehicle_class": "race", "working_height_m": 45,
		}
	}
	var made struct{ Items []racer }
	err := Call(ctx, client, "POST", r.URLs[0]+"/v1/admin/drivers/bulk", r.AdminKey,
		map[string]any{"drivers": drivers, "issue_tokens": true}, &made)
	if err == nil && len(made.Items) != r.Drivers {
		err = fmt.Errorf("asked for %d, got %d", r.Drivers, len(made.Items))
	}
	return made.Items, err
}

func (r Race) makeDispatch(ctx context.Context, client *http.Client) (job, error) {
	starts := time.Now().Add(time.Hour)
	var made job
	err := Call(ctx, client, "POST", r.URLs[0]+"/v1/admin/dispatches", r.AdminKey, map[string]any{
		"region": "race", "vehicle_class": "race", "site_address": "Start line", "note": "firsttap race",
		"work_starts_at": starts, "work_ends_at": starts.Add(time.Hour),
		"fee": map[string]any{"amount": 350000, "currency": "KRW"},
	}, &made)
	return made, err
}

// tapTogether opens a connection for each driver first, so that the race does not depend on connection times.
func (r Race) tapTogether(ctx context.Context, client *http.Client, drivers []racer, job job) []Tap {
	taps := make([]Tap, len(drivers))
	sent := make([]time.Time, len(drivers))
	start := make(chan struct{})
	var warm, done sync.WaitGroup
	warm.Add(len(drivers))
	for i, d := range drivers {
		done.Go(func() {
			base := r.URLs[i%len(r.URLs)]
			taps[i] = Tap{Driver: d.ID}
			err := Call(ctx, client, "GET", base+"/v1/me", d.Token, nil, nil)
			warm.Done()
			<-start
			sent[i] = time.Now()
			if err == nil {
				err = Call(ctx, client, "POST", base+"/v1/dispatches/"+job.ID+"/accept", d.Token,
					map[string]any{"round": job.Round}, nil)
			}
			taps[i].Took = time.Since(sent[i])
			taps[i].Won, taps[i].Answer = err == nil, "200 SUCCESS"
			if err != nil {
				taps[i].Answer = err.Error()
			}
		})
	}
	warm.Wait()
	close(start)
	done.Wait()
	first := slices.MinFunc(sent, time.Time.Compare)
	for i := range taps {
		taps[i].At = sent[i].Sub(first)
	}
	slices.SortFunc(taps, func(a, b Tap) int { return cmp.Compare(a.At, b.At) })
	return taps
}

// remove cancels the dispatch, if there is one, and erases the drivers. It tries again what the service can't do now or limits.
func (r Race) remove(ctx context.Context, client *http.Client, drivers []racer, made job) error {
	again := func(call func() error) error {
		for {
			err := call()
			var refused refusal
			if !errors.As(err, &refused) || !slices.Contains([]int{412, 429, 503}, refused.status) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Second):
			}
		}
	}
	admin := r.URLs[0] + "/v1/admin/"
	if made.ID != "" {
		err := again(func() error {
			if err := Call(ctx, client, "GET", admin+"dispatches/"+made.ID, r.AdminKey, nil, &made); err != nil {
				return err
			}
			return Call(ctx, client, "POST", admin+"dispatches/"+made.ID+"/cancel", r.AdminKey, map[string]any{"reason_code": "TEST"}, nil,
				"If-Match", fmt.Sprintf("%q", fmt.Sprint(made.Version)))
		})
		if err != nil {
			return fmt.Errorf("cancel %s: %w", made.ID, err)
		}
	}
	for _, d := range drivers {
		if err := again(func() error {
			return Call(ctx, client, "POST", admin+"drivers/"+d.ID+"/erase", r.AdminKey, nil, nil)
		}); err != nil {
			return fmt.Errorf("erase %s: %w", d.ID, err)
		}
	}
	return nil
}

// refusal is an answer of the service that is no success.
type refusal struct {
	status int
	code   string
}

func (r refusal) Error() string { return fmt.Sprintf("%d %s", r.status, r.code) }

// Call sends in as JSON, with headers as names and values in turn, and decodes a 2xx response into out. Any other response is an error that
// names its code.
func Call(ctx context.Context, client *http.Client, method, url, token string, in, out any, headers ...string) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		var problem struct{ Code, Detail string }
		if json.Unmarshal(raw, &problem) != nil {
			problem.Code = strings.TrimSpace(string(raw))
		}
		return refusal{resp.StatusCode, problem.Code}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// Print writes the race as a table: the winner first, then the others in the order of their taps.
func (r Result) Print(w io.Writer) {
	ranked := slices.Clone(r.Taps)
	slices.SortStableFunc(ranked, func(a, b Tap) int {
		switch {
		case a.Won == b.Won:
			return 0
		case a.Won:
			return -1
		}
		return 1
	})
	fmt.Fprintf(w, "%s, %d drivers tap together\n\n", r.Dispatch, len(r.Taps))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tdriver\ttapped, µs after the first\tanswered, µs later\tanswer\t")
	for i, tap := range ranked {
		fmt.Fprintf(t, "%d\t%s\t+%d\t%d\t%s\t\n", i+1, tap.Driver, tap.At.Microseconds(), tap.Took.Microseconds(), tap.Answer)
	}
	t.Flush()
}
