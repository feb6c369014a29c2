package sim

import (
	"slices"
	"sync"
	"time"
)

// fault is a kind of fault. Most go on for a while, and then strike some of the calls that are made meanwhile.
type fault string

// The faults of Redis.
const (
	redisFlushed     fault = "redis loses its keys"
	redisFrozen      fault = "redis does not answer"
	redisRefused     fault = "redis refuses connections"
	redisPartitioned fault = "an instance does not reach redis"
	redisRequestLost fault = "commands to redis are lost"
	redisReplyLost   fault = "replies of redis are lost"
	redisSlow        fault = "redis is slow"
	redisPromoted    fault = "a replica that is behind becomes the master"
	redisHurries     fault = "the keys in redis expire early"
	redisReadOnly    fault = "redis takes no writes"
)

// The faults of the database.
const (
	databaseRefused     fault = "the database refuses connections"
	databasePartitioned fault = "an instance does not reach the database"
	databaseSlow        fault = "the database is slow"
	databaseHangs       fault = "the database does not answer"
	databaseRequestLost fault = "requests to the database are lost"
	databaseReplyLost   fault = "the database's replies to commits are lost"
	databaseCommitsLate fault = "commits arrive after the caller has given up"
	databaseReadOnly    fault = "the database takes no writes"
)

// The faults of instances and of the network to them.
const (
	instanceKilled  fault = "an instance is killed"
	instanceFrozen  fault = "an instance stands still"
	instanceStopped fault = "an instance is stopped and started again"
	requestLost     fault = "requests to an instance are lost"
	replyLost       fault = "an instance's replies are lost"
	networkSlow     fault = "the network to an instance is slow"
	requestTwice    fault = "a proxy sends requests twice"
	hangUp          fault = "drivers hang up"
)

// The cheats of drivers.
const (
	hopelessTaps fault = "drivers who cannot take a job tap on it"
	madeUpRounds fault = "drivers make up rounds"
)

var allFaults = []fault{
	redisFlushed, redisFrozen, redisRefused, redisPartitioned, redisRequestLost, redisReplyLost, redisSlow, redisPromoted, redisHurries,
	redisReadOnly, databaseRefused, databasePartitioned, databaseSlow, databaseHangs, databaseRequestLost, databaseReplyLost,
	databaseCommitsLate, databaseReadOnly, instanceKilled, instanceFrozen, instanceStopped, requestLost, replyLost, networkSlow,
	requestTwice, hangUp, hopelessTaps, madeUpRounds,
}

// cheating are the faults that make nothing fail.
var cheating = []fault{hopelessTaps, madeUpRounds}

// local are the faults of one instance, or of what lies between it and the others.
var local = []fault{
	redisPartitioned, databasePartitioned, instanceKilled, instanceFrozen, instanceStopped, requestLost, replyLost, networkSlow,
}

// weather is which faults go on. Safe for concurrent use.
type weather struct {
	mu    sync.Mutex
	until map[fault]map[int]time.Time // by instance; 0 for faults of all
	count map[fault]int               // how often each fault has struck
}

func newWeather() *weather {
	return &weather{until: map[fault]map[int]time.Time{}, count: map[fault]int{}}
}

func (w *weather) begin(f fault, instance int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(local, f) {
		instance = 0
	}
	if w.until[f] == nil {
		w.until[f] = map[int]time.Time{}
	}
	w.until[f][instance] = time.Now().Add(d)
}

// strikes reports whether the fault goes on and strikes a call of the instance, as it does with probability p.
func (w *weather) strikes(f fault, instance int, d *dice, p float64) bool {
	if !slices.Contains(local, f) {
		instance = 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !time.Now().Before(w.until[f][instance]) || !d.chance(p) {
		return false
	}
	w.count[f]++
	return true
}

func (w *weather) struck(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[f]++
}

// clear ends all faults.
func (w *weather) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.until)
}

// chaos lets faults begin at random until the world is quiet.
func (w *world) chaos() {
	d := w.dice("chaos")
	for w.rest(d.between(200*time.Millisecond, 6*time.Second)) {
		kind, instance, length := allFaults[d.IntN(len(allFaults))], 1+d.IntN(w.instances), d.between(50*time.Millisecond, 6*time.Second)
		lag := d.between(0, 3*time.Second)
		if !slices.Contains(w.faults, kind) {
			continue
		}
		switch kind {
		case redisFlushed:
			w.redis.flush()
			w.weather.struck(kind)
		case redisPromoted:
			w.redis.promote(lag)
			w.weather.struck(kind)
		case redisHurries:
			w.redis.hurry(lag)
			w.weather.struck(kind)
		case instanceKilled, instanceStopped:
			w.weather.struck(kind)
			w.writes.Add(1)
			go w.restart(instance, kind == instanceKilled, length)
		case instanceFrozen:
			w.weather.struck(kind)
			w.instance(instance).freeze(length)
		case hopelessTaps, madeUpRounds:
			w.weather.begin(kind, instance, 5*length)
		default:
			w.weather.begin(kind, instance, length)
		}
	}
}
