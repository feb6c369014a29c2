package dbcheck

import (
	"context"
	"fmt"
	"slices"

	"firsttap/dispatch"
	"firsttap/internal/doctor"
	"firsttap/repository/database"
	"firsttap/repository/keys"
)

// secrets compares an instance's secrets with those in force: a server whose settings were forgotten has one that was replaced.
func (e *examination) secrets(ctx context.Context, own Secrets) doctor.Finding {
	const next = `give this server what the others have; docs/callers.md, "Replacing the first admin key", says how`
	pool, err := database.MySQLPool(e.db)
	if err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	db := pool.With(ctx)
	var found []keys.Row
	err = db.Where("id = ? OR hash = ?", dispatch.FirstKeyID, own.AdminKey).Find(&found).Error
	known, trailErr := keys.SecretsInTrail(db, own.JWTName)
	const noSuchTable = 1146
	switch {
	case database.IsServerError(err, noSuchTable) || database.IsServerError(trailErr, noSuchTable):
		return doctor.Good("no instance has used any yet")
	case err != nil:
		return doctor.Failure(err.Error(), "see the server's error")
	case trailErr != nil:
		return doctor.Failure(trailErr.Error(), "see the server's error")
	}
	inForce, old := "", false
	for _, k := range found {
		if k.ID == dispatch.FirstKeyID {
			inForce = k.Hash
		} else {
			old = true
		}
	}
	key := dispatch.Fingerprint(own.AdminKey)
	switch {
	case old:
		return doctor.Failure(fmt.Sprintf("FIRSTTAP_ADMIN_KEY (fingerprint %s) was replaced or revoked; %s is in force",
			key, dispatch.Fingerprint(inForce)), next)
	case slices.Index(known, own.JWT) > 0:
		return doctor.Failure(fmt.Sprintf("%s (fingerprint %s) was replaced; %s is in force", own.JWTName, own.JWT, known[0]), next)
	case len(known) > 0 && known[0] != own.JWT && known[0] != own.PreviousJWT:
		return doctor.Failure(fmt.Sprintf("%s (fingerprint %s) is not the one in force, %s, which is not %s_PREVIOUS either: "+
			"instances would refuse each other's tokens", own.JWTName, own.JWT, known[0], own.JWTName), next)
	case inForce != "" && inForce != own.AdminKey:
		return doctor.Doubt(fmt.Sprintf("FIRSTTAP_ADMIN_KEY (fingerprint %s) is new: the next start puts it in the place of %s",
			key, dispatch.Fingerprint(inForce)), "give every server the new one before the first of them starts")
	}
	return doctor.Good(fmt.Sprintf("those in force: admin key %s, JWT secret %s", key, own.JWT))
}
