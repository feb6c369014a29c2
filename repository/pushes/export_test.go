package pushes

import (
	"firsttap/dispatch"
	"firsttap/repository/database"
)

// What the tests see of the package.

const DueBatch = dueBatch

func (r *Outbox) DueNotifications(tx database.Tx, limit int) ([]dispatch.NotificationID, error) {
	return r.dueNotifications(tx, limit)
}

const FirstPart = firstPart
