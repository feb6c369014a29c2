package repository

import (
	"context"

	"firsttap/dispatch"
)

// DriverByFirebaseUID returns the driver that has the uid. ErrDriverNotFound.
func (s *Store) DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error) {
	var rows []driverRow
	err := s.general.WithContext(ctx).Select("id", "firebase_uid").Where("firebase_uid = ?", uid).Find(&rows).Error
	if err != nil {
		return "", unavailable(err)
	}
	for _, row := range rows {
		if value(row.FirebaseUID) == uid { // byte for byte, whatever the column's collation
			return row.ID, nil
		}
	}
	return "", dispatch.ErrDriverNotFound
}
