package topics

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
)

// Topics are the push service's topics, to which it is told which devices to subscribe. It is safe for concurrent use.
type Topics struct {
	db *database.DB
	// Only the owner of a lease may complete the topic; a lease lasts for term.
	owner string
	term  time.Duration
}

// New returns the topics for one owner, "" for who leases none.
func New(db *database.DB, owner string, term time.Duration) *Topics {
	return &Topics{db, owner, term}
}

type memberRow struct {
	Topic      string            `gorm:"primaryKey"`
	DeviceID   dispatch.DeviceID `gorm:"primaryKey"`
	PushToken  string
	Subscribed bool
}

// TableName implements gorm.Tabler.
func (memberRow) TableName() string { return "topic_members" }

// Names returns the names of all topics. A query for members needs them, because the members' key begins with the topic.
func Names(tx database.Tx) (topics []string, err error) {
	return topics, tx.Raw("SELECT name FROM topics ORDER BY name").Scan(&topics).Error
}

// Forget deletes the devices from the topics' members, with their push tokens. The push service still has them as subscribed.
func Forget[ID any](tx database.Tx, topics []string, devices []ID) error {
	const atOnce = 50 // of each: a server that is given more combinations may read the whole table instead
	for someTopics := range slices.Chunk(topics, atOnce) {
		for someDevices := range slices.Chunk(devices, atOnce) {
			if err := tx.Exec("DELETE FROM topic_members WHERE topic IN ? AND device_id IN ?", someTopics, someDevices).Error; err != nil {
				return err
			}
		}
	}
	return nil
}

// ScheduleTopicCleanup makes the ended topics due, so that the relay unsubscribes their members, and returns how many. It ends the topics
// of dispatches that are no longer on offer: an offer that was written while its dispatch was accepted leaves one.
func (o *Topics) ScheduleTopicCleanup(ctx context.Context) (n int, err error) {
	err = o.db.Work.Transact(ctx, func(tx database.Tx) error {
		due := tx.Exec(`UPDATE topics SET ended = ?, state = 0, claim = '', next_at = {now} WHERE ended AND state = 1 OR NOT ended AND
			COALESCE((SELECT status FROM dispatches WHERE id = SUBSTR(name, ?)), '') NOT IN ?`, true, len(outbox.TopicOf(""))+1,
			[]dispatch.Status{dispatch.Pending, dispatch.Scheduled})
		n = int(due.RowsAffected)
		return database.Unavailable(due.Error)
	})
	return n, err
}

// LeaseTopics leases up to limit of the topics with members to subscribe or unsubscribe.
func (o *Topics) LeaseTopics(ctx context.Context, limit int) (leased []outbox.Topic, err error) {
	err = o.db.Work.Transact(ctx, func(tx database.Tx) error {
		leased = nil
		err := tx.Raw(
			`SELECT name, ended FROM topics {force ix_topics_due}
			WHERE state = 0 AND next_at <= {now} ORDER BY next_at LIMIT ? {skip_locked}`,
			limit,
		).Scan(&leased).Error
		if err != nil || len(leased) == 0 {
			return database.Unavailable(err)
		}
		var names, ended []string
		for _, t := range leased {
			names = append(names, t.Name)
			if t.Ended {
				ended = append(ended, t.Name)
			}
		}
		err = tx.Exec(`UPDATE topics {force PRIMARY} SET claim = ?, next_at = {now} + ? WHERE name IN ?`,
			o.owner, o.term.Microseconds(), names).Error
		if err != nil || len(ended) == 0 {
			return database.Unavailable(err)
		}
		// If the dispatch is reopened now, it is unknown which members are still subscribed: all have to subscribe again.
		return database.Unavailable(tx.Exec(`UPDATE topic_members SET subscribed = ? WHERE topic IN ? AND subscribed`, false, ended).Error)
	})
	return leased, err
}

// TopicMembers returns up to limit of the devices to subscribe to a topic, or to unsubscribe if it has ended.
func (o *Topics) TopicMembers(ctx context.Context, t outbox.Topic, limit int) (members []dispatch.Device, err error) {
	db := o.db.Work.With(ctx).Table("topic_members").Select("device_id id, push_token").Where("topic = ?", t.Name)
	if !t.Ended {
		db = db.Where("NOT subscribed")
	}
	err = db.Limit(limit).Scan(&members).Error
	return members, database.Unavailable(err)
}

