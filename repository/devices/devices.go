package devices

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/topics"
)

// Devices are the drivers' devices, to which pushes go, and the topics that they subscribe to. It is safe for concurrent use.
type Devices struct {
	db *database.DB

	mu        sync.Mutex
	count     int // of all devices, as of countedAt
	countedAt time.Time
}

// New returns the devices in a database.
func New(db *database.DB) *Devices { return &Devices{db: db} }

type deviceRow struct {
	ID             dispatch.DeviceID `gorm:"primaryKey"`
	DriverID       dispatch.DriverID
	InstallationID string
	Platform       dispatch.Platform
	PushToken      string
	AppVersion     string
	Locale         string
	SuspectedAt    *int64
	QuarantinedAt  *int64
	CreatedAt      int64 `gorm:"autoCreateTime:false"`
	UpdatedAt      int64 `gorm:"autoUpdateTime:false"`
}

// TableName implements gorm.Tabler.
func (deviceRow) TableName() string { return "devices" }

func (row *deviceRow) device() dispatch.Device {
	return dispatch.Device{
		ID: row.ID, Driver: row.DriverID, Installation: row.InstallationID, Platform: row.Platform,
		PushToken: row.PushToken, AppVersion: row.AppVersion, Locale: row.Locale,
		SuspectedAt:   database.OptionalTime(row.SuspectedAt),
		QuarantinedAt: database.OptionalTime(row.QuarantinedAt), UpdatedAt: database.Time(row.UpdatedAt),
	}
}

// maxDevices bounds a driver's devices. One more replaces the device that was registered the longest ago.
const maxDevices = 10

// PutDevice registers an installation of the driver's app, or replaces its registration, and returns the device. It deletes
// any other device with the same push token. It ends a quarantine: with the same token the device is suspect then, with another
// one it is as good as new. ErrDriverNotFound, also for an erased driver; ErrUnavailable if nothing was written.
func (s *Devices) PutDevice(ctx context.Context, v dispatch.Device) (dispatch.Device, error) {
	var put dispatch.Device
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		// The lock keeps two registrations at the same time from exceeding maxDevices.
		var driver []dispatch.DriverID
		err := tx.Raw("SELECT id FROM drivers WHERE id = ? AND erased_at IS NULL {for_update}", v.Driver).Scan(&driver).Error
		if err != nil {
			return database.Unavailable(err)
		}
		if len(driver) == 0 {
			return dispatch.ErrDriverNotFound
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		elsewhere := func() database.Tx {
			return tx.Where("push_token = ? AND NOT (driver_id = ? AND installation_id = ?)", v.PushToken, v.Driver, v.Installation)
		}
		var previous []deviceRow
		if err := elsewhere().Limit(1).Find(&previous).Error; err != nil {
			return database.Unavailable(err)
		}
		if err := elsewhere().Delete(&deviceRow{}).Error; err != nil {
			return database.Unavailable(err)
		}
		before, after, err := putDevice(tx, v, now)
		if put = after; err != nil {
			return database.Unavailable(err)
		}
		detail := deviceChanges(before, after)
		if len(detail) == 0 {
			return nil
		}
		detail["device_id"] = string(after.ID)
		if len(previous) > 0 {
			detail["token_was_of"] = string(previous[0].DriverID)
		}
		return journal.RecordCoalesced(tx, dispatch.AuditDevicePut, string(v.Driver), detail, now)
	})
	return put, err
}

// putDevice writes the device, whose token no other device has. It returns the installation's device before, a zero device for
// none, and after.
func putDevice(tx database.Tx, v dispatch.Device, now time.Time) (before, after dispatch.Device, err error) {
	row := deviceRow{
		ID: dispatch.NewDeviceID(now), DriverID: v.Driver, InstallationID: v.Installation, Platform: v.Platform,
		PushToken: v.PushToken, AppVersion: v.AppVersion, Locale: v.Locale,
		CreatedAt: database.Micros(now), UpdatedAt: database.Micros(now),
	}
	var all []deviceRow
	if err := tx.Where("driver_id = ?", v.Driver).Order("updated_at DESC, id DESC").Find(&all).Error; err != nil {
		return before, after, err
	}
	others := make([]dispatch.DeviceID, 0, len(all))
	for i := range all {
		if all[i].InstallationID != v.Installation {
			others = append(others, all[i].ID)
			continue
		}
		row.ID, before = all[i].ID, all[i].device()
		if all[i].PushToken == v.PushToken {
			row.SuspectedAt = all[i].SuspectedAt
			if all[i].QuarantinedAt != nil {
				row.SuspectedAt = &row.UpdatedAt
			}
		}
		written := tx.Model(&deviceRow{}).Where("id = ?", row.ID).Select("*").Omit("id", "created_at").Updates(&row)
		if written.Error == nil && written.RowsAffected == 0 {
			return before, after, database.ErrConflict // another registration has just taken its token, and deleted it
		}
		return before, row.device(), written.Error
	}
	if len(others) >= maxDevices {
		if err := tx.Where("id IN ?", others[maxDevices-1:]).Delete(&deviceRow{}).Error; err != nil {
			return before, after, err
		}
	}
	return before, row.device(), tx.Create(&row).Error
}

