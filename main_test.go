package main

import (
	"os"
	"testing"

	"firsttap/servertest"
)

// TestMain is also the program itself: instances are processes, so that tests can stop and kill them.
func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(servertest.Main(m))
}
