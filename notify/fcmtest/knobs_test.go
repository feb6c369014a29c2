//nolint:forbidigo // its pauses are in bubbles of testing/synctest, but for the one in which Close must not return
package fcmtest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

const rawOffer = `{"message":{"token":"tok","notification":{"title":"t"}}}`

// Of n requests n times the share have the fault, and the phone gets the accepted messages.
func TestShares(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*fcmtest.Knobs)
		failed   int // of 20
		received int
	}{
		"healthy":           {func(*fcmtest.Knobs) {}, 0, 20},
		"status":            {func(k *fcmtest.Knobs) { k.Status = 500 }, 20, 0},
		"rate":              {func(k *fcmtest.Knobs) { k.Status, k.Rate = 500, 0.3 }, 6, 14},
		"rate of nothing":   {func(k *fcmtest.Knobs) { k.Rate = 0.3 }, 0, 20},
		"drop":              {func(k *fcmtest.Knobs) { k.Drop = 0.1 }, 2, 18},
		"drop after accept": {func(k *fcmtest.Knobs) { k.DropAfterAccept = 0.25 }, 5, 20},
		"bad json":          {func(k *fcmtest.Knobs) { k.BadJSON = 0.5 }, 10, 20},
		"both":              {func(k *fcmtest.Knobs) { k.Drop, k.DropAfterAccept = 0.5, 1 }, 20, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := connect(t)
			s.Set(c.set)
			failed := 0
			for range 20 {
				if _, err := client.Send(t.Context(), to("tok")); err != nil {
					failed++
				}
			}
			if got := s.Device("tok"); failed != c.failed || got.Received != c.received {
				t.Errorf("%d failed, want %d; the phone got %d, want %d", failed, c.failed, got.Received, c.received)
			}
			testkit.Equal(t, "requests", 20, s.Requests())
			if got := s.Stats(); got.Accepted != int64(c.received) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A share is exact also if it has no exact binary form, and is counted from the last change.
func TestShareIsExact(t *testing.T) {
	s := fcmtest.New()
	send := func(n int) (failed int) {
		for range n {
			if sendRaw(t, s, rawOffer) != 200 {
				failed++
			}
		}
		return failed
	}
	s.Set(func(k *fcmtest.Knobs) { k.Status, k.Rate = 500, 0.29 })
	testkit.Equal(t, "failed of 100", 29, send(100))
	s.Set(func(k *fcmtest.Knobs) { k.Rate = 0.5 })
	for range 3 {
		testkit.Equal(t, "the first of two failed", 0, send(1))
		s.Set(func(*fcmtest.Knobs) {})
	}
}

func TestHang(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*fcmtest.Knobs)
		received int
	}{
		"hang":              {func(k *fcmtest.Knobs) { k.Hang = true }, 0},
		"hang after accept": {func(k *fcmtest.Knobs) { k.HangAfterAccept = 1 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := connect(t)
			s.Set(c.set)
			ctx, cancel := context.WithCancel(t.Context())
			s.OnSend(func(fcmtest.Request) { cancel() }) // it has arrived: the client goes
			if _, err := client.Send(ctx, to("tok")); err == nil {
				t.Error("answered")
			}
			testkit.Equal(t, "received by the phone", c.received, s.Device("tok").Received)
			if sends := s.Sends(); len(sends) != 1 || sends[0].Status != 0 || sends[0].Accepted != (c.received == 1) {
				t.Errorf("%+v", sends)
			}
		})
	}
}

