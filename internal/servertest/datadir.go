package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// newDataDir makes dir a fresh data directory of the engine. Filling one takes seconds, so that is done once per user
// and version, and copied.
func newDataDir(e engine, dir string) error {
	template, err := dataTemplate(e)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // of a start on a port that was taken
		return err
	}
	out, err := exec.Command("cp", "-a", "--reflink=auto", template, dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s: %w\n%s", template, err, out)
	}
	return nil
}

// dataTemplate is the filled data directory to copy from. Several processes may call it at the same time: each that
// finds none builds one, and the first to finish renames its own into place.
func dataTemplate(e engine) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "firsttap")
	template := filepath.Join(cache, e.name+"-"+e.version)
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	built := filepath.Join(work, "data")
	if err := fillDataDir(e, built); err != nil {
		return "", err
	}
	if err := os.Rename(built, template); err != nil {
		if _, statErr := os.Stat(template); statErr != nil {
			return "", err
		}
	}
	return template, nil
}

func fillDataDir(e engine, dir string) error {
	log := dir + ".log"
	command := slices.Concat(e.install, places(dir, filepath.Dir(dir)))
	install, err := startChild(command, filepath.Dir(dir), log)
	if err != nil {
		return err
	}
	<-install.exited
	if !install.success {
		return fmt.Errorf("%s can't fill a data directory:\n%s", e.name, tail(log))
	}
	// The server's identity: each copy makes its own.
	if err := os.Remove(filepath.Join(dir, "auto.cnf")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// places returns the flags for a server's data and temporary tables. Each server needs a temporary folder of its own: a
// MariaDB that starts removes the temporary tables that it finds there, even those of a running server.
func places(data, temporary string) []string {
	return []string{"--datadir=" + data, "--tmpdir=" + temporary}
}
