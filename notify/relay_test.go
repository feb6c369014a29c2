//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/repository/pushes"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcm"
	"firsttap/notify/fcmtest"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// office is a database with drivers and their phones, a simulated push service, and the relays of some instances.
type office struct {
	t     *testing.T
	kind  string // of the database
	url   string
	store *repository.Store // of the first instance
	fcm   *fcmtest.Server
	cars  []dispatch.Driver // all drivers
	hour  int
	// bubble: the office is in a bubble of synctest, where minutes cost nothing. Only there may a test sleep or judge a duration.
	bubble  bool
	metrics *prometheus.Registry // of the relay of inFakeTime
	// observer is of the stores that a test opens from now on.
	observer database.StatementObserver
	// timeout is how long a request to the push service may take.
	timeout time.Duration
	// slow is the name of a database call. In a bubble, its reply arrives after slowReplyDelay.
	slow string
}

// phone is the push token of a driver's only device.
func phone(v dispatch.Driver) string { return "token-of-" + string(v.ID) }

// inBubble runs the test in a bubble of synctest, on SQLite.
func inBubble(t *testing.T, drivers int, test func(*testing.T, *office)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		url := repositorytest.URL(t, servertest.SQLite)
		cars := hiredBefore(t, url, drivers)
		o := newOffice(t, url, drivers-len(cars))
		o.kind, o.bubble, o.timeout = servertest.SQLite, true, fcm.DefaultTimeout
		o.cars = append(o.cars, cars...)
		test(t, o)
	})
}

// fleets are SQLite files with drivers and their phones, by their number: all bubbles begin at the same time.
var (
	fleetsMu sync.Mutex
	fleets   = map[int]struct {
		file []byte
		cars []dispatch.Driver
	}{}
)

// hiredBefore fills the file at url with so many drivers, and returns them.
func hiredBefore(t *testing.T, url string, drivers int) []dispatch.Driver {
	t.Helper()
	fleetsMu.Lock()
	defer fleetsMu.Unlock()
	path := strings.TrimPrefix(url, "sqlite://")
	fleet, made := fleets[drivers]
	if !made {
		o := emptyOffice(t, url)
		fleet.cars = o.hire("seoul", drivers)
		err := o.store.Close()
		if err == nil {
			fleet.file, err = os.ReadFile(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		fleets[drivers] = fleet
	}
	if err := os.WriteFile(path, fleet.file, 0o600); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(fleet.cars)
}

// onDatabases runs the test in a bubble, and in real time on the servers.
func onDatabases(t *testing.T, drivers int, test func(*testing.T, *office)) {
	t.Helper()
	onKinds(t, servertest.Databases(), drivers, test)
}

// onDatabasesInAll is onDatabases in `make test-all`, and inBubble in `make test`.
func onDatabasesInAll(t *testing.T, drivers int, test func(*testing.T, *office)) {
	t.Helper()
	kinds := []string{servertest.SQLite}
	if testkit.All() {
		kinds = servertest.EveryDatabase()
	}
	onKinds(t, kinds, drivers, test)
}

func onKinds(t *testing.T, kinds []string, drivers int, test func(*testing.T, *office)) {
	t.Helper()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) {
		if kind == servertest.SQLite {
			inBubble(t, drivers, test)
			return
		}
		o := newOffice(t, repositorytest.URL(t, kind), drivers)
		o.kind = kind
		test(t, o)
	})
}

func newOffice(t *testing.T, url string, drivers int) *office {
	t.Helper()
	o := emptyOffice(t, url)
	o.fcm = fcmtest.New()
	t.Cleanup(o.fcm.Close)
	o.hire("seoul", drivers)
	return o
}

// emptyOffice is one without drivers and without a push service.
func emptyOffice(t *testing.T, url string) *office {
	t.Helper()
	o := &office{t: t, url: url, timeout: 5 * time.Second}
	o.store = repositorytest.Open(t, url, repository.Options{})
	return o
}

// hire adds drivers of a region, each with a phone.
func (o *office) hire(region string, n int) []dispatch.Driver {
	o.t.Helper()
	hired := o.accounts(n, region)
	for _, v := range hired {
		o.put(v, "app", phone(v))
	}
	o.cars = append(o.cars, hired...)
	return hired
}

// accounts adds drivers without a phone.
func (o *office) accounts(n int, region string) (drivers []dispatch.Driver) {
	o.t.Helper()
	for range n {
		drivers = append(drivers, dispatch.Driver{
			ID: dispatch.NewDriverID(time.Now()), Name: "Kim", Phone: "+821012345678", Regions: []string{region},
			VehicleClass: "45m", OnDuty: true, Version: 1,
		})
	}
	if err := o.store.Drivers.AddDrivers(o.t.Context(), drivers, false); err != nil {
		o.t.Fatal(err)
	}
	return drivers
}

