package systemtest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// leaseTakeover bounds the wait until another instance has sent what a killed one had leased for 30 s.
const leaseTakeover = 30*time.Second + testkit.Patience

// StartFCM starts a push service with phones behind it, until the test ends.
func StartFCM(t testing.TB) *fcmtest.Server {
	t.Helper()
	fcm, err := fcmtest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fcm.Close)
	return fcm
}

// PushSettings are the settings of an instance that pushes to fcm. fcm tells instances apart by their Firebase project.
func PushSettings(url string, fcm *fcmtest.Server, project string, settings ...string) []string {
	return append([]string{
		"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_FIREBASE_PROJECT=" + project,
		"FIRSTTAP_FCM_ENDPOINT=" + fcm.URL() + "/v1",
	}, settings...)
}

// pushToken is the push token of the driver's phone.
func pushToken(d Driver) string { return "token-" + d.ID }

// phones gives each driver a phone.
func phones(t testing.TB, i *Instance, drivers []Driver) {
	t.Helper()
	platforms := []string{"android", "ios", "web"}
	for k, d := range drivers {
		addPhone(t, i, d, platforms[k%len(platforms)], pushToken(d))
	}
}

func addPhone(t testing.TB, i *Instance, d Driver, platform, token string) {
	t.Helper()
	i.must(200, "PUT", "/v1/me/devices/app-on-"+platform, d.Token, fmt.Sprintf(`{"platform":%q,"push_token":%q}`, platform, token))
}

// MakeDriversWithPhones adds n drivers of a region, each with a phone.
func MakeDriversWithPhones(t testing.TB, i *Instance, region string, n int) []Driver {
	t.Helper()
	drivers := makeDriversIn(t, i, region, n)
	phones(t, i, drivers)
	return drivers
}

// pushing is a push service with phones behind it, a record of what it delivers, and the database of the instances that push to it.
type pushing struct {
	t    testing.TB
	fcm  *fcmtest.Server
	mail *Deliveries
	url  string
	db   *Database
}

func startPushing(t testing.TB, url string) *pushing {
	t.Helper()
	fcm := StartFCM(t)
	return &pushing{t: t, fcm: fcm, mail: RecordDeliveries(fcm), url: url, db: OpenDatabase(t, url)}
}

// start starts an instance that pushes under the name of that Firebase project.
func (p *pushing) start(project string, settings ...string) *Instance {
	p.t.Helper()
	return Start(p.t, PushSettings(p.url, p.fcm, project, settings...)...)
}

// answerAfter makes the push service answer so late from now on.
func (p *pushing) answerAfter(latency time.Duration) {
	p.fcm.Set(func(k *fcmtest.Knobs) { k.Latency = latency })
}

// holdAnswers makes the push service accept messages, and not answer before release is called or the test ends. A sender waits 15 s
// for an answer.
func (p *pushing) holdAnswers() (release func()) {
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	p.t.Cleanup(release)
	p.fcm.OnSend(func(r fcmtest.Request) {
		p.mail.record(r)
		<-held
	})
	return release
}

// await waits until n messages have arrived, or more.
func (p *pushing) await(what string, n int) {
	p.t.Helper()
	testkit.Within(p.t, leaseTakeover+2*testkit.Patience, what, func() bool {
		messages, _ := p.mail.Count()
		return messages >= n
	})
}

// unanswered counts the attempts that got no answer in 15 s: each of them may have been accepted, and its push is sent again.
func (db *Database) unanswered() (n int) {
	db.t.Helper()
	if err := db.DB.QueryRow("SELECT COALESCE(SUM(attempts), 0) FROM notifications").Scan(&n); err != nil {
		db.t.Fatal(err)
	}
	return n
}

// unansweredMessages counts the attempts without an answer by message. A killed instance did not record its last attempts.
func (db *Database) unansweredMessages() map[message]int {
	db.t.Helper()
	found := map[message]int{}
	const failed = `SELECT n.event_id, n.type, d.push_token, n.attempts FROM notifications n JOIN devices d ON d.id = n.device_id
		WHERE n.attempts > 0`
	db.each(failed, func(scan func(...any) error) error {
		var m message
		var n int
		err := scan(&m.event, &m.typ, &m.token, &n)
		found[m] = n
		return err
	})
	return found
}

