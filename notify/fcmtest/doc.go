// Package fcmtest is a server that speaks the protocol of Firebase Cloud Messaging and models the phones behind it. It tests
// and measures a sender without Google: what the sender does when the service is slow, refuses, hangs, or accepts a message
// and loses the answer, and what the drivers' phones show afterwards.
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
// A server is also an http.RoundTripper, which needs no connection: in a bubble of testing/synctest, pass [New]'s server to
// the sender as its transport.
//
// The SDK's topic calls go to https://iid.googleapis.com, whatever the endpoint; an http.RoundTripper that rewrites the
// host brings them here.
//
// Command fcmsim serves the same on an address of its own, for a running firsttap:
//
//	go run ./notify/fcmsim -addr 127.0.0.1:9099 -latency 50ms &
//	FIRSTTAP_FIREBASE_PROJECT=demo FIRSTTAP_FCM_ENDPOINT=http://127.0.0.1:9099/v1 firsttap
//	curl -X PATCH 127.0.0.1:9099/sim/knobs -d '{"status":429,"retry_after":"30"}'
//	curl 127.0.0.1:9099/sim/stats
//
// # The service
//
// The server decides each request when it has arrived, and answers after the latency. So a sender that dies while it waits
// has sent its message. The shares of [Knobs] are exact and not random: of n requests, n times the share, evenly spread,
// counted from the last [Server.Set].
//
// The server refuses what FCM refuses: no or two targets, a malformed token (here: one with a space, or the word BAD),
// reserved data keys, more than 4,096 bytes of data and text (2,048 to a topic), a ttl that is negative or over four weeks,
// an apns-collapse-id over 64 bytes. It does not model conditions, and refuses them too.
//
// # The phone
//
// A notification replaces an earlier one with the same android tag, apns-collapse-id or webpush tag; without a tag it
// replaces none. A message with the event_id and type of an earlier one is a duplicate. A silent message is one without
// text: with the type dispatch.taken, dispatch.canceled or dispatch.expired it removes the offers of its dispatch_id up to
// its round, and later offers up to that round are not shown. A phone that was offline gets the messages sent meanwhile
// when it is back, unless their ttl has ended.
package fcmtest
