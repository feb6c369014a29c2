package drivers

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// RevokeTokens revokes every token that was issued to the driver before. The driver's version stays the same, as a
// revocation does not change which dispatches the driver may accept. ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (s *Drivers) RevokeTokens(ctx context.Context, id dispatch.DriverID) (dispatch.Revocation, error) {
	var r dispatch.Revocation
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := Lock(tx, id)
		if err != nil {
			return err
		}
		is := row
		is.revokeTokens(now)
		if err := save(tx, row, is); err != nil {
			return err
		}
		r = is.revocation()
		return journal.Record(tx, dispatch.AuditTokensRevoke, string(id), map[string]any{"generation": r.Generation}, now)
	})
	return r, err
}

// revokeTokens revokes the tokens of the row's generation. A clock that was set back makes it no earlier than the revocation before.
func (row *Row) revokeTokens(now time.Time) {
	row.TokenGeneration++
	if at := database.Micros(now); row.TokensRevokedAt == nil || *row.TokensRevokedAt < at {
		row.TokensRevokedAt = &at
	}
}

// revocation returns the newest revocation of the driver's tokens.
func (row *Row) revocation() dispatch.Revocation {
	r := dispatch.Revocation{Driver: row.ID, Generation: row.TokenGeneration}
	if at := database.OptionalTime(row.TokensRevokedAt); at != nil {
		r.At = *at
	}
	return r
}

// Revocations returns the newest revocation of each driver that has one, from an index of those drivers only. It returns old
// ones, too: a query by time would miss a revocation that was committed late or written by a clock that is behind.
func (s *Drivers) Revocations(ctx context.Context) ([]dispatch.Revocation, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Select("id", "token_generation", "tokens_revoked_at").Where("token_generation > 0").Find(&rows).Error
	if err != nil {
		return nil, database.Unavailable(err)
	}
	all := make([]dispatch.Revocation, len(rows))
	for i := range rows {
		all[i] = rows[i].revocation()
	}
	return all, nil
}

// RecordTokenIssued audits that a token is issued to the driver, and returns the token's generation. ErrDriverNotFound,
// ErrDriverErased. The token must not be issued unless the error is nil.
func (s *Drivers) RecordTokenIssued(ctx context.Context, id dispatch.DriverID) (generation int, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := Lock(tx, id)
		if err != nil {
			return err
		}
		generation = row.TokenGeneration
		if row.ErasedAt != nil {
			return dispatch.ErrDriverErased
		}
		if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
			return err
		}
		return journal.Record(tx, dispatch.AuditDriverToken, string(id), nil, now)
	})
	return generation, err
}
