package webhooks

import (
	"firsttap/repository/database"
	"firsttap/webhook"
)

// What the tests see of the package.

var AttemptsOf = attemptsOf

const DeletedWebhook = deletedWebhook
const EventsAtOnce = eventsAtOnce

func (r *Outbox) FanOut(tx database.Tx, body webhook.Body) (more bool, to []Row, err error) {
	return r.fanOut(tx, body)
}

var FindWebhook = findWebhook

const MaxReplayAhead = maxReplayAhead

var NewDelivery = newDelivery

const RecheckUnwritten = recheckUnwritten
const ReplayPart = replayPart

var TokenHash = tokenHash
