//nolint:forbidigo // the simulation is in a bubble of testing/synctest
package sim

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/service"
)

// settings determine a history.
type settings struct {
	seed                       uint64
	length                     time.Duration // of the time in which actors act and faults begin
	instances, drivers, admins int
	faults                     []fault
	idle                       []string // the actors that do nothing
}

// world is everything that a history happens in: one database, one Redis, some instances, drivers and admins. It is of one bubble.
type world struct {
	settings
	*cup
	began   time.Time
	store   *repository.Store
	redis   *redisModel
	weather *weather
	history *history
	drivers []*driver
	cheats  []*cheat
	quiet   chan struct{} // closed when no fault begins and no actor acts any more
	writes  sync.WaitGroup

	mu    sync.Mutex
	slots []*instance // by slot, from 1; nil while it is down
	lives []int       // how many instances each slot has had
	names map[string]string
	board []*job
}

// job is a dispatch as its committed events describe it.
type job struct {
	id    dispatch.ID
	name  string
	round int
	open  bool
}

// instance is a process: what it knows in memory dies with it.
type instance struct {
	world      *world
	slot       int
	number     int // of its lives in this slot
	database   *database
	gate       *lock.Gate
	acceptor   *service.Acceptor
	attempts   *service.AttemptWriter
	backoffice *service.Backoffice
	work       *service.DriverService
	serving    sync.WaitGroup
	killed     chan struct{}
	frozen     atomic.Int64 // until when it stands still, in nanoseconds
	end        func()       // ends its loops, and returns when they have ended
}

const (
	lockTTL      = 5 * time.Second
	redisTimeout = 100 * time.Millisecond
)

// live runs the history of the settings in a bubble, and returns it.
func live(t *testing.T, s settings) *history {
	t.Helper()
	var h *history
	testkit.Bubble(t, func(t *testing.T) {
		w := &world{
			settings: s, cup: newCup(s.seed), began: time.Now(), redis: newRedisModel(), weather: newWeather(), quiet: make(chan struct{}),
			names: map[string]string{}, slots: make([]*instance, s.instances+1), lives: make([]int, s.instances+1), history: newHistory(),
		}
		h = w.history
		url := repositorytest.URL(t, servertest.SQLite)
		w.store = repositorytest.Open(t, url, repository.Options{OnCommit: w.committed})
		w.hire(t)
		for slot := range s.instances {
			time.Sleep(w.dice("start").between(time.Millisecond, 20*time.Millisecond))
			w.start(slot + 1)
		}
		w.play()
		h.read(t, url)
		h.struck = w.weather.count
	})
	return h
}

// play lets everybody act, and then waits until nothing is under way any more.
func (w *world) play() {
	var actors sync.WaitGroup
	for _, v := range w.drivers {
		actors.Go(v.run)
	}
	for _, c := range w.cheats {
		actors.Go(c.run)
	}
	for k := range w.admins {
		a := &admin{world: w, name: fmt.Sprintf("a%d", k+1)}
		a.dice = w.dice(a.name)
		actors.Go(a.run)
	}
	actors.Go(w.chaos)
	actors.Go(w.expire)
	time.Sleep(w.length)
	close(w.quiet)
	w.weather.clear()
	actors.Wait()
	w.writes.Wait()
	for slot := range w.instances {
		if w.instance(slot+1) == nil {
			w.start(slot + 1)
		}
	}
	// A reannouncer follows up for the length of an offer, and waits for up to 32 times 10 s after an announcement.
	time.Sleep(dispatch.DefaultWindow + 6*time.Minute)
	for slot := range w.instances {
		w.instance(slot + 1).end()
	}
}

// rest waits for d, and reports whether the world is not quiet yet.
func (w *world) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.quiet:
		return false
	}
}

func (w *world) isQuiet() bool {
	select {
	case <-w.quiet:
		return true
	default:
		return false
	}
}

// later calls do after d, also if the world is quiet by then.
func (w *world) later(d time.Duration, do func()) {
	w.writes.Add(1)
	time.AfterFunc(d, func() {
		defer w.writes.Done()
		do()
	})
}

// The regions of jobs. All drivers work in the first; few of them in the other one too, where a job may remain open because nobody is left
// who may take it.
const (
	busyRegion  = "seoul"
	quietRegion = "jeju"
)

// hire adds the drivers, and the cheats.
func (w *world) hire(t *testing.T) {
	var all []dispatch.Driver
	add := func(name string, regions ...string) (*driver, *dispatch.Driver) {
		v := &driver{world: w, name: name, inbox: make(chan message, 64), id: dispatch.NewDriverID(time.Now()), regions: regions}
		v.dice = w.dice(v.name)
		w.names[string(v.id)] = v.name
		w.history.regions[v.name] = regions
		all = append(all, dispatch.Driver{
			ID: v.id, Name: v.name, Phone: "+821012345678", Regions: v.regions, VehicleClass: "45m", OnDuty: true, Version: 1,
		})
		return v, &all[len(all)-1]
	}
	for k := range w.settings.drivers {
		regions := []string{busyRegion}
		if k%5 == 0 {
			regions = append(regions, quietRegion)
		}
		v, _ := add(fmt.Sprintf("v%02d", k+1), regions...)
		w.drivers = append(w.drivers, v)
	}
	for k, c := range cheats {
		v, row := add(c.name, busyRegion, quietRegion)
		w.cheats = append(w.cheats, &cheat{v, c.fault})
		switch k {
		case 0:
			row.OnDuty = false
		case 1:
			row.VehicleClass = "20m"
		case 2:
			row.SuspendedUntil = new(time.Now().Add(time.Hour))
		}
		if c.fault == hopelessTaps {
			w.history.regions[c.name] = nil
		}
	}
	if err := w.store.Drivers.AddDrivers(t.Context(), all, false); err != nil {
		t.Fatal(err)
	}
}

