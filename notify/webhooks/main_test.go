package webhooks

import (
	"os"
	"testing"

	"firsttap/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
