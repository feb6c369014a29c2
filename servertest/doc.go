// Package servertest gives tests real servers of their own, and ways to break them.
//
// [StartRedis], [StartMariaDB] and [StartMySQL] start a server on a free port of 127.0.0.1 with its data in a temporary
// folder; the test may kill, freeze and restart it. [RedisURL], [MariaDBURL] and [MySQLURL] are for tests that break
// nothing: they share one server per test process, or use the one the environment names. [StartMariaDBPair] is a primary
// with its replica, which may take its place. [StartProxy] stands between a
// program and a server and breaks the connection in the way a test asks for.
//
// A test whose server isn't installed is skipped, unless FIRSTTAP_TEST_REQUIRE, a list such as "redis,mariadb,mysql",
// names the server: then the test fails. install.sh installs what is missing.
//
// No server outlives the test process, however that ends.
package servertest
