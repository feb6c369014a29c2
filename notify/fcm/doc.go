// Package fcm sends pushes through Firebase Cloud Messaging, one attempt a call, and classifies what became of each.
package fcm
