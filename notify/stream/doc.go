// Package stream is the live stream: events of dispatches that every instance sends to the drivers and the backoffice that
// listen to it, as server-sent events. Redis carries them from the instance that committed to the others.
package stream
