package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"firsttap/dispatch/webhook"
)

// signature holds the headers of Standard Webhooks.
type signature struct {
	id, timestamp, signatures string
}

// sign signs the lease's delivery for an attempt at that time. During a rotation the signatures of both secrets are there, with a space
// between.
func sign(l webhook.Lease, at time.Time) (signature, error) {
	s := signature{id: string(l.Delivery.Event), timestamp: strconv.FormatInt(at.Unix(), 10)}
	secrets := []string{l.Secrets.Current}
	if l.Secrets.Previous != "" && at.Before(l.Secrets.PreviousUntil) {
		secrets = append(secrets, l.Secrets.Previous)
	}
	for i, secret := range secrets {
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return signature{}, fmt.Errorf("the endpoint's secret %d can't be read", i+1) // the library's text may hold a part of it
		}
		one, err := w.Sign(s.id, at, l.Delivery.Body)
		if err != nil {
			return signature{}, err
		}
		if i > 0 {
			s.signatures += " "
		}
		s.signatures += one
	}
	return s, nil
}

func (s signature) set(h http.Header) {
	h.Set(standardwebhooks.HeaderWebhookID, s.id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, s.timestamp)
	h.Set(standardwebhooks.HeaderWebhookSignature, s.signatures)
}
