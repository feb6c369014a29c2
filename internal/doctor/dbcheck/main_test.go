package dbcheck_test

import (
	"os"
	"testing"

	"firsttap/repository/repositorytest"
)

func TestMain(m *testing.M) { os.Exit(repositorytest.Main(m)) }
