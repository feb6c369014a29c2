package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	adminKey  = "bench-admin-key-0123456789abcdef0123456789abcdef"
	jwtSecret = "bench-jwt-secret-0123456789abcdef0123456789abcdef"
	preparers = 16 // connections that make dispatches
)

// product is FirstTap itself, used through its public API only.
type product struct {
	stack    *stack
	database string
	binary   string
	settings []string         // on top of those that every measurement has
	tokens   map[int][]string // of the drivers of a race, by their number
	hours    atomic.Int64     // work times used so far; a driver may hold many dispatches whose times don't overlap
	client   *http.Client
}

// build builds FirstTap from this module.
func build(ctx context.Context, s *stack) (binary string, err error) {
	binary = filepath.Join(s.dir, "firsttap")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "firsttap").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build FirstTap: %w\n%s", err, out)
	}
	return binary, nil
}

// newProduct makes an empty database for the product.
func newProduct(ctx context.Context, s *stack, database, binary string, settings ...string) (*product, error) {
	if err := s.createDatabase(ctx, database); err != nil {
		return nil, err
	}
	binary, err := filepath.Abs(binary)
	return &product{
		stack: s, database: database, binary: binary, settings: settings, tokens: map[int][]string{},
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: preparers}},
	}, err
}

func (p *product) wins() int { return 1 }

func (p *product) serve(ctx context.Context) (*process, string, error) {
	port, err := p.stack.ports.free()
	if err != nil {
		return nil, "", err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server, err := p.stack.starter.start(p.stack.dir, "firsttap-server", append([]string{
		"FIRSTTAP_ADDR=" + address, "FIRSTTAP_OPS_ADDR=", "FIRSTTAP_DRAIN=0",
		fmt.Sprintf("FIRSTTAP_DATABASE_URL=mysql://root@127.0.0.1:%d/%s", p.stack.dbPort, p.database),
		"FIRSTTAP_REDIS_URL=redis://" + p.stack.cache,
		"FIRSTTAP_ADMIN_KEY=" + adminKey,
		"FIRSTTAP_JWT_SECRET=" + jwtSecret,
		"FIRSTTAP_RATE_LIMIT_DRIVER=1000000/s",
		"FIRSTTAP_RATE_LIMIT_ADMIN=1000000/s",
		"FIRSTTAP_LOG=warn",
	}, p.settings...), p.binary)
	if err != nil {
		return nil, "", err
	}
	err = server.await(func() error {
		r, err := p.client.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", r.Status)
		}
		return ctx.Err()
	})
	if err != nil {
		server.stop()
		return nil, "", err
	}
	return server, address, nil
}

// region separates the races' drivers: each dispatch must be offered to exactly those that race.
func region(race int) string { return fmt.Sprintf("BENCH%d", race) }

const vehicleClass = "SCISSOR"

// drivers registers n drivers in one region and puts them on duty.
func (p *product) drivers(ctx context.Context, address string, n int) ([]string, error) {
	if tokens := p.tokens[n]; tokens != nil {
		return tokens, nil
	}
	const most = 1000
	var tokens []string
	for from := 0; from < n; from += most {
		var wanted []map[string]any
		for i := from; i < min(from+most, n); i++ {
			wanted = append(wanted, map[string]any{
				"name": fmt.Sprintf("Driver %d of %d", i+1, n), "phone": fmt.Sprintf("+8210%04d%04d", n, i),
				"regions": []string{region(n)}, "vehicle_class": vehicleClass, "working_height_m": 20, "on_duty": true,
			})
		}
		var made struct {
			Items []struct {
				Token  string `json:"token"`
				OnDuty bool   `json:"on_duty"`
			} `json:"items"`
		}
		body := map[string]any{"drivers": wanted, "issue_tokens": true}
		if err := p.call(ctx, "POST", address, "/v1/admin/drivers/bulk", adminKey, body, &made); err != nil {
			return nil, err
		}
		for _, d := range made.Items {
			if !d.OnDuty {
				if err := p.call(ctx, "PUT", address, "/v1/me/duty", d.Token, map[string]any{"on_duty": true}, nil); err != nil {
					return nil, err
				}
			}
			tokens = append(tokens, d.Token)
		}
	}
	if len(tokens) != n {
		return nil, fmt.Errorf("asked for %d drivers, got %d", n, len(tokens))
	}
	p.tokens[n] = tokens
	return tokens, nil
}

// dispatches makes n dispatches over several connections, each with an hour of work of its own.
func (p *product) dispatches(ctx context.Context, address string, race, n int) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ids := make([]string, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(preparers, n) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				var err error
				if ids[i], err = p.dispatch(ctx, address, race); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return ids, p.settle(ctx)
}

// settle waits until the offers of the dispatches are expanded: making dispatches is not measured, and a race comes later than that.
func (p *product) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var left int
		err := p.stack.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+p.database+".events WHERE next_at IS NOT NULL").Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *product) dispatch(ctx context.Context, address string, race int) (string, error) {
	now := time.Now().UTC().Truncate(time.Hour)
	starts := now.Add(24*time.Hour + time.Duration(p.hours.Add(1))*time.Hour)
	var made struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	err := p.call(ctx, "POST", address, "/v1/admin/dispatches", adminKey, map[string]any{
		"region": region(race), "vehicle_class": vehicleClass, "min_working_height_m": 12, "site_address": "12 Teheran-ro, Seoul",
		"work_starts_at": starts, "work_ends_at": starts.Add(50 * time.Minute),
		"fee":        map[string]any{"amount": 350000, "currency": "KRW"},
		"expires_at": now.Add(12 * time.Hour),
	}, &made)
	if err == nil && made.Status != "PENDING" {
		err = fmt.Errorf("dispatch %s is %q, not open", made.ID, made.Status)
	}
	return made.ID, err
}

// call sends one request of the preparation and reads the answer into out.
func (p *product) call(ctx context.Context, method, address, path, bearer string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %.500s", method, path, res.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
