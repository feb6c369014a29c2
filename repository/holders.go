package repository

import (
	"context"

	"firsttap/dispatch"
)

// Holders returns who has each of the dispatches, in one statement. Of one that is not there it says nothing.
func (s *Store) Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.Holding, error) {
	var rows []struct {
		ID         dispatch.ID
		Status     dispatch.Status
		Round      int
		AcceptedBy *dispatch.DriverID
	}
	err := s.general.WithContext(ctx).Raw("SELECT id, status, round, accepted_by FROM dispatches WHERE id IN ?", ids).Scan(&rows).Error
	if err != nil {
		return nil, unavailable(err)
	}
	found := make(map[dispatch.ID]dispatch.Holding, len(rows))
	for _, row := range rows {
		h := dispatch.Holding{Status: row.Status, Round: row.Round}
		if row.AcceptedBy != nil {
			h.Driver = *row.AcceptedBy
		}
		found[row.ID] = h
	}
	return found, nil
}
