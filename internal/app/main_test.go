package app

import (
	"os"
	"testing"

	"firsttap/systemtest"
)

func TestMain(m *testing.M) { os.Exit(systemtest.Main(m, SignalContext, Run)) }