// DeleteDevice deletes the device of an installation of the driver's app, if there is one. ErrDriverNotFound.
func (s *Devices) DeleteDevice(ctx context.Context, driver dispatch.DriverID, installation string) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		var locked []dispatch.DriverID
		if err := tx.Raw("SELECT id FROM drivers WHERE id = ? {for_update}", driver).Scan(&locked).Error; err != nil {
			return database.Unavailable(err)
		}
		if len(locked) == 0 {
			return dispatch.ErrDriverNotFound
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		registered := func() database.Tx { return tx.Where("driver_id = ? AND installation_id = ?", driver, installation) }
		var rows []deviceRow
		if err := registered().Find(&rows).Error; err != nil || len(rows) == 0 {
			return database.Unavailable(err)
		}
		if err := registered().Delete(&deviceRow{}).Error; err != nil {
			return database.Unavailable(err)
		}
		detail := deviceChanges(rows[0].device(), dispatch.Device{})
		detail["device_id"] = string(rows[0].ID)
		if dispatch.CallerFrom(ctx).Actor != string(driver) {
			return journal.Record(tx, dispatch.AuditDeviceDelete, string(driver), detail, now)
		}
		return journal.RecordCoalesced(tx, dispatch.AuditDeviceDelete, string(driver), detail, now)
	})
}

const devicesPerStatement = 200

// RecordVerdict records what the push service's answers say about the devices' tokens, which ends suspicion and quarantine if a push
// was accepted. A device that is suspected or quarantined already is not suspected anew, and only a suspect is quarantined: nothing is
// pushed to it then. RecordVerdict skips a device that has another token by now. It returns how many of the devices, from the first on,
// were judged: less than all of them if so many may not be quarantined now, or with ErrUnavailable or ErrUnknown.
func (s *Devices) RecordVerdict(ctx context.Context, v outbox.Verdict, devices []dispatch.Device) (recorded int, err error) {
	set := "suspected_at = NULL, quarantined_at = NULL WHERE 1 = 1"
	switch v {
	case outbox.Suspected:
		set = "suspected_at = {now} WHERE suspected_at IS NULL AND quarantined_at IS NULL"
	case outbox.Quarantined:
		set = "quarantined_at = {now}, suspected_at = NULL WHERE suspected_at IS NOT NULL"
	case outbox.Trusted:
	}
	for some := range slices.Chunk(devices, devicesPerStatement) {
		var judged []dispatch.Device
		err := s.db.Work.Transact(ctx, func(tx database.Tx) error {
			judged = some
			if v == outbox.Quarantined {
				room, err := s.room(tx)
				if err != nil || room == 0 {
					judged = nil
					return database.Unavailable(err)
				}
				judged = some[:min(room, len(some))]
			}
			ids, pairs := make([]dispatch.DeviceID, len(judged)), make([]any, 0, 2*len(judged))
			for i, v := range judged {
				ids[i] = v.ID
				pairs = append(pairs, v.ID, v.PushToken)
			}
			same := strings.TrimPrefix(strings.Repeat(" OR id = ? AND push_token = ?", len(judged)), " OR ")
			return database.Unavailable(tx.Exec("UPDATE devices {force PRIMARY} SET "+set+" AND id IN ? AND ("+same+")",
				append([]any{ids}, pairs...)...).Error)
		})
		if err != nil {
			return recorded, err
		}
		if recorded += len(judged); len(judged) < len(some) {
			break
		}
	}
	return recorded, nil
}