func (o *office) put(v dispatch.Driver, installation, token string) {
	o.t.Helper()
	_, err := o.store.Devices.PutDevice(dispatch.WithCaller(o.t.Context(), dispatch.Caller{Actor: string(v.ID)}), dispatch.Device{
		Driver: v.ID, Installation: installation, Platform: dispatch.Android, PushToken: token, AppVersion: "1", Locale: "ko-KR",
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) open(options repository.Options) *repository.Store {
	o.t.Helper()
	return repositorytest.Open(o.t, o.url, options)
}

// offer opens a dispatch in Seoul, where all drivers are unless a test says so.
func (o *office) offer() dispatch.Dispatch { return o.offerIn("seoul") }

func (o *office) offerIn(region string) dispatch.Dispatch {
	o.t.Helper()
	d, err := o.store.Dispatches.Create(o.t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		d, events := dispatch.New(dispatch.NewID(now), "", o.terms(region, now),
			dispatch.Window{OpensAt: now, ExpiresAt: now.Add(dispatch.DefaultWindow)}, "key_1", now)
		return d, events, nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return d
}

// terms are of work that overlaps with no other.
func (o *office) terms(region string, now time.Time) dispatch.Terms {
	o.hour += 2
	return dispatch.Terms{
		Region: region, VehicleClass: "45m", Site: dispatch.Site{Address: "Seoul 1"},
		WorkStartsAt: now.Add(time.Duration(o.hour) * time.Hour), WorkEndsAt: now.Add(time.Duration(o.hour+1) * time.Hour),
		Fee: dispatch.Money{Amount: 350000, Currency: "KRW"},
	}
}

func (o *office) accept(d dispatch.Dispatch, v dispatch.Driver) {
	o.t.Helper()
	_, err := o.store.Dispatches.Claim(o.t.Context(), d.ID, v.ID,
		func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			return d.Accept(c, 0, dispatch.NewClaimID(now), now)
		})
	if err != nil {
		o.t.Fatal(err)
	}
}

// eventually waits until ok. In a bubble it looks once a second, when nothing else happens, for an hour.
func (o *office) eventually(what string, ok func() bool) {
	o.t.Helper()
	came := false
	defer func() {
		if !came && o.fcm != nil {
			received, duplicates, visible, told := o.fcm.Totals()
			o.t.Logf("%d requests; received %d, twice %d, visible %d, phones %d; %v",
				o.fcm.Requests(), received, duplicates, visible, told, o.rows())
		}
	}()
	if !o.bubble {
		testkit.Eventually(o.t, what, ok)
		came = true
		return
	}
	for range 3600 {
		synctest.Wait()
		if came = ok(); came {
			return
		}
		time.Sleep(time.Second)
	}
	o.t.Fatalf("never: %s", what)
}

// everything returns the items of all pages.
func everything[T any](t testing.TB, list func(dispatch.Page) ([]T, string, error)) (all []T) {
	t.Helper()
	for page := (dispatch.Page{Limit: 200}); ; {
		items, next, err := list(page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, items...)
		if page.Cursor = next; next == "" {
			return all
		}
	}
}

// notifications returns the rows with that status.
func (o *office) notifications(s outbox.Status) []outbox.Notification {
	o.t.Helper()
	return everything(o.t, func(p dispatch.Page) ([]outbox.Notification, string, error) {
		return o.store.Notifications.NotificationsBy(context.Background(), s, p)
	})
}

// rows counts the notifications by status and result.
func (o *office) rows() map[string]int {
	o.t.Helper()
	rows := map[string]int{}
	for _, s := range []outbox.Status{outbox.Pending, outbox.Sent, outbox.Dead, outbox.Dropped} {
		for _, n := range o.notifications(s) {
			rows[fmt.Sprintf("%s %s", s, n.Result)]++
		}
	}
	return rows
}

// mustHaveSentAll fails the test unless all phones show the offer and all pushes are recorded as sent.
func (o *office) mustHaveSentAll() {
	o.t.Helper()
	if shown, rows := o.shows(dispatch.EventOpened), o.rows(); shown != len(o.cars) || rows["SENT sent"] != len(o.cars) {
		o.t.Errorf("%d of %d phones show the offer; %v", shown, len(o.cars), rows)
	}
}

// twice is how many messages came twice.
func (o *office) twice() int {
	_, again, _, _ := o.fcm.Totals()
	return again
}

// untilAllShow waits until the phones of all drivers show the offer.
func (o *office) untilAllShow() {
	o.t.Helper()
	o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
}

// shows counts the phones that show a notification of that type.
func (o *office) shows(t dispatch.EventType) (n int) {
	for _, v := range o.cars {
		for _, shown := range o.fcm.Device(phone(v)).Visible {
			if shown.Type == string(t) {
				n++
			}
		}
	}
	return n
}

// showing counts the phones that show something of the dispatch.
func (o *office) showing(d dispatch.Dispatch) (n int) {
	for _, v := range o.cars {
		if slices.ContainsFunc(o.fcm.Device(phone(v)).Visible, func(shown fcmtest.Notification) bool { return shown.Dispatch == string(d.ID) }) {
			n++
		}
	}
	return n
}

// All drivers get the offer, and after the accept only the winner's phone shows anything. Each push is one request. So it
// is also when the audience is written in parts.
func TestPushesToAllDrivers(t *testing.T) {
	t.Parallel()
	onDatabases(t, 40, func(t *testing.T, o *office) {
		for i, size := range []int{0, 2} {
			r := o.relay(func(_ *notify.RelayOptions, b *pushes.Options) { b.BatchSize = size })
			before := o.fcm.Requests()
			d := o.offer()
			o.untilAllShow()
			o.accept(d, o.cars[i])
			o.eventually("the winner's phone alone shows something, and that it has the job", func() bool {
				return o.shows(dispatch.EventOpened) == 0 && o.shows(dispatch.EventAccepted) == i+1
			})
			shown := o.fcm.Device(phone(o.cars[i])).Visible
			if last := shown[len(shown)-1]; last.Dispatch != string(d.ID) {
				t.Errorf("the winner's phone shows %v", last)
			}
			o.eventually("all are marked as sent", func() bool { return o.rows()["SENT sent"] == 2*len(o.cars)*(i+1) })
			testkit.Equal(t, "requests for two pushes to each phone", int64(2*len(o.cars)), o.fcm.Requests()-before)
			testkit.Equal(t, "messages that came twice", 0, o.twice())
			r.stop()
		}
	})
}
