package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// RevokeTokens ends every token that the driver was issued before. The driver's version stays: a revocation changes nothing
// about who may take what. ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (s *Store) RevokeTokens(ctx context.Context, id dispatch.DriverID) (dispatch.Revocation, error) {
	var r dispatch.Revocation
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		r = dispatch.Revocation{Driver: id, Generation: row.TokenGeneration + 1, At: now}
		if before := fromOptionalMicros(row.TokensRevokedAt); before != nil && before.After(now) {
			r.At = *before // the clock was set back
		}
		err = tx.Exec("UPDATE drivers SET token_generation = ?, tokens_revoked_at = ? WHERE id = ?", r.Generation, micros(r.At), id).Error
		if err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditTokensRevoke, string(id), map[string]any{"generation": r.Generation}, now)
	})
	return r, err
}

// Revocations returns the newest revocation of each driver who has ever had one, by an index that holds nobody else. Not only
// those of late: a look by time would miss one that was written by a clock that is behind, or committed late.
func (s *Store) Revocations(ctx context.Context) ([]dispatch.Revocation, error) {
	var rows []driverRow
	err := s.general.WithContext(ctx).Select("id", "token_generation", "tokens_revoked_at").Where("token_generation > 0").Find(&rows).Error
	if err != nil {
		return nil, unavailable(err)
	}
	all := make([]dispatch.Revocation, len(rows))
	for i := range rows {
		all[i] = dispatch.Revocation{Driver: rows[i].ID, Generation: rows[i].TokenGeneration}
		if at := fromOptionalMicros(rows[i].TokensRevokedAt); at != nil {
			all[i].At = *at
		}
	}
	return all, nil
}

// NoteToken writes that the driver is given a token, and returns the token's generation. ErrDriverNotFound. Unless the error is
// nil, nobody may get the token.
func (s *Store) NoteToken(ctx context.Context, id dispatch.DriverID) (generation int, err error) {
	err = s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		generation = row.TokenGeneration
		if applied, err := alreadyApplied(tx, auditProof); applied || err != nil {
			return err
		}
		return audit(tx, dispatch.AuditDriverToken, string(id), nil, now)
	})
	return generation, err
}
