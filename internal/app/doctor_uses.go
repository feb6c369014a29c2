package app

import "firsttap/internal/redisclient"

// redisUses are the commands that instances send to Redis, with a key or channel of each kind. The scripts' commands are among them: Redis
// asks for the user's right to each.
func redisUses(namespace string) []redisclient.Use {
	const (
		gate  = "dispatch:lock:{dsp_doctor}"
		noSHA = "0000000000000000000000000000000000000000"
	)
	rate, bus := namespace+":rate:{doctor}", namespace+":stream"
	return []redisclient.Use{
		{"ping"},
		{"info", "memory"},
		{"set", gate, "v", "NX", "GET", "PX", "5000"},
		{"get", gate},
		{"del", gate},
		{"eval", "return 1", "1", gate},
		{"evalsha", noSHA, "1", gate},
		{"set", namespace + ":doctor", "v", "GET"},
		{"time"},
		{"get", rate},
		{"psetex", rate, "1000", "v"},
		{"eval", "return 1", "1", rate},
		{"evalsha", noSHA, "1", rate},
		{"xadd", bus, "MAXLEN", "~", "10000", "*", "kind", "mark"},
		{"xread", "COUNT", "1", "BLOCK", "500", "STREAMS", bus, "0-0"},
		{"xrange", bus, "-", "+", "COUNT", "1"},
		{"xrevrange", bus, "+", "-", "COUNT", "1"},
	}
}

// redisLockUses are the commands of the jobs' locks.
func redisLockUses(namespace string) []redisclient.Use {
	const noSHA = "0000000000000000000000000000000000000000"
	key := jobKeysPrefix + ":" + namespace + ":doctor"
	fence, channel := "{"+key+"}:fence", key+":freed"
	return []redisclient.Use{
		{"eval", "return 1", "2", key, fence},
		{"evalsha", noSHA, "2", key, fence},
		{"time"},
		{"get", key},
		{"set", key, "v", "PX", "1000"},
		{"del", key},
		{"pttl", key},
		{"pexpire", key, "1000"},
		{"get", fence},
		{"set", fence, "1", "EX", "1"},
		{"incr", fence},
		{"scan", "0", "MATCH", key, "COUNT", "1000"},
		{"publish", channel, ""},
		{"subscribe", channel},
		{"unsubscribe", channel},
	}
}
