package webhooks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
	"firsttap/testkit"
	"firsttap/webhook"
)

// orderReceiver notes the events that arrive, by dispatch, and whether two of a dispatch were under way at once.
type orderReceiver struct {
	mu        sync.Mutex
	got       map[dispatch.ID][]dispatch.EventID
	open      map[dispatch.ID]int
	twoAtOnce bool
}

func (r *orderReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body struct{ Dispatch dispatch.ID }
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.got[body.Dispatch] = append(r.got[body.Dispatch], dispatch.EventID(req.Header.Get("webhook-id")))
	r.open[body.Dispatch]++
	r.twoAtOnce = r.twoAtOnce || r.open[body.Dispatch] > 1
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[body.Dispatch]--
}

func (r *orderReceiver) of(id dispatch.ID) []dispatch.EventID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got[id])
}

// touch changes nothing but the version.
func touch(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	d.Version++
	return []dispatch.Event{{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID, At: now}}, nil
}

func create(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
	terms := dispatch.Terms{
		Region: "seoul", VehicleClass: "scissor", WorkStartsAt: now.Add(time.Hour), WorkEndsAt: now.Add(2 * time.Hour),
		Fee: dispatch.Money{Currency: "KRW"},
	}
	w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
	d, events := dispatch.New(dispatch.NewID(now), "", terms, w, dispatch.System, now)
	return d, events, nil
}

// TestTwoCouriersDeliverInOrder: while dispatches change on two instances over one database, whose couriers begin at
// the same moment, a server receives every event once, in the order of its dispatch, and never two of a dispatch at
// once.
func TestTwoCouriersDeliverInOrder(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.EveryDatabase(), func(t *testing.T, kind string) {
		url := repositorytest.URL(t, kind)
		r := &orderReceiver{got: map[dispatch.ID][]dispatch.EventID{}, open: map[dispatch.ID]int{}}
		server := httptest.NewServer(r)
		t.Cleanup(server.Close)
		var stores [2]*repository.Store
		var couriers [2]*Courier
		for i := range stores {
			stores[i] = repositorytest.Open(t, url, repository.Options{
				OnCommit: func(dispatch.Dispatch, []dispatch.Event) { couriers[i].OnCommit() },
			})
			couriers[i] = NewCourier(CourierOptions{
				Outbox: stores[i].WebhookOutbox(fmt.Sprint("ins_", i), 0),
				Client: NewClient(ClientOptions{AllowPrivate: true}),
				Body:   func(d dispatch.Dispatch, _ dispatch.Event) []byte { return fmt.Appendf(nil, `{"dispatch":%q}`, d.ID) },
			})
		}
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		_, err := stores[0].Webhooks.CreateWebhook(t.Context(), webhook.Endpoint{
			ID: webhook.ID(dispatch.NewUniqueID(dispatch.WebhookPrefix, time.Now())), URL: server.URL, Events: []string{"*"}, Status: webhook.Active,
		}, "whsec_c2VjcmV0")
		must(err)
		const changes = 8
		var ids [24]dispatch.ID
		for i := range ids {
			d, err := stores[i%2].Dispatches.Create(t.Context(), create)
			must(err)
			ids[i] = d.ID
		}
		testkit.Together(6, func(k int) {
			if k < 2 {
				testkit.Run(t, couriers[k].Run)
				return
			}
			for range changes {
				for i := k - 2; i < len(ids); i += 4 {
					_, err := stores[i/4%2].Dispatches.Update(t.Context(), ids[i], touch)
					must(err)
				}
			}
		})
		for _, id := range ids {
			testkit.Eventually(t, "all events arrive", func() bool { return len(r.of(id)) > changes })
			events, _, err := stores[0].Journal.Events(t.Context(), id, dispatch.Page{Limit: 50})
			must(err)
			want := make([]dispatch.EventID, len(events))
			for i := range events {
				want[i] = events[i].ID
			}
			testkit.Equal(t, "the events that arrived", want, r.of(id))
		}
		if r.twoAtOnce {
			t.Error("two events of a dispatch were under way at once")
		}
	})
}