// room returns how many devices may be quarantined now: within a minute one in a hundred of all, and one at least. A push service that
// calls living tokens dead for a while does little harm then. Instances that ask at the same moment may each use the room.
func (s *Devices) room(tx database.Tx) (int, error) {
	var quarantined int
	err := tx.Raw("SELECT COUNT(*) FROM devices WHERE quarantined_at > {now} - ? AND quarantined_at <= {now}", time.Minute.Microseconds()).
		Row().Scan(&quarantined)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.countedAt) > time.Minute { // the count reads all of an index
		if err := tx.Raw("SELECT COUNT(*) FROM devices").Row().Scan(&s.count); err != nil {
			return 0, err
		}
		s.countedAt = time.Now()
	}
	return max(0, max(1, s.count/100)-quarantined), nil
}

// Devices returns the driver's devices, newest first, and the cursor of the next page, "" after the last.
// ErrDriverNotFound.
func (s *Devices) Devices(ctx context.Context, driver dispatch.DriverID, page dispatch.Page) ([]dispatch.Device, string, error) {
	of := database.Part{Select: "SELECT * FROM devices", Where: "driver_id = ?", Args: []any{driver}}
	l := database.Listing{Kind: database.DeviceList, Parts: []database.Part{of}}
	cursor := func(row *deviceRow) string { return database.Cursor(l.Kind, 0, row.ID) }
	rows, next, err := database.ReadListing(s.db.Serve.With(ctx), l, page, cursor)
	if err == nil && len(rows) == 0 {
		var known bool
		query := s.db.Serve.With(ctx).Raw("SELECT EXISTS (SELECT 1 FROM drivers WHERE id = ?)", driver)
		err = database.Unavailable(query.Row().Scan(&known))
		if err == nil && !known {
			err = dispatch.ErrDriverNotFound
		}
	}
	items := make([]dispatch.Device, len(rows))
	for i := range rows {
		items[i] = rows[i].device()
	}
	return items, next, err
}

// Erase deletes the driver's devices, and their push tokens in the topics' members. It returns how many devices there were.
func Erase(tx database.Tx, id dispatch.DriverID) (int, error) {
	var devices []dispatch.DeviceID
	if err := tx.Raw("SELECT id FROM devices WHERE driver_id = ?", id).Scan(&devices).Error; err != nil {
		return 0, err
	}
	if err := tx.Exec("DELETE FROM devices WHERE driver_id = ?", id).Error; err != nil {
		return 0, err
	}
	names, err := topics.Names(tx)
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(names, devicesPerStatement) {
		former, err := notifiedDevices(tx, id, some)
		if err != nil {
			return 0, err
		}
		if err := topics.Forget(tx, some, slices.Concat(devices, former)); err != nil {
			return 0, err
		}
	}
	return len(devices), nil
}

// notifiedDevices returns the driver's devices that were notified about the topics' dispatches, those too that were removed since.
func notifiedDevices(tx database.Tx, id dispatch.DriverID, topics []string) (devices []dispatch.DeviceID, err error) {
	dispatches := make([]string, len(topics))
	for i, topic := range topics {
		dispatches[i] = strings.TrimPrefix(topic, outbox.TopicOf(""))
	}
	err = tx.Raw(
		`SELECT DISTINCT n.device_id FROM (SELECT dispatch_id, round FROM notifications {force ix_notifications_driver}
			WHERE dispatch_id IN ? GROUP BY dispatch_id, round) r
		JOIN notifications n {force ix_notifications_driver} ON n.dispatch_id = r.dispatch_id AND n.round = r.round AND n.driver_id = ?
		AND n.device_id <> ''`,
		dispatches, id,
	).Scan(&devices).Error
	return devices, err
}

// deviceChanges returns the installation's changed fields; a zero device stands for none.
func deviceChanges(from, to dispatch.Device) journal.Changes {
	c := journal.Changes{}
	journal.AddChange(c, "platform", journal.NullableText(string(from.Platform)), journal.NullableText(string(to.Platform)))
	journal.AddPersonal(c, "push_token", from.PushToken, to.PushToken)
	journal.AddChange(c, "app_version", journal.NullableText(from.AppVersion), journal.NullableText(to.AppVersion))
	journal.AddChange(c, "locale", journal.NullableText(from.Locale), journal.NullableText(to.Locale))
	journal.AddChange(c, "quarantined_at", journal.NullableTime(from.QuarantinedAt), journal.NullableTime(to.QuarantinedAt))
	return c
}