// CountTopics returns the largest number of topics that one of the next devices has, up to limit of those after the given one, and the last
// of them; "" if there are no more, or no topics at all. It looks up each topic of each of them.
func (o *Topics) CountTopics(ctx context.Context, after dispatch.DeviceID, limit int) (most int, last dispatch.DeviceID, err error) {
	var row struct {
		Found, Most int
		Last        dispatch.DeviceID
	}
	err = o.db.Work.With(ctx).Raw(`SELECT COUNT(*) found, COALESCE(MAX(n), 0) most, COALESCE(MAX(id), '') last FROM (
		SELECT d.id, (SELECT COUNT(*) FROM topics t JOIN topic_members m {force PRIMARY} ON m.topic = t.name AND m.device_id = d.id) n
		FROM (SELECT id FROM devices {force PRIMARY} WHERE id > ? AND EXISTS (SELECT 1 FROM topics) ORDER BY id LIMIT ?) d) counted`,
		after, limit).Scan(&row).Error
	if row.Found < limit {
		row.Last = ""
	}
	return row.Most, row.Last, database.Unavailable(err)
}

// RecordMembers writes that members were subscribed, or unsubscribed if the topic has ended, and deletes refused ones, whose
// tokens the push service does not know. It renews the lease. ErrNotLeased if the owner no longer leases the topic.
func (o *Topics) RecordMembers(ctx context.Context, t outbox.Topic, members, refused []dispatch.DeviceID) error {
	if t.Ended {
		members, refused = nil, append(members, refused...)
	}
	return o.db.Work.Transact(ctx, func(tx database.Tx) error {
		err := database.RequireOwned(tx.Exec(`UPDATE topics SET next_at = {now} + ?
			WHERE name = ? AND ended = ? AND state = 0 AND claim = ?`,
			o.term.Microseconds(), t.Name, t.Ended, o.owner))
		if err != nil {
			return err
		}
		if len(members) > 0 {
			err := tx.Exec(`UPDATE topic_members SET subscribed = ? WHERE topic = ? AND device_id IN ?`, true, t.Name, members).Error
			if err != nil {
				return database.Unavailable(err)
			}
		}
		if len(refused) == 0 {
			return nil
		}
		return database.Unavailable(tx.Exec(`DELETE FROM topic_members WHERE topic = ? AND device_id IN ?`, t.Name, refused).Error)
	})
}

// CompleteTopic completes a topic of the owner's: all members are subscribed, or, if the topic has ended, unsubscribed.
func (o *Topics) CompleteTopic(ctx context.Context, t outbox.Topic) error {
	db := o.db.Work.With(ctx)
	if t.Ended {
		return database.Unavailable(db.Exec(`DELETE FROM topics WHERE name = ? AND ended = ? AND claim = ?`, t.Name, true, o.owner).Error)
	}
	return database.Unavailable(db.Exec(`UPDATE topics SET state = 1, claim = '' WHERE name = ? AND ended = ? AND claim = ?`,
		t.Name, false, o.owner).Error)
}

// Add writes devices to subscribe to the topic. The topic is due at that time.
func Add(tx database.Tx, topic string, devices []dispatch.Device, due time.Time) error {
	err := tx.Exec("INSERT INTO topics (name, ended, state, next_at, claim) VALUES (?, ?, 0, ?, '')"+
		" {or_update} ended = {new ended}, state = 0, next_at = {new next_at}, claim = ''", topic, false, database.Micros(due)).Error
	if err != nil {
		return err
	}
	members := make([]memberRow, len(devices))
	for i := range devices {
		members[i] = memberRow{Topic: topic, DeviceID: devices[i].ID, PushToken: devices[i].PushToken}
	}
	return tx.Clauses(database.KeepPresent).CreateInBatches(members, database.RowsPerStatement).Error
}

// Close marks the topic as ended. ScheduleTopicCleanup makes it due.
func Close(tx database.Tx, topic string) error {
	return tx.Exec("UPDATE topics SET ended = ?, state = 1, claim = '' WHERE name = ? AND NOT ended", true, topic).Error
}
