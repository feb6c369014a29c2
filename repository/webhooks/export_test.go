package webhooks

import (
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
)

// What the tests see of the package.

const EventsAtOnce = eventsAtOnce

func (r *Outbox) FanOut(tx database.Tx, body webhook.Body) (more bool, to []Row, err error) {
	return r.fanOut(tx, body)
}

var FindWebhook = findWebhook

var NewDelivery = newDelivery

const RecheckUnwritten = recheckUnwritten
const ReplayPart = replayPart

var AuditedURL = auditedURL
