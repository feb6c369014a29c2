// Package fcmtest is a server that speaks the wire of Firebase Cloud Messaging and models the phones behind it, so that
// a sender can be tested and measured without Google: what it does when the service is slow, refuses, hangs or takes a
// message and loses the answer, and what the drivers' phones show afterwards.
//
// In a test:
//
//	fcm, err := fcmtest.Listen()
//	...
//	defer fcm.Close()
//	fcm.Set(func(k *fcmtest.Knobs) { k.Status, k.RetryAfter = 503, "10" })
//	... send with option.WithEndpoint(fcm.URL()+"/v1") and option.WithoutAuthentication() ...
//	if d := fcm.Device("a token"); len(d.Visible) != 1 { ... }
//
// The SDK's topic calls go to https://iid.googleapis.com, whatever the endpoint; an http.RoundTripper that rewrites the
// host brings them here.
//
// Beside a running firsttap, fcmsim serves the same on an address of its own:
//
//	go run ./notify/fcmsim -addr 127.0.0.1:9099 -latency 50ms &
//	FIRSTTAP_FIREBASE_PROJECT=demo FIRSTTAP_FCM_ENDPOINT=http://127.0.0.1:9099/v1 firsttap
//	curl -X PATCH 127.0.0.1:9099/sim/knobs -d '{"status":429,"retry_after":"30"}'
//	curl 127.0.0.1:9099/sim/stats
//
// # The service
//
// Everything is decided when the request has arrived; the latency lies between that and the answer. So a sender that
// dies while it waits has sent. The shares of [Knobs] are exact and not random: of n requests, n times the share, evenly
// spread, counted from the last [Server.Set].
//
// What FCM refuses is refused: no or two targets, a malformed token (here: one with a space, or the word BAD), reserved
// data keys, more than 4,096 bytes of data and text (2,048 to a topic), a ttl that is negative or over four weeks, an
// apns-collapse-id over 64 bytes. Conditions are not modeled and refused too.
//
// # The phone
//
// It shows one notification per android tag, apns-collapse-id or webpush tag, the later instead of the earlier; without
// one, each is another. A message with the event_id and type of an earlier one is a duplicate. A silent message is one
// without text: of the types dispatch.taken, dispatch.canceled and dispatch.expired it removes what is visible of its
// dispatch_id up to its round, and offers of that dispatch up to that round are not shown any more. A phone that is
// offline gets what was sent meanwhile when it is back, unless the message's ttl is over.
package fcmtest
