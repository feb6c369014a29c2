package repository

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

type keyRow struct {
	ID        string `gorm:"primaryKey"`
	Name      string
	Role      string
	Hash      string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	RevokedAt *int64
}

func (keyRow) TableName() string { return "api_keys" }

// EnsureKey writes a key, or puts it in the place of the one with its id, which is kept as a revoked key. It writes nothing if the same
// key is stored already. ErrOldSecret if the key was replaced or revoked before, or is another's: an instance whose settings were forgotten does
// not bring it back; that is audited.
func (s *Store) EnsureKey(ctx context.Context, k dispatch.Key) error {
	old := false
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		before, now, err := s.lockKey(tx, k.ID)
		if err != nil && !errors.Is(err, dispatch.ErrKeyNotFound) {
			return err
		}
		if err == nil && before.key() == k {
			return nil
		}
		var others int64
		if err := tx.Model(&keyRow{}).Where("hash = ? AND id <> ?", k.Hash, k.ID).Count(&others).Error; err != nil {
			return unavailable(err)
		}
		detail := keyDetail(k)
		detail["fingerprint"] = dispatch.Fingerprint(k.Hash)
		if old = others > 0; old {
			return audit(tx, dispatch.AuditSecretRefuse, k.ID, detail, now)
		}
		if err != nil {
			err = tx.Create(newKeyRow(k, now)).Error // a concurrent insert makes this a duplicate, and the next try reads it
		} else {
			err = s.replaceKey(tx, before, k, now)
		}
		if err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditKeyCreate, k.ID, detail, now)
	})
	if err == nil && old {
		err = dispatch.ErrOldSecret
	}
	return err
}

// replaceKey puts k in the place of the key with its id. If it has another secret, the replaced one stays as a revoked key.
func (s *Store) replaceKey(tx *gorm.DB, before keyRow, k dispatch.Key, now time.Time) error {
	err := tx.Model(&keyRow{}).Where("id = ?", k.ID).Updates(map[string]any{"name": k.Name, "role": k.Role.String(), "hash": k.Hash}).Error
	if err != nil || before.Hash == k.Hash {
		return err
	}
	ended := micros(now)
	before.ID, before.Name, before.RevokedAt = dispatch.NewUniqueID(dispatch.KeyPrefix, now), before.Name+" (replaced)", &ended
	return tx.Create(&before).Error
}

// secretHistory bounds how many replaced secrets of a name are remembered.
const secretHistory = 100

// UseSecret puts the secret with that fingerprint in force unless it was replaced before, and returns the fingerprint of the one that it
// replaces, "" for none. The trail remembers the fingerprints. ErrOldSecret if the secret was replaced before; that is audited.
func (s *Store) UseSecret(ctx context.Context, name, fingerprint string) (replaced string, err error) {
	old := false
	err = s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		known, err := secretsInTrail(tx, name)
		if err != nil || len(known) > 0 && known[0] == fingerprint {
			return err
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		detail := map[string]any{"fingerprint": fingerprint}
		if old = slices.Contains(known, fingerprint); old {
			return audit(tx, dispatch.AuditSecretRefuse, name, detail, now)
		}
		if len(known) > 0 {
			replaced = known[0]
		}
		return audit(tx, dispatch.AuditSecretChange, name, detail, now)
	})
	if err == nil && old {
		err = dispatch.ErrOldSecret
	}
	return replaced, err
}

// secretsInTrail returns the fingerprints that secrets of that name have had, the one in force first.
func secretsInTrail(db *gorm.DB, name string) (known []string, err error) {
	var details []string
	err = db.Model(&auditRow{}).Where("target = ? AND action = ?", name, dispatch.AuditSecretChange).
		Order("id DESC").Limit(secretHistory).Pluck("detail", &details).Error
	for _, text := range details {
		var detail struct{ Fingerprint string }
		if err := json.Unmarshal([]byte(text), &detail); err != nil {
			return nil, err
		}
		known = append(known, detail.Fingerprint)
	}
	return known, unavailable(err)
}

