// Package topics keeps the topics of the push service, and which devices are to be subscribed to them. It owns the tables topics and
// topic_members.
package topics
