package stream

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
)

// BenchmarkTell measures the delivery of one event to 10,000 drivers' streams, without the writes.
func BenchmarkTell(b *testing.B) {
	for what, v := range map[string]dispatch.Driver{"all hear it": kim(), "nobody hears it": kim(elsewhere)} {
		b.Run(what, func(b *testing.B) {
			h := NewHub(Options{})
			for i := range 10_000 {
				v.ID = dispatch.DriverID(fmt.Sprintf("drv_%d", i))
				if _, err := openDriver(b, h, v, ""); err != nil {
					b.Fatal(err)
				}
			}
			d := job()
			for b.Loop() {
				e := dispatch.Event{ID: dispatch.NewEventID(time.Now()), Type: dispatch.EventOpened, Dispatch: d.ID, Round: 1}
				h.deliverLocally([]*entry{{kind: kindEvent, event: newAnnouncement(d, e)}})
				for _, s := range h.streams {
					select {
					case <-s.wake:
						s.nextBatch()
					default:
					}
				}
			}
		})
	}
}