// Close ends requests that hang or wait at once, and leaves no goroutine, which TestMain checks.
func TestCloseEndsWaitingRequests(t *testing.T) {
	for name, set := range map[string]func(*fcmtest.Knobs){
		"hang":    func(k *fcmtest.Knobs) { k.Hang = true },
		"latency": func(k *fcmtest.Knobs) { k.Latency = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 50
			s, client := connect(t)
			s.Set(set)
			arrived, ended := make(chan struct{}, n), make(chan error, n+1)
			s.OnSend(func(fcmtest.Request) { arrived <- struct{}{} })
			for i := range n {
				go func() {
					_, err := client.Send(context.Background(), to(fmt.Sprint("tok", i)))
					ended <- err
				}()
			}
			go func() {
				_, err := client.SubscribeToTopic(context.Background(), []string{"tok"}, "news")
				ended <- err
			}()
			for range n {
				testkit.Await(t, "a request's arrival", arrived)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				testkit.Together(2, func(int) { s.Close() })
			}()
			testkit.Await(t, "Close", closed)
			for range n + 1 {
				if err := testkit.Await(t, "a request's end", ended); err == nil {
					t.Error("answered")
				}
			}
			if got := s.Stats(); got.Requests != n || got.InFlight != 0 || got.Peak < n {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Close waits for the goroutines of the requests, also for those in a hook.
func TestCloseWaits(t *testing.T) {
	s, client := connect(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	s.OnSend(func(fcmtest.Request) {
		close(arrived)
		<-release
	})
	ended, closed := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := client.Send(context.Background(), to("tok"))
		ended <- err
	}()
	testkit.Await(t, "the arrival", arrived)
	go func() {
		defer close(closed)
		s.Close()
	}()
	if err := testkit.Await(t, "the connection's end", ended); err == nil {
		t.Error("answered")
	}
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(glance):
	}
	close(release)
	testkit.Await(t, "Close", closed)
}

// Close of a server without a listener ends waiting requests too, and later requests get no answer.
func TestCloseOfAHandler(t *testing.T) {
	s := fcmtest.New()
	s.Set(func(k *fcmtest.Knobs) { k.Hang = true })
	arrived, ended := make(chan struct{}, 1), make(chan bool, 1)
	s.OnSend(func(fcmtest.Request) { arrived <- struct{}{} })
	go func() {
		_, cut := post(context.Background(), s, sendPath, rawOffer)
		ended <- cut
	}()
	testkit.Await(t, "the arrival", arrived)
	s.Close()
	if !testkit.Await(t, "the end", ended) {
		t.Error("answered")
	}
	s.OnSend(nil)
	s.Set(func(k *fcmtest.Knobs) { k.Hang = false })
	if _, cut := post(t.Context(), s, sendPath, rawOffer); !cut {
		t.Error("answered after Close")
	}
}

// The latency lies between the decision and any answer; a phone gets its message before.
func TestLatency(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fcmtest.New()
		s.Set(func(k *fcmtest.Knobs) { k.Latency = 50 * time.Millisecond })
		start := time.Now()
		s.OnSend(func(r fcmtest.Request) {
			if !r.At.Equal(start) || time.Since(start) != 0 || s.Device("tok").Received != 1 || s.Requests() != r.N {
				t.Errorf("%v after the start: %+v", time.Since(start), r)
			}
		})
		post(t.Context(), s, sendPath, rawOffer)
		testkit.Equal(t, "the latency", 50*time.Millisecond, time.Since(start))
		s.OnSend(nil)
		s.Set(func(k *fcmtest.Knobs) { k.Status = 503 })
		if post(t.Context(), s, sendPath, rawOffer); time.Since(start) != 100*time.Millisecond {
			t.Errorf("an error's answer, %v after the start", time.Since(start))
		}
		if post(t.Context(), s, "/iid/v1:batchAdd", "{}"); time.Since(start) != 150*time.Millisecond {
			t.Errorf("a topic call's answer, %v after the start", time.Since(start))
		}
		s.Set(func(k *fcmtest.Knobs) { k.Jitter = 20 * time.Millisecond })
		seen := map[time.Duration]bool{}
		for range 20 {
			from := time.Now()
			post(t.Context(), s, sendPath, rawOffer)
			took := time.Since(from)
			if seen[took] = true; took < 50*time.Millisecond || took >= 70*time.Millisecond {
				t.Errorf("with jitter %v", took)
			}
		}
		if len(seen) < 2 {
			t.Error("no jitter")
		}
	})
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*fcmtest.Knobs)
		span time.Duration
		want string
	}{
		"second": {func(k *fcmtest.Knobs) { k.QuotaPerSecond = 2 }, time.Second, "1"},
		"minute": {func(k *fcmtest.Knobs) { k.QuotaPerMinute = 2 }, time.Minute, "50"},
		"both":   {func(k *fcmtest.Knobs) { k.QuotaPerSecond, k.QuotaPerMinute = 5, 2 }, time.Minute, "50"},
		"said":   {func(k *fcmtest.Knobs) { k.QuotaPerSecond, k.RetryAfter = 2, "99" }, time.Second, "99"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := fcmtest.New()
				s.Set(c.set)
				for range 2 {
					for i := range 4 {
						w, _ := post(t.Context(), s, sendPath, rawOffer)
						if want := []int{200, 200, 429, 429}[i]; w.Code != want {
							t.Errorf("send %d: %d", i, w.Code)
						}
						if i == 1 {
							time.Sleep(c.span / 6) // a sixth of the window, so that the wait is rounded up
						}
						if got := w.Header().Get("Retry-After"); i > 1 && got != c.want {
							t.Errorf("Retry-After %q, want %q", got, c.want)
						}
					}
					time.Sleep(c.span - c.span/6) // to its very end
				}
				testkit.Equal(t, "received by the phone", 4, s.Device("tok").Received)
			})
		})
	}
}

func TestKnobsThatAreNotValid(t *testing.T) {
	for name, set := range map[string]func(*fcmtest.Knobs){
		"status":       func(k *fcmtest.Knobs) { k.Status = 200 },
		"topic status": func(k *fcmtest.Knobs) { k.TopicStatus = 600 },
		"rate":         func(k *fcmtest.Knobs) { k.Rate = 1.1 },
		"drop":         func(k *fcmtest.Knobs) { k.Drop = -0.1 },
		"latency":      func(k *fcmtest.Knobs) { k.Latency = -1 },
		"quota":        func(k *fcmtest.Knobs) { k.QuotaPerMinute = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := fcmtest.New()
			defer func() {
				if recover() == nil {
					t.Error("taken")
				}
				if got := s.Knobs(); got != (fcmtest.Knobs{}) {
					t.Errorf("set: %+v", got)
				}
				s.Set(func(k *fcmtest.Knobs) { k.Status = 500 }) // and it still works
			}()
			s.Set(set)
		})
	}
}

// The knobs change during requests, and each request sees one state of them.
func TestSetWhileSending(t *testing.T) {
	s := fcmtest.New()
	var strange atomic.Int64
	testkit.Together(8, func(i int) {
		for n := range 200 {
			if i == 0 {
				s.Set(func(k *fcmtest.Knobs) {
					if k.Status = 0; n%2 == 0 {
						k.Status = 403
					}
					if k.ErrorCode = ""; n%2 == 0 {
						k.ErrorCode = "UNREGISTERED"
					}
				})
				continue
			}
			if status := sendRaw(t, s, rawOffer); status != 200 && status != 403 {
				strange.Add(1)
			}
		}
	})
	for _, r := range s.Sends() {
		if (r.Status == 403) != (r.Code == "UNREGISTERED") {
			t.Errorf("%d %q", r.Status, r.Code)
		}
	}
	if strange.Load() > 0 || s.Requests() != 7*200 {
		t.Errorf("%d strange answers of %d", strange.Load(), s.Requests())
	}
}
