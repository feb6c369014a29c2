package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"firsttap/internal/auth"
	"firsttap/internal/config"
	"firsttap/internal/doctor"
	"firsttap/internal/doctor/dbcheck"
	"firsttap/internal/redisclient"
	"firsttap/internal/telemetry"
)

const (
	// A check of the doctor command takes checkTime at most, and all of them checksTime.
	checkTime  = 6 * time.Second
	checksTime = time.Minute
)

// doctorCommand runs "firsttap doctor": it checks the settings and all that they name, changes nothing there, and returns an error if
// something would fail in production. Wrong settings do not keep it from checking what the others name.
func doctorCommand(ctx context.Context, args []string, lookup func(string) (string, bool), names []string, timeouts config.Timeouts,
	stdout io.Writer) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(stdout)
	asJSON := flags.Bool("json", false, "print one JSON object")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("doctor takes flags only, not %q", flags.Arg(0))
	}
	c, err := readConfig(lookup, names...)
	c.Timeouts = timeouts
	o := doctor.Options{Each: checkTime, Secrets: c.SecretValues()}
	if !*asJSON {
		o.Show = doctor.Print(stdout, telemetry.IsTerminal(stdout))
	}
	x := &examination{Report: doctor.NewReport(o), config: c, wrong: map[string]bool{}, log: slog.New(slog.DiscardHandler)}
	redisclient.LogTo(x.log)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, checksTime)
	defer cancel()
	x.settings(config.Problems(err))
	x.listeners(ctx)
	noSessionLocks := x.database(ctx)
	x.replica(ctx)
	x.redis(ctx)
	x.jobLock(ctx, noSessionLocks)
	x.firebase(ctx)
	if *asJSON {
		if err := x.printJSON(stdout, began); err != nil {
			return err
		}
	} else if n := x.Count(doctor.Warning); x.OK() && n > 0 {
		fmt.Fprintf(stdout, "\nNo check fails; read the warnings before production: %d\n", n)
	} else if x.OK() {
		fmt.Fprintln(stdout, "\nNothing here would fail in production")
	}
	return x.verdict()
}

// examination is one run of the doctor command.
type examination struct {
	*doctor.Report
	config config.Config
	wrong  map[string]bool // the settings that can't be used
	log    *slog.Logger
}

// printJSON writes the report as one object.
func (x *examination) printJSON(stdout io.Writer, began time.Time) error {
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(struct {
		OK       bool          `json:"ok"`
		Version  string        `json:"version"`
		At       time.Time     `json:"at"`
		TookMS   int64         `json:"took_ms"`
		Fails    int           `json:"fails"`
		Warnings int           `json:"warnings"`
		Skipped  int           `json:"skipped"`
		Checks   []doctor.Line `json:"checks"`
	}{
		x.OK(), Version, began.UTC().Truncate(time.Millisecond), time.Since(began).Milliseconds(),
		x.Count(doctor.Fails), x.Count(doctor.Warning), x.Count(doctor.Skipped), x.Lines,
	})
}

// verdict returns an error unless everything would work in production.
func (x *examination) verdict() error {
	if x.OK() {
		return nil
	}
	return fmt.Errorf("doctor: %d checks of %d fail, %d could not be made", x.Count(doctor.Fails), len(x.Lines), x.Count(doctor.Skipped))
}

// settings reports every problem of the settings, the secrets and the time zone.
func (x *examination) settings(problems []*config.Problem) {
	for _, p := range problems {
		x.wrong[strings.TrimSuffix(p.Setting, "_FILE")] = true
		x.Add("settings", doctor.Failure(p.Error(), "correct it; README.md lists the settings"))
	}
	if len(problems) == 0 {
		x.Add("settings", doctor.Good("every setting can be used"))
	}
	x.secrets()
	if x.config.PrivateWebhooks {
		x.Add("settings.webhooks", doctor.Doubt("whoever may register a webhook reaches every server in this network",
			"in production leave FIRSTTAP_WEBHOOK_ALLOW_PRIVATE unset"))
	}
	if zone := x.config.Push.Zone; zone != nil {
		x.Add("settings.timezone", doctor.Good(fmt.Sprintf(
			"%s, where it is %s", zone, time.Now().In(zone).Format("2006-01-02 15:04 -07:00"))))
	}
}

// secrets reports on the length of the secrets, and on the files of those that the settings do not have.
func (x *examination) secrets() {
	const check = "settings.secrets"
	if x.wrongSecrets() || x.wrong["FIRSTTAP_DATABASE_URL"] {
		x.Skip("the settings", check)
		return
	}
	found, missing, err := x.config.StoredSecrets()
	if err != nil {
		x.Add(check, doctor.Failure(err.Error(), "remove the file, or set the secret in the environment"))
		return
	}
	var open []string
	for _, file := range found {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			open = append(open, file)
		}
	}
	samples := x.config.SampleSecrets()
	switch {
	case len(samples) > 0:
		x.Add(check, doctor.Doubt("anybody can read these secrets, which are those of docker-compose.yml: "+strings.Join(samples, ", "),
			"in production set random ones, as of openssl rand -base64 32"))
	case len(open) > 0:
		x.Add(check, doctor.Doubt("other users of this machine may read "+strings.Join(open, ", "), "chmod 600 "+strings.Join(open, " ")))
	case len(missing) > 0:
		x.Add(check, doctor.Good("the first start makes "+strings.Join(missing, ", ")))
	case len(found) > 0:
		x.Add(check, doctor.Good("long enough; kept in "+strings.Join(found, ", ")))
	default:
		x.Add(check, doctor.Good("long enough: at least 32 characters each"))
	}
}

