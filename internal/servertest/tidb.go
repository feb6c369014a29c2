package servertest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// findTiDB takes the program in FIRSTTAP_TIDB, or where tidb.sh builds it.
func findTiDB() (engine, error) {
	path := cmp.Or(os.Getenv("FIRSTTAP_TIDB"), "/var/cache/firsttap/tidb/tidb-server")
	if _, err := os.Stat(path); err != nil {
		return engine{}, fmt.Errorf("%w; internal/servertest/tidb.sh builds it", err)
	}
	out, err := exec.Command(path, "-V").CombinedOutput()
	if err != nil {
		return engine{}, fmt.Errorf("%s -V: %w\n%s", path, err, out)
	}
	found := tidbVersion.FindSubmatch(out)
	if found == nil {
		return engine{}, fmt.Errorf("%s -V says %q", path, out)
	}
	return engine{name: tidb, version: string(found[1]), daemon: []string{path}}, nil
}

var tidbVersion = regexp.MustCompile(`Release Version: (\S+)`)

// tidbProgram serves from the embedded store, a folder that one process has open.
func tidbProgram(e engine) program {
	return program{
		name: e.name, probe: probeDatabase,
		command: func(s *server) []string {
			return slices.Concat(e.daemon, []string{
				"-store=unistore", "-path=" + s.data(), "-temp-dir=" + filepath.Join(s.dir, "tmp"),
				"-host=127.0.0.1", "-P=" + strconv.Itoa(s.port), "-socket=" + filepath.Join(s.dir, "socket"),
				"-report-status=false", "-L=error",
			})
		},
	}
}