// driversIn returns the drivers who work in the region.
func (w *world) driversIn(region string) (all []*driver) {
	for _, v := range w.drivers {
		if slices.Contains(v.regions, region) {
			all = append(all, v)
		}
	}
	return all
}

// start starts an instance in the slot.
func (w *world) start(slot int) {
	w.mu.Lock()
	w.lives[slot]++
	i := &instance{world: w, slot: slot, number: w.lives[slot], killed: make(chan struct{})}
	w.mu.Unlock()
	quiet := slog.New(slog.DiscardHandler)
	i.database = &database{w.store, w.store.Offers, w, i}
	client := link{w, i}.client()
	i.gate = lock.NewGate(client, redisTimeout, quiet, nil)
	i.attempts = service.NewAttemptWriter(i.database, fmt.Sprint("i", slot), quiet)
	i.acceptor = service.NewAcceptor(service.AcceptorOptions{
		Claims: i.database, Gate: i.gate, LockTTL: lockTTL, Attempts: i.attempts, Log: quiet,
	})
	i.backoffice = service.NewBackoffice(i.database, w.store.Drivers, i.acceptor)
	i.work = service.NewDriverService(service.DriverServiceOptions{Store: i.database, Offers: i.database, Drivers: i.database, Acceptor: i.acceptor, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { i.gate.Run(ctx, service.LockPrefix) })
	loops.Go(func() { i.attempts.Run(ctx) })
	loops.Go(func() { i.acceptor.Run(ctx) })
	i.end = func() {
		cancel()
		loops.Wait()
		client.Close()
		w.history.mu.Lock()
		w.history.dropped += i.attempts.Dropped()
		w.history.mu.Unlock()
		if n := i.acceptor.LostClaims(); n > 0 {
			w.history.report(storedWin, "", i.life(), "misses ", n, " claims")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[slot] = i
}

// restart ends the instance in the slot, at once or when its requests are answered, and starts another one after pause. The caller has
// added it to writes.
func (w *world) restart(slot int, kill bool, pause time.Duration) {
	defer w.writes.Done()
	w.mu.Lock()
	i := w.slots[slot]
	w.slots[slot] = nil
	w.mu.Unlock()
	if i == nil {
		return // it is down already
	}
	w.history.end(i)
	if kill {
		close(i.killed)
	} else {
		i.serving.Wait()
	}
	i.end()
	time.Sleep(pause)
	w.start(slot)
}

// instance returns the instance in the slot, nil while it is down.
func (w *world) instance(slot int) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots[slot]
}

// life names the instance in the names of dice.
func (i *instance) life() string { return fmt.Sprintf("i%d.%d ", i.slot, i.number) }

func (i *instance) dead() bool {
	select {
	case <-i.killed:
		return true
	default:
		return false
	}
}

// freeze makes the instance stand still for d.
func (i *instance) freeze(d time.Duration) {
	if i != nil {
		i.frozen.Store(time.Now().Add(d).UnixNano())
	}
}

// hasStood reports whether the instance has stood still since then.
func (i *instance) hasStood(since time.Time) bool { return i.frozen.Load() > since.UnixNano() }

// stand returns when the instance does not stand still any more. What it was doing goes on in an order that the dice decide: at one and
// the same instant, the scheduler would.
func (i *instance) stand(d *dice) {
	if wait := time.Until(time.Unix(0, i.frozen.Load())); wait > 0 {
		time.Sleep(wait + d.between(0, time.Millisecond))
	}
}

// committed is called after each commit, at the same instant.
func (w *world) committed(d dispatch.Dispatch, events []dispatch.Event) {
	w.mu.Lock()
	name := w.names[string(d.ID)]
	if name == "" {
		name = fmt.Sprintf("d%d", len(w.board)+1)
		w.names[string(d.ID)] = name
		w.board = append(w.board, &job{id: d.ID, name: name})
	}
	at := slices.IndexFunc(w.board, func(j *job) bool { return j.id == d.ID })
	j := w.board[at]
	if d.Round >= j.round {
		j.round, j.open = d.Round, d.Status == dispatch.Pending || d.Status == dispatch.Scheduled
	}
	w.mu.Unlock()
	w.history.commit(w, d, events)
	for _, e := range events {
		if offersIt(e) {
			w.push(message{j.id, name, d.Round}, d.Region)
		}
	}
}

// push tells each driver in the region of an offer, soon, late or never. A few others hear of it all the same.
func (w *world) push(m message, region string) {
	for _, v := range w.drivers {
		d := w.dice("push " + v.name + m.name)
		delay := d.between(time.Millisecond, 60*time.Millisecond)
		switch {
		case d.chance(0.05), !slices.Contains(v.regions, region) && d.chance(0.9):
			continue
		case d.chance(0.1):
			delay = d.between(60*time.Millisecond, 4*time.Second)
		}
		time.AfterFunc(delay, func() {
			select {
			case v.inbox <- m:
			default: // the driver does not look
			}
		})
	}
}

var identifier = regexp.MustCompile(`(dsp|drv|clm)_[0-9A-Za-z]+|probe:[0-9A-Z]+`)

// plain returns s with names instead of identifiers, which are different in each run; the owner of a probe has none.
func (w *world) plain(s string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return identifier.ReplaceAllStringFunc(s, func(id string) string { return w.names[id] })
}

// expire is the scheduled job that writes down which offers have expired.
func (w *world) expire() {
	d := w.dice("expire")
	for w.rest(d.between(2*time.Second, 5*time.Second)) {
		_, _ = w.store.Due.ExpireOffers(context.Background(), 100)
	}
}
