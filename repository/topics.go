package repository

import (
	"context"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
	"firsttap/outbox"
)

type topicRow struct {
	Name   string `gorm:"primaryKey"`
	Ended  bool
	State  int
	NextAt int64
	Claim  string
}

func (topicRow) TableName() string { return "topics" }

type memberRow struct {
	Topic      string            `gorm:"primaryKey"`
	DeviceID   dispatch.DeviceID `gorm:"primaryKey"`
	PushToken  string
	Subscribed bool
}

func (memberRow) TableName() string { return "topic_members" }

// topicNames returns the names of all topics. A query for members needs them, because the members' key begins with the topic.
func topicNames(tx *gorm.DB) (topics []string, err error) {
	return topics, tx.Raw("SELECT name FROM topics ORDER BY name").Scan(&topics).Error
}

// forgetMembers deletes the devices from the topics' members, with their push tokens. The push service still has them as subscribed.
func forgetMembers[ID any](tx *gorm.DB, topics []string, devices []ID) error {
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

// replaceByTopic leaves out the recipients that are subscribed to the dispatch's topic. In the event's first part it adds one message to the topic.
func (e *expansion) replaceByTopic(to []recipient, first bool) ([]recipient, error) {
	topic := outbox.TopicOf(e.result.Dispatch.ID)
	const subscribed = `FROM topic_members m JOIN devices dv ON dv.id = m.device_id AND dv.push_token = m.push_token WHERE m.topic = ? AND m.subscribed`
	var rest []recipient
	if first {
		var some bool
		err := e.tx.Raw("SELECT EXISTS (SELECT 1 "+subscribed+") AND NOT EXISTS (SELECT 1 FROM notifications WHERE event_id = ? AND device_id = '')",
			topic, e.result.Event.ID).Scan(&some).Error
		if err != nil {
			return nil, err
		}
		if some {
			rest = append(rest, recipient{topic: topic})
		}
	}
	for part := range slices.Chunk(to, rowsPerStatement) {
		ids := make([]dispatch.DeviceID, len(part))
		for i := range part {
			ids[i] = part[i].device.ID
		}
		var found []dispatch.DeviceID
		if err := e.tx.Raw("SELECT dv.id "+subscribed+" AND m.device_id IN ?", topic, ids).Scan(&found).Error; err != nil {
			return nil, err
		}
		reached := make(map[dispatch.DeviceID]bool, len(found))
		for _, id := range found {
			reached[id] = true
		}
		for _, r := range part {
			if !reached[r.device.ID] || r.delay > 0 { // the topic's message may arrive before an offer that is under way
				rest = append(rest, r)
			}
		}
	}
	return rest, nil
}

// addTopicMembers writes the devices to subscribe to the dispatch's topic. The topic is due after inFlightTime, so that the
// offers are sent before the subscriptions.
func (e *expansion) addTopicMembers(to []recipient) error {
	topic := outbox.TopicOf(e.result.Dispatch.ID)
	row := topicRow{Name: topic, NextAt: micros(e.now.Add(inFlightTime))}
	err := e.tx.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"ended", "state", "next_at", "claim"}),
	}).Create(&row).Error
	if err != nil {
		return err
	}
	members := make([]memberRow, len(to))
	for i, r := range to {
		members[i] = memberRow{Topic: topic, DeviceID: r.device.ID, PushToken: r.device.PushToken}
	}
	return e.tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(members, rowsPerStatement).Error
}

// closeTopic marks the dispatch's topic as ended. ScheduleTopicCleanup makes it due.
func (e *expansion) closeTopic() error {
	if e.TopicThreshold == 0 {
		return nil
	}
	return e.tx.Exec(`UPDATE topics SET ended = ?, state = 1, claim = '' WHERE name = ? AND NOT ended`,
		true, outbox.TopicOf(e.result.Dispatch.ID)).Error
}

// ScheduleTopicCleanup makes the ended topics due, so that the relay unsubscribes their members, and returns how many. It ends the topics
// of dispatches that are no longer on offer: an offer that was written while its dispatch was accepted leaves one.
func (s *Store) ScheduleTopicCleanup(ctx context.Context) (n int, err error) {
	err = s.transactWithRetry(ctx, s.work, func(tx *gorm.DB) error {
		err := tx.Exec("UPDATE topics SET ended = ?, state = 1, claim = '' WHERE NOT ended AND"+
			" COALESCE((SELECT status FROM dispatches WHERE id = SUBSTR(name, ?)), '') NOT IN ?", true, len(outbox.TopicOf(""))+1, []dispatch.Status{dispatch.Pending, dispatch.Scheduled}).Error
		if err != nil {
			return unavailable(err)
		}
		due := tx.Exec("UPDATE topics SET state = 0, next_at = {now} WHERE state = 1 AND ended")
		n = int(due.RowsAffected)
		return unavailable(due.Error)
	})
	return n, err
}

