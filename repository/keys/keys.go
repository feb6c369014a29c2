package keys

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// Keys are the API keys, and the trail of the secrets that instances use. It is safe for concurrent use.
type Keys struct{ db *database.DB }

// New returns the keys in a database.
func New(db *database.DB) *Keys { return &Keys{db} }

// Row is a row of the table api_keys.
type Row struct {
	ID        string `gorm:"primaryKey"`
	Name      string
	Role      string
	Hash      string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	RevokedAt *int64
}

// TableName implements gorm.Tabler.
func (Row) TableName() string { return "api_keys" }

// EnsureKey writes a key, or puts it in the place of the one with its id, which stays as a revoked key with another id. It writes nothing
// if that has the same secret. ErrOldSecret if the secret was replaced or revoked before, or is another key's: an instance whose settings
// were forgotten does not bring it back; that is audited.
func (s *Keys) EnsureKey(ctx context.Context, k dispatch.Key) error {
	old := false
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		before, now, err := lockKey(tx, k.ID)
		exists := !errors.Is(err, dispatch.ErrKeyNotFound)
		if exists && (err != nil || before.Hash == k.Hash) {
			return err
		}
		var others int64
		if err := tx.Model(&Row{}).Where("hash = ? AND id <> ?", k.Hash, k.ID).Count(&others).Error; err != nil {
			return database.Unavailable(err)
		}
		detail := keyDetail(k)
		detail["fingerprint"] = dispatch.Fingerprint(k.Hash)
		if old = others > 0; old {
			return journal.Record(tx, dispatch.AuditSecretRefuse, k.ID, detail, now)
		}
		if exists {
			err := tx.Exec("UPDATE api_keys SET id = ?, name = ?, revoked_at = ? WHERE id = ?",
				dispatch.NewUniqueID(dispatch.KeyPrefix, now), before.Name+" (replaced)", database.Micros(now), k.ID).Error
			if err != nil {
				return database.Unavailable(err)
			}
		}
		row := newKeyRow(k, now)
		if exists {
			row.CreatedAt = before.CreatedAt // a replica is known by it
		}
		if err := tx.Create(&row).Error; err != nil {
			return database.Unavailable(err) // a concurrent insert makes this a duplicate, and the next try reads it
		}
		return journal.Record(tx, dispatch.AuditKeyCreate, k.ID, detail, now)
	})
	if err == nil && old {
		err = dispatch.ErrOldSecret
	}
	return err
}

// secretHistory bounds how many replaced secrets of a name are remembered.
const secretHistory = 100

// UseSecret puts the secret with that fingerprint in force unless it was replaced before, and returns the fingerprint of the one that it
// replaces, "" for none. The trail remembers the fingerprints. ErrOldSecret if the secret was replaced before; that is audited.
func (s *Keys) UseSecret(ctx context.Context, name, fingerprint string) (replaced string, err error) {
	old := false
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		known, err := SecretsInTrail(tx, name)
		if err != nil || len(known) > 0 && known[0] == fingerprint {
			return err
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		detail := map[string]any{"fingerprint": fingerprint}
		if old = slices.Contains(known, fingerprint); old {
			return journal.Record(tx, dispatch.AuditSecretRefuse, name, detail, now)
		}
		if len(known) > 0 {
			replaced = known[0]
		}
		return journal.Record(tx, dispatch.AuditSecretChange, name, detail, now)
	})
	if err == nil && old {
		err = dispatch.ErrOldSecret
	}
	return replaced, err
}

// SecretsInTrail returns the fingerprints that secrets of that name have had, the one in force first.
func SecretsInTrail(db database.Tx, name string) (known []string, err error) {
	var details []string
	err = db.Model(&journal.AuditRow{}).Where("target = ? AND action = ?", name, dispatch.AuditSecretChange).
		Order("id DESC").Limit(secretHistory).Pluck("detail", &details).Error
	for _, text := range details {
		var detail struct{ Fingerprint string }
		if err := json.Unmarshal([]byte(text), &detail); err != nil {
			return nil, err
		}
		known = append(known, detail.Fingerprint)
	}
	return known, database.Unavailable(err)
}

// AddKey writes a new key. A key with its id says that the request was carried out before: AddKey returns that key as it is now;
// ErrKeyReused if it has another secret.
func (s *Keys) AddKey(ctx context.Context, k dispatch.Key) (dispatch.KeyRecord, error) {
	var row Row
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) (err error) {
		var now time.Time
		row, now, err = lockKey(tx, k.ID)
		switch {
		case err == nil && row.Hash != k.Hash:
			return idempotency.ErrKeyReused
		case !errors.Is(err, dispatch.ErrKeyNotFound):
			return err
		}
		row = newKeyRow(k, now)
		if err := journal.Record(tx, dispatch.AuditKeyCreate, k.ID, keyDetail(k), now); err != nil {
			return err
		}
		return database.Unavailable(tx.Create(&row).Error)
	})
	return row.record(), err
}

