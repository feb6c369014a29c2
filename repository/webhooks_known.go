package repository

import (
	"context"
	"time"

	"firsttap/webhook"
)

// webhookKnowledge is how long an instance relies on having seen no active endpoint. Meanwhile the completion of an event costs nothing
// for webhooks. So a change that makes an endpoint active is answered after that time: an event after the answer is delivered to it.
const webhookKnowledge = 2 * time.Second

// webhooksMayExist returns false if no endpoint was active at most webhookKnowledge ago. It sends no statement.
func (s *Store) webhooksMayExist() bool {
	if s.options.WebhookBody == nil {
		return false
	}
	l := s.looks.latest.Load()
	return l == nil || l.Endpoints || time.Since(l.SentAt) >= webhookKnowledge
}

// untilActiveIsKnown waits until every instance knows that an endpoint is active, which has just been committed. It waits also when the
// caller is gone: a repeated request is answered from what is stored. It does not wait if all know it of another endpoint. That one must be
// active now: every look of the last seconds has then seen it.
func (s *Store) untilActiveIsKnown(ctx context.Context, id webhook.ID) {
	var known bool
	err := s.general.WithContext(ctx).Raw("SELECT COUNT(*) > 0 FROM webhooks WHERE status = ? AND id <> ? AND updated_at <= "+s.dialect.now()+" - ?",
		webhook.Active, id, webhookKnowledge.Microseconds()).Row().Scan(&known)
	if err == nil && known {
		return
	}
	<-time.After(webhookKnowledge)
}

// wakeWebhooks tells this process that deliveries may be due.
func (s *Store) wakeWebhooks() {
	if s.options.OnWebhooks != nil {
		s.options.OnWebhooks()
	}
}
