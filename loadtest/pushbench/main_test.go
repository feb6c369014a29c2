package pushbench

import (
	"os"
	"testing"

	"firsttap/app"
	"firsttap/systemtest"
)

func TestMain(m *testing.M) { os.Exit(systemtest.Main(m, app.SignalContext, app.RunWith)) }