// RevokeKey revokes a key. Revoking it again changes nothing. ErrKeyNotFound, ErrFirstKey.
func (s *Keys) RevokeKey(ctx context.Context, id string) error {
	if id == dispatch.FirstKeyID {
		return dispatch.ErrFirstKey
	}
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := lockKey(tx, id)
		if err != nil || row.RevokedAt != nil {
			return err
		}
		if err := tx.Model(&Row{}).Where("id = ?", id).Update("revoked_at", database.Micros(now)).Error; err != nil {
			return database.Unavailable(err)
		}
		return journal.Record(tx, dispatch.AuditKeyRevoke, id, keyDetail(row.key()), now)
	})
}

// Keys returns the keys, newest first, revoked ones too, and the cursor of the next page, "" after the last.
func (s *Keys) Keys(ctx context.Context, page dispatch.Page) ([]dispatch.KeyRecord, string, error) {
	all := database.Part{Select: "SELECT * FROM api_keys", Where: "1 = 1"}
	l := database.Listing{Kind: database.KeyList, Prefix: dispatch.KeyPrefix, Parts: []database.Part{all}}
	cursor := func(row *Row) string { return database.Cursor(l.Kind, 0, row.ID) }
	rows, next, err := database.ReadListing(s.db.Serve.With(ctx), l, page, cursor)
	items := make([]dispatch.KeyRecord, len(rows))
	for i := range rows {
		items[i] = rows[i].record()
	}
	return items, next, err
}

// lockKey locks the key's row until tx ends, and returns it and the database's time. ErrKeyNotFound, with the time.
func lockKey(tx database.Tx, id string) (Row, time.Time, error) {
	var rows []Row
	if err := tx.Raw("SELECT * FROM api_keys WHERE id = ? {for_update}", id).Scan(&rows).Error; err != nil {
		return Row{}, time.Time{}, database.Unavailable(err)
	}
	now, err := database.Clock(tx) // after the wait for the row's lock
	if err != nil {
		return Row{}, now, err
	}
	if len(rows) == 0 {
		return Row{}, now, dispatch.ErrKeyNotFound
	}
	return rows[0], now, nil
}

func newKeyRow(k dispatch.Key, now time.Time) Row {
	return Row{ID: k.ID, Name: k.Name, Role: k.Role.String(), Hash: k.Hash, CreatedAt: database.Micros(now)}
}

func (row *Row) key() dispatch.Key {
	return dispatch.Key{ID: row.ID, Name: row.Name, Role: dispatch.ParseRole(row.Role), Hash: row.Hash}
}

func (row *Row) record() dispatch.KeyRecord {
	return dispatch.KeyRecord{Key: row.key(), CreatedAt: database.Time(row.CreatedAt), RevokedAt: database.OptionalTime(row.RevokedAt)}
}

// keyDetail is the detail of a key's audit entries.
func keyDetail(k dispatch.Key) map[string]any {
	return map[string]any{"name": k.Name, "role": k.Role.String()}
}

// KeyByHash returns the key with the hash unless it is revoked. ErrKeyNotFound.
func (s *Keys) KeyByHash(ctx context.Context, hash string) (dispatch.Key, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Where("hash = ? AND revoked_at IS NULL", hash).Find(&rows).Error
	if err != nil {
		return dispatch.Key{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Key{}, dispatch.ErrKeyNotFound
	}
	return rows[0].key(), nil
}

// KeyHashes returns the identifiers of the newest keys that are not revoked, by their hashes. ErrUnavailable.
func (s *Keys) KeyHashes(ctx context.Context, most int) (map[string]string, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Select("id, hash").Where("revoked_at IS NULL").Order("id DESC").Limit(most).Find(&rows).Error
	ids := make(map[string]string, len(rows))
	for _, row := range rows {
		ids[row.Hash] = row.ID
	}
	return ids, database.Unavailable(err)
}

// RecordSignIn audits a sign-in with the key from the address, in one entry a minute. ErrKeyNotFound. The sign-in must be
// refused unless the error is nil.
func (s *Keys) RecordSignIn(ctx context.Context, key, address string) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		_, now, err := lockKey(tx, key)
		if err != nil {
			return err
		}
		return journal.RecordCoalesced(tx, dispatch.AuditSignIn, key, map[string]any{"address": address}, now)
	})
}

// RecordRefusedSignIns audits refused sign-ins, in one entry for each address.
func (s *Keys) RecordRefusedSignIns(ctx context.Context, all []dispatch.RefusedSignIns) error {
	ctx = dispatch.WithCaller(ctx, dispatch.Caller{Actor: dispatch.AuditUnknown})
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		for _, r := range all {
			detail := map[string]any{"failed": r.Failed, "limited": r.Limited, "doors": r.ByMethod}
			if err := journal.Record(tx, dispatch.AuditSignInRefused, r.Address, detail, now); err != nil {
				return err
			}
		}
		return nil
	})
}
