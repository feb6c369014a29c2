// Package redisclient makes the Redis clients of this program: from a URL, without retries, with one timeout for everything.
package redisclient
