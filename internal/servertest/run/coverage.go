package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// count makes whatever is compiled from now on count which statements of the module run. Test programs, and the instances that they start
// and do not kill, write that into the folder when they end. It returns the folder's absolute path.
func count(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, errors.Join(
		os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.Setenv("GOCOVERDIR", dir),
		os.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -cover -covermode=atomic -coverpkg="+module+"/..."),
	)
}

// printCoverage prints which part of each package's statements has run.
func printCoverage(ctx context.Context, dir string) error {
	percent, err := goOutput(ctx, "tool", "covdata", "percent", "-i", dir)
	fmt.Print(percent)
	return err
}
