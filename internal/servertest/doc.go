// Package servertest gives tests real servers of their own, and ways to break them.
//
// [StartRedis] and [StartDatabase] start a server on a free port of 127.0.0.1 with its data in a temporary
// folder; the test may kill, freeze and restart it. [RedisURL], [EmptyURL] and [Migrated] are for tests that break
// nothing: they share one server per test process, or use the one that the environment names.
// [StartReplication], [StartMySQLGroup], [StartGalera], [StartRedisSentinel] and [StartReplicatedCluster] start several servers that
// replicate, and one of which takes over from another. A [StartProxy] between a program and a server breaks their connections in the way
// that a test chooses.
//
// A test is skipped if its server isn't installed, and fails if FIRSTTAP_TEST_REQUIRE, a list such as
// "redis,mariadb,mysql", names the server. install.sh installs the servers.
//
// No server outlives the test process, however that ends.
package servertest
