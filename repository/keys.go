package repository

import (
	"context"

	"gorm.io/gorm/clause"

	"firsttap/dispatch"
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

// PutKey writes a key, in place of the one with its id.
func (s *Store) PutKey(ctx context.Context, k dispatch.Key) error {
	db := s.writes.WithContext(ctx)
	now, err := s.clock(db)
	if err != nil {
		return err
	}
	row := keyRow{ID: k.ID, Name: k.Name, Role: k.Role.String(), Hash: k.Hash, CreatedAt: micros(now)}
	return unavailable(db.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name", "role", "hash"}),
	}).Create(&row).Error)
}

// KeyByHash returns the key in force that has the hash. ErrKeyNotFound.
func (s *Store) KeyByHash(ctx context.Context, hash string) (dispatch.Key, error) {
	var rows []keyRow
	err := s.general.WithContext(ctx).Where("hash = ? AND revoked_at IS NULL", hash).Find(&rows).Error
	if err != nil {
		return dispatch.Key{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Key{}, dispatch.ErrKeyNotFound
	}
	row := rows[0]
	return dispatch.Key{ID: row.ID, Name: row.Name, Role: dispatch.ParseRole(row.Role), Hash: row.Hash}, nil
}
