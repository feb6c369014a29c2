package webhooks

import (
	"os"
	"testing"

	"firsttap/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
