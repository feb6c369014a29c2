package app

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"firsttap/internal/config"
	"firsttap/internal/telemetry"
)

// Ready is what an instance tells once it is ready.
type Ready struct {
	URL        string
	Config     config.Config
	Migrations int  // how many the start has applied
	Created    bool // the database was empty: those were all that there are
}

// announce says where the instance listens and what it has made: to a terminal with the first steps, to anything else in one line of
// JSON, whatever FIRSTTAP_LOG is. It shows no secret. It writes once, so that no line of the log gets in between.
func (r Ready) announce(stdout io.Writer) {
	listens, database := "FirstTap listens on "+r.URL, withoutPassword(r.Config.DatabaseURL)
	serves := r.Config.Has(config.RoleAPI)
	if !telemetry.IsTerminal(stdout) {
		log := telemetry.NewLogger(stdout, slog.LevelInfo).With("roles", strings.Join(r.Config.Roles, ","))
		if serves {
			log = log.With("console", r.URL+"/console/", "docs", r.URL+"/docs")
		}
		log.Info(listens, "database", database, "database_created", r.Created, "migrations_applied", r.Migrations,
			"secret_files", r.Config.SecretFiles, "secret_files_created", r.Config.NewSecretFiles)
		return
	}
	steps := []step{{"roles", strings.Join(r.Config.Roles, ", "), ""}}
	if serves {
		steps = firstSteps(r.URL, r.Config)
	}
	steps = append(steps, step{"database", database, r.madeNow()})
	for _, file := range r.Config.SecretFiles {
		note := "only your account can read it"
		if slices.Contains(r.Config.NewSecretFiles, file) {
			note = "made now; " + note
		}
		steps = append(steps, step{"secret", file, note})
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n\n", listens)
	printSteps(&out, steps)
	fmt.Fprint(&out, "\nCtrl-C ends it.\n\n")
	_, _ = stdout.Write(out.Bytes()) // a terminal that is gone is no reason to stop
}

func (r Ready) madeNow() string {
	switch {
	case r.Created:
		return fmt.Sprintf("made now, with %d migrations", r.Migrations)
	case r.Migrations > 0:
		return fmt.Sprintf("%d migrations applied now", r.Migrations)
	}
	return ""
}

// usualURL is the URL of a service with the usual settings.
const usualURL = "http://localhost:8080"

// step is a line that a newcomer can act on: what it is, a link, command or file, and a note.
type step struct{ name, what, note string }

// firstSteps are those for a service at url.
func firstSteps(url string, c config.Config) []step {
	signIn := "sign in with FIRSTTAP_ADMIN_KEY"
	if file := c.AdminKeyFile(); file != "" {
		signIn = "sign in with the key in " + file
	}
	race := invocation(os.Args[0]) + " race --drivers 5"
	if url != usualURL { // where the race looks for the service
		race += " --url " + url
	}
	return []step{
		{"console", url + "/console/", signIn},
		{"API", url + "/docs", "to read and try"},
		{"a race", race, "five drivers tap together, and one wins"},
	}
}

// printSteps prints the steps in columns.
func printSteps(w io.Writer, steps []step) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, s := range steps {
		line := "  " + s.name + "\t" + s.what
		if s.note != "" {
			line += "\t" + s.note
		}
		fmt.Fprintln(columns, line)
	}
	_ = columns.Flush() // w is a buffer, or the error is the next print's too
}

// invocation is what to type to run the program that runs from path: "go run" builds one that it does not keep.
func invocation(path string) string {
	if strings.Contains(path, "/go-build") {
		return "go run ."
	}
	return path
}

// urlOf returns the URL of the API that listens at addr.
func urlOf(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// withoutPassword returns the database's URL without user, password and options; for SQLite it is the file.
func withoutPassword(databaseURL string) string {
	if file, ok := strings.CutPrefix(databaseURL, "sqlite://"); ok {
		return file
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "" // config refuses it
	}
	return u.Scheme + "://" + u.Host + u.Path
}