func (x *examination) wrongSecrets() bool {
	return x.wrong["FIRSTTAP_ADMIN_KEY"] || x.wrong[jwtSecret] || x.wrong[jwtSecret+"_PREVIOUS"]
}

// database checks the database, and returns why locks that a session holds do not work there, "" if they do.
func (x *examination) database(ctx context.Context) (noSessionLocks string) {
	if x.wrong["FIRSTTAP_DATABASE_URL"] {
		x.Skip("FIRSTTAP_DATABASE_URL", "database.connection")
		return ""
	}
	var own dbcheck.Secrets
	if c := x.config; !x.wrongSecrets() && c.AdminKey != "" && c.JWTSecret != "" {
		own = dbcheck.Secrets{AdminKey: auth.HashKey(c.AdminKey), JWTName: jwtSecret, JWT: auth.Fingerprint(c.JWTSecret)}
		if c.PreviousJWTSecret != "" {
			own.PreviousJWT = auth.Fingerprint(c.PreviousJWTSecret)
		}
	}
	return dbcheck.Examine(ctx, x.Report, x.config.DatabaseURL, x.config.Migrate || x.wrong["FIRSTTAP_MIGRATE"], own)
}

// replica checks the replica, if there is one.
func (x *examination) replica(ctx context.Context) {
	switch {
	case x.config.ReadURL == "":
	case x.wrong["FIRSTTAP_DATABASE_URL"] || x.wrong["FIRSTTAP_DATABASE_READ_URL"]:
		x.Skip("the settings", "replica.connection")
	default:
		dbcheck.ExamineReplica(ctx, x.Report, x.config.DatabaseURL, x.config.ReadURL)
	}
}

func (x *examination) isMySQL() bool { return strings.HasPrefix(x.config.DatabaseURL, "mysql://") }

func (x *examination) redis(ctx context.Context) {
	switch {
	case x.wrong["FIRSTTAP_REDIS_URL"]:
		x.Skip("FIRSTTAP_REDIS_URL", "redis.connection")
	case x.config.RedisURL != "":
		uses := redisUses(x.config.Namespace)
		if x.config.JobLock == "redis" {
			uses = append(uses, redisLockUses(x.config.Namespace)...)
		}
		own := redisclient.Installation{Namespace: x.config.Namespace}
		if !x.wrong["FIRSTTAP_DATABASE_URL"] && x.isMySQL() {
			own.Database, _ = databaseOf(ctx, x.config) // unknown before the first start
		}
		redisclient.Examine(ctx, x.Report, x.config.RedisURL, own, uses, cmp.Or(x.config.Timeouts.Redis, defaultRedisTimeout))
	case x.isMySQL():
		x.Add("redis.connection", doctor.Doubt("not used: several instances would each have rate limits and live streams of their own",
			"set FIRSTTAP_REDIS_URL, unless there is one instance only"))
	default:
		x.Add("redis.connection", doctor.Good("not used, nor needed by a single instance"))
	}
}

// jobLock checks that the locks of the jobs can do their work with this database and these servers.
func (x *examination) jobLock(ctx context.Context, noSessionLocks string) {
	const check = "jobs.lock"
	lock := x.config.JobLock
	switch {
	case x.wrong["FIRSTTAP_JOB_LOCK"] || x.wrong["FIRSTTAP_QUORUM_URLS"]:
		x.Skip("the settings", check)
	case lock == "quorum":
		x.quorum(ctx)
	case lock == "memory" && x.isMySQL():
		x.Add(
			check,
			doctor.Doubt("memory: several instances would not know of each other's locks",
				"set FIRSTTAP_JOB_LOCK to table or redis, unless there is one instance only"),
		)
	case noSessionLocks != "" && inSessions(lock):
		x.Add(check, doctor.Failure(lock+" does not work "+noSessionLocks, "set FIRSTTAP_JOB_LOCK to table or redis"))
	default:
		x.Add(check, doctor.Good(lock+" fits"))
	}
}

// quorum checks each server of a quorum. A majority of them is enough.
func (x *examination) quorum(ctx context.Context) {
	urls, good := x.config.QuorumURLs, 0
	for i, url := range urls {
		x.Check(ctx, fmt.Sprintf("jobs.quorum.%d", i+1), func(ctx context.Context) doctor.Finding {
			f := redisclient.ExamineServer(ctx, url, redisLockUses(x.config.Namespace))
			if f.Status == doctor.Fails { // whether that is one too many is jobs.lock's
				f.Status = doctor.Warning
			} else {
				good++
			}
			return f
		})
	}
	switch found := fmt.Sprintf("quorum: %d of %d servers can be used", good, len(urls)); {
	case good <= len(urls)/2:
		x.Add("jobs.lock", doctor.Failure(found+", which is no majority: no job runs", "bring the servers above back"))
	case good < len(urls):
		x.Add("jobs.lock", doctor.Doubt(found, "bring the servers above back"))
	default:
		x.Add("jobs.lock", doctor.Good(found))
	}
}