// AddKey writes a new key. If the request was carried out before, AddKey returns its key as it is now; ErrKeyReused if that
// key has another secret.
func (s *Store) AddKey(ctx context.Context, k dispatch.Key) (dispatch.KeyRecord, error) {
	var record dispatch.KeyRecord
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		applied, err := alreadyApplied(tx, auditProof)
		if err != nil {
			return err
		}
		if applied {
			row, _, err := s.lockKey(tx, k.ID)
			if err == nil && row.Hash != k.Hash {
				return idempotency.ErrKeyReused
			}
			record = row.record()
			return err
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		row := newKeyRow(k, now)
		record = row.record()
		if err := audit(tx, dispatch.AuditKeyCreate, k.ID, keyDetail(k), now); err != nil {
			return err
		}
		return unavailable(tx.Create(row).Error)
	})
	return record, err
}

// RevokeKey revokes a key. Revoking it again changes nothing. ErrKeyNotFound, ErrFirstKey.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	if id == dispatch.FirstKeyID {
		return dispatch.ErrFirstKey
	}
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		row, now, err := s.lockKey(tx, id)
		if err != nil || row.RevokedAt != nil {
			return err
		}
		if err := tx.Model(&keyRow{}).Where("id = ?", id).Update("revoked_at", micros(now)).Error; err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditKeyRevoke, id, keyDetail(row.key()), now)
	})
}

// Keys returns the keys, newest first, revoked ones too, and the cursor of the next page, "" after the last.
func (s *Store) Keys(ctx context.Context, page dispatch.Page) ([]dispatch.KeyRecord, string, error) {
	rows, next, err := newestFirst(s.serve.WithContext(ctx), keyList, "id", page, func(row *keyRow) string { return row.ID })
	items := make([]dispatch.KeyRecord, len(rows))
	for i := range rows {
		items[i] = rows[i].record()
	}
	return items, next, err
}

// lockKey locks the key's row until tx ends, and returns it and the database's time. ErrKeyNotFound, with the time.
func (s *Store) lockKey(tx *gorm.DB, id string) (keyRow, time.Time, error) {
	var rows []keyRow
	if err := tx.Raw("SELECT * FROM api_keys WHERE id = ? {for_update}", id).Scan(&rows).Error; err != nil {
		return keyRow{}, time.Time{}, unavailable(err)
	}
	now, err := s.clock(tx) // after the wait for the row's lock
	if err != nil {
		return keyRow{}, now, err
	}
	if len(rows) == 0 {
		return keyRow{}, now, dispatch.ErrKeyNotFound
	}
	return rows[0], now, nil
}

func newKeyRow(k dispatch.Key, now time.Time) *keyRow {
	return &keyRow{ID: k.ID, Name: k.Name, Role: k.Role.String(), Hash: k.Hash, CreatedAt: micros(now)}
}

func (row *keyRow) key() dispatch.Key {
	return dispatch.Key{ID: row.ID, Name: row.Name, Role: dispatch.ParseRole(row.Role), Hash: row.Hash}
}

func (row *keyRow) record() dispatch.KeyRecord {
	return dispatch.KeyRecord{Key: row.key(), CreatedAt: fromMicros(row.CreatedAt), RevokedAt: fromOptionalMicros(row.RevokedAt)}
}

// keyDetail is the detail of a key's audit entries.
func keyDetail(k dispatch.Key) map[string]any {
	return map[string]any{"name": k.Name, "role": k.Role.String()}
}

// KeyByHash returns the key with the hash unless it is revoked. ErrKeyNotFound.
func (s *Store) KeyByHash(ctx context.Context, hash string) (dispatch.Key, error) {
	var rows []keyRow
	err := s.serve.WithContext(ctx).Where("hash = ? AND revoked_at IS NULL", hash).Find(&rows).Error
	if err != nil {
		return dispatch.Key{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Key{}, dispatch.ErrKeyNotFound
	}
	return rows[0].key(), nil
}

// KeyHashes returns the identifiers of the newest keys that are not revoked, by their hashes. Calls wait for each other, so that requests with
// invalid keys take one connection.
func (s *Store) KeyHashes(ctx context.Context, most int) (map[string]string, error) {
	select {
	case s.doors <- struct{}{}:
		defer func() { <-s.doors }()
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
	var rows []keyRow
	err := s.serve.WithContext(ctx).Select("id, hash").Where("revoked_at IS NULL").Order("id DESC").Limit(most).Find(&rows).Error
	ids := make(map[string]string, len(rows))
	for _, row := range rows {
		ids[row.Hash] = row.ID
	}
	return ids, unavailable(err)
}