// LeaseTopics leases up to limit of the topics with members to subscribe or unsubscribe.
func (o *Outbox) LeaseTopics(ctx context.Context, limit int) (leased []outbox.Topic, err error) {
	err = o.transactWithRetry(ctx, o.work, func(tx *gorm.DB) error {
		leased = nil
		err := tx.Raw(`SELECT name, ended FROM topics {force ix_topics_due} WHERE state = 0 AND next_at <= {now} ORDER BY next_at LIMIT ? {skip_locked}`, limit).Scan(&leased).Error
		if err != nil || len(leased) == 0 {
			return unavailable(err)
		}
		var names, ended []string
		for _, t := range leased {
			names = append(names, t.Name)
			if t.Ended {
				ended = append(ended, t.Name)
			}
		}
		err = tx.Exec(`UPDATE topics {force PRIMARY} SET claim = ?, next_at = {now} + ? WHERE name IN ?`,
			o.Owner, o.LeaseTerm.Microseconds(), names).Error
		if err != nil || len(ended) == 0 {
			return unavailable(err)
		}
		// If the dispatch is reopened now, it is unknown which members are still subscribed: all have to subscribe again.
		return unavailable(tx.Exec(`UPDATE topic_members SET subscribed = ? WHERE topic IN ? AND subscribed`, false, ended).Error)
	})
	return leased, err
}

// TopicMembers returns up to limit of the devices to subscribe to a topic, or to unsubscribe if it has ended.
func (o *Outbox) TopicMembers(ctx context.Context, t outbox.Topic, limit int) (members []dispatch.Device, err error) {
	db := o.work.WithContext(ctx).Table("topic_members").Select("device_id id, push_token").Where("topic = ?", t.Name)
	if !t.Ended {
		db = db.Where("NOT subscribed")
	}
	err = db.Limit(limit).Scan(&members).Error
	return members, unavailable(err)
}

// RecordMembers writes that members were subscribed, or unsubscribed if the topic has ended, and deletes refused ones, whose
// tokens the push service does not know. It renews the lease. ErrNotLeased if the owner no longer leases the topic.
func (o *Outbox) RecordMembers(ctx context.Context, t outbox.Topic, members, refused []dispatch.DeviceID) error {
	if t.Ended {
		members, refused = nil, append(members, refused...)
	}
	return o.transactWithRetry(ctx, o.work, func(tx *gorm.DB) error {
		renewed := tx.Exec(`UPDATE topics SET next_at = {now} + ? WHERE name = ? AND ended = ? AND state = 0 AND claim = ?`,
			o.LeaseTerm.Microseconds(), t.Name, t.Ended, o.Owner)
		if renewed.Error != nil {
			return unavailable(renewed.Error)
		}
		if renewed.RowsAffected == 0 {
			return dispatch.ErrNotLeased
		}
		if len(members) > 0 {
			err := tx.Exec(`UPDATE topic_members SET subscribed = ? WHERE topic = ? AND device_id IN ?`, true, t.Name, members).Error
			if err != nil {
				return unavailable(err)
			}
		}
		if len(refused) == 0 {
			return nil
		}
		return unavailable(tx.Exec(`DELETE FROM topic_members WHERE topic = ? AND device_id IN ?`, t.Name, refused).Error)
	})
}

// CompleteTopic completes a topic of the owner's: all members are subscribed, or, if the topic has ended, unsubscribed.
func (o *Outbox) CompleteTopic(ctx context.Context, t outbox.Topic) error {
	db := o.work.WithContext(ctx)
	if t.Ended {
		return unavailable(db.Exec(`DELETE FROM topics WHERE name = ? AND ended = ? AND claim = ?`, t.Name, true, o.Owner).Error)
	}
	return unavailable(db.Exec(`UPDATE topics SET state = 1, claim = '' WHERE name = ? AND ended = ? AND claim = ?`,
		t.Name, false, o.Owner).Error)
}