// settle waits until every push is recorded as sent. If a record was lost, the push is sent again when its lease has ended.
func (p *pushing) settle() {
	p.t.Helper()
	testkit.Within(p.t, leaseTakeover, "nothing is left to push", p.db.nothingToPush)
}

// mustShow waits until the phones show these notifications of the dispatch.
func (p *pushing) mustShow(id string, want map[string][]string) {
	p.t.Helper()
	testkit.Retry(p.t, func() error {
		for token, types := range want {
			if got := shownTypes(p.fcm, token, id); !slices.Equal(got, types) {
				return fmt.Errorf("of %s the phone %s shows %v, not %v", id, token, got, types)
			}
		}
		return nil
	})
}

// allShow waits until each driver's phone shows these notifications of the dispatch.
func (p *pushing) allShow(drivers []Driver, id string, types ...string) {
	p.t.Helper()
	want := map[string][]string{}
	for _, d := range drivers {
		want[pushToken(d)] = types
	}
	p.mustShow(id, want)
}

// silent counts the silent messages of that type about the dispatch that a phone has got.
func (p *pushing) silent(token, id, messageType string) (n int) {
	for _, message := range p.fcm.Device(token).Silent {
		if message.Dispatch == id && message.Type == messageType {
			n++
		}
	}
	return n
}

// shownTypes returns the types of the notifications of a dispatch that a phone shows, the latest last.
func shownTypes(fcm *fcmtest.Server, token, id string) []string {
	types := []string{}
	for _, n := range fcm.Device(token).Visible {
		if n.Dispatch == id {
			types = append(types, n.Type)
		}
	}
	return types
}

// message is a push that a phone should get once.
type message struct{ event, typ, token string }

// Deliveries records which project sent which message to which phone.
type Deliveries struct {
	mu   sync.Mutex
	sent map[message][]string // the projects, once for each arrival
	all  int
}

// RecordDeliveries records what fcm accepts from now on.
func RecordDeliveries(fcm *fcmtest.Server) *Deliveries {
	m := &Deliveries{sent: map[message][]string{}}
	fcm.OnSend(m.record)
	return m
}

func (m *Deliveries) record(r fcmtest.Request) {
	if !r.Accepted {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := message{r.Data["event_id"], r.Data["type"], r.Token}
	m.sent[of] = append(m.sent[of], r.Project)
	m.all++
}

// ByProject counts the messages that each project has sent, duplicates too.
func (m *Deliveries) ByProject() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	projects := map[string]int{}
	for _, arrivals := range m.sent {
		for _, by := range arrivals {
			projects[by]++
		}
	}
	return projects
}

// Count returns how many messages have arrived, and how many duplicates.
func (m *Deliveries) Count() (messages, duplicates int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sent), m.all - len(m.sent)
}

// nothingToPush reports whether every event is expanded and every push is sent.
func (db *Database) nothingToPush() bool {
	db.t.Helper()
	return db.Count("events WHERE next_at IS NOT NULL") == 0 && db.Count("notifications WHERE state = 0") == 0
}

// unsentMessages are the messages that are not recorded as sent.
func (db *Database) unsentMessages() map[message]bool {
	db.t.Helper()
	found := map[message]bool{}
	const unsent = `SELECT n.event_id, n.type, d.push_token FROM notifications n JOIN devices d ON d.id = n.device_id WHERE n.state = 0`
	db.each(unsent, func(scan func(...any) error) error {
		var m message
		err := scan(&m.event, &m.typ, &m.token)
		found[m] = true
		return err
	})
	return found
}

// notifications are a dispatch's, as the backoffice sees them.
type notifications struct {
	Items []struct {
		ID, Type, Status string
		Round            int
		Attempts         int
		Silent           bool
	}
	Funnel []funnelRound
}

type funnelRound struct {
	Round         int `json:"round"`
	Told          int `json:"told"`
	AcceptedByFCM int `json:"accepted_by_fcm"`
	Seen          int `json:"seen"`
	Won           int `json:"won"`
}

func notificationsOf(i *Instance, id string) (n notifications) {
	i.get("/v1/admin/dispatches/"+id+"/notifications?limit=100", AdminKey, &n)
	return n
}

// byTypeAndStatus counts the notifications by type and status.
func (n *notifications) byTypeAndStatus() map[string]int {
	count := map[string]int{}
	for _, item := range n.Items {
		count[item.Type+" "+item.Status]++
	}
	return count
}
