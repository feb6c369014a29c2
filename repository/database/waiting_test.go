package database_test

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firsttap/internal/doctor/dbcheck"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/internal/doctor"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/primary"
)

func serverSays(number uint16, state string) error {
	e := &driver.MySQLError{Number: number, Message: "refused"}
	copy(e.SQLState[:], state)
	return fmt.Errorf("database h: %w", e)
}

func TestWhatPasses(t *testing.T) {
	for _, err := range []error{
		serverSays(1040, "08004"), serverSays(1053, "08S01"), serverSays(1158, "08S01"), serverSays(1161, "08S01"), serverSays(1184, "08S01"), serverSays(1047, "08S01"),
		serverSays(1203, "42000"), serverSays(1226, "42000"), serverSays(1129, "HY000"), serverSays(1041, "HY000"), serverSays(1927, "70100"),
		&net.DNSError{Err: "server misbehaving", IsTemporary: true}, &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		driver.ErrInvalidConn, primary.ErrReadOnly, context.DeadlineExceeded, database.Unavailable(serverSays(1040, "08004")),
	} {
		if !database.Passes(err) {
			t.Errorf("%v is not waited for", err)
		}
	}
	for _, err := range []error{
		serverSays(1045, "28000"), serverSays(1049, "42000"), serverSays(1044, "42000"), serverSays(1064, "42000"), serverSays(1142, "42000"), serverSays(1193, "HY000"),
		x509.UnknownAuthorityError{}, driver.ErrNoTLS, fs.ErrNotExist, errors.New("the database URL lacks a host"),
	} {
		if database.Passes(err) {
			t.Errorf("%v is waited for", err)
		}
	}
}

func TestUntilReachable(t *testing.T) {
	busy, denied := serverSays(1040, "08004"), serverSays(1045, "28000")
	for name, c := range map[string]struct {
		failsFor time.Duration
		with     error
		ctx      time.Duration
		want     error
		took     time.Duration
		lines    [2]int
	}{
		"comes":       {6 * time.Second, busy, time.Hour, nil, 6 * time.Second, [2]int{1, 1}},
		"is refused":  {time.Hour, denied, time.Hour, denied, 0, [2]int{}},
		"is given up": {time.Hour, busy, time.Hour, busy, 30 * time.Second, [2]int{1, 0}},
		"is stopped":  {time.Hour, busy, 3 * time.Second, busy, 3 * time.Second, [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
				defer cancel()
				log := &testkit.LogBuffer{}
				err := database.UntilReachable(ctx, 30*time.Second, slog.New(slog.NewTextHandler(log, nil)), func() error {
					if time.Since(began) < c.failsFor {
						return errors.Join(c.with, ctx.Err())
					}
					return nil
				})
				if !errors.Is(err, c.want) || err != nil && errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want %v", err, c.want)
				}
				testkit.Equal(t, "time", c.took, time.Since(began))
				said := [2]int{log.Count("can't be used yet"), log.Count("can be used")}
				testkit.Equal(t, "lines at the beginning and the end of the wait", c.lines, said)
			})
		})
	}
}

// A start waits while all connections that its user may have are in use, and until then it says so.
func TestOpenWaitsForAConnection(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		u, err := url.Parse(servertest.EmptyURL(t, kind))
		Must(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		root := Direct(t, u.String())
		for _, s := range []string{
			"CREATE USER " + name + "@'%' IDENTIFIED BY 'pw' WITH MAX_USER_CONNECTIONS 20", "GRANT ALL ON " + name + ".* TO " + name + "@'%'",
		} {
			Must(t, ErrorOf(root.Exec(s)))
		}
		t.Cleanup(func() { root.Exec("DROP USER " + name + "@'%'") })
		u.User = url.UserPassword(name, "pw")
		holder := Direct(t, u.String())
		held := make([]*sql.Conn, 20)
		for i := range held {
			held[i], err = holder.Conn(t.Context())
			Must(t, err)
		}

		log := &testkit.LogBuffer{}
		ended := Begin(func() error {
			s, err := repository.Open(t.Context(), u.String(), repository.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Patience: testkit.Patience})
			if err != nil {
				return err
			}
			return s.Close()
		})
		testkit.Retry(t, func() error {
			if log.Count("the database can't be used yet") != 1 {
				return errors.New("the log does not say that the start waits")
			}
			return nil
		})
		Must(t, holder.Close()) // those that are returned end
		for _, c := range held {
			Must(t, c.Close())
		}
		Must(t, testkit.Await(t, "Open returns", ended))
	})
}

// A file that can't be used is named with its cause and with what to do, in the start's words as in the doctor's.
func TestSQLiteFilesThatCantBeUsed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text, closed := filepath.Join(folder, "text.db"), filepath.Join(folder, "closed.db")
	Must(t, os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600))
	Must(t, os.WriteFile(closed, nil, 0))
	cases := map[string]string{
		filepath.Join(folder, "missing", "ft.db"): "create the folder",
		folder:                       "is a folder",
		text:                         "is no SQLite database",
		filepath.Join(text, "ft.db"): "not a directory",
		"/proc/firsttap.db":          "let this user write to the folder /proc",
		os.DevNull:                   "is no file",
	}
	if os.Geteuid() != 0 {
		cases[closed] = "let this user write to the file"
	}
	for path, next := range cases {
		_, err := repository.Open(t.Context(), "sqlite://"+path, repository.Options{Log: Quiet})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), next) {
			t.Errorf("%s: the start says %v", path, err)
		}
		r := doctor.NewReport(doctor.Options{Each: testkit.Patience})
		dbcheck.Examine(t.Context(), r, "sqlite://"+path, true, dbcheck.Secrets{})
		if f := r.Lines[0]; f.Status != doctor.Fails || err != nil && err.Error() != f.Found+"; "+f.Next {
			t.Errorf("%s: the start says %v, the doctor %+v", path, err, f)
		}
	}
}

// What a database can't store is no outage: it is the field's error, and names it.
func TestValuesThatCantBeStored(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		v := db.AddDriver(t, func(*dispatch.Driver) {})
		long := strings.Repeat("가", 3000)
		put := func(edit func(*dispatch.Device)) error {
			d := SomeDevice(v.ID, "phone", "token")
			edit(&d)
			_, err := db.PutDevice(t.Context(), d)
			return err
		}
		driver := func(edit func(*dispatch.Driver)) error {
			d := SomeDriver(1)
			edit(&d)
			return db.AddDrivers(t.Context(), []dispatch.Driver{d}, false)
		}
		create := func(edit func(*dispatch.Dispatch)) error {
			_, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
				w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
				d, events := dispatch.New(dispatch.NewID(now), "", SomeTerms(now), w, dispatch.System, now)
				edit(&d)
				return d, events, nil
			})
			return err
		}
		for field, err := range map[string]error{
			"app_version":  put(func(d *dispatch.Device) { d.AppVersion = long }),
			"name":         driver(func(d *dispatch.Driver) { d.Name = long }),
			"phone":        driver(func(d *dispatch.Driver) { d.Phone = long }),
			"note":         create(func(d *dispatch.Dispatch) { d.Note = long }),
			"fee.currency": create(func(d *dispatch.Dispatch) { d.Fee.Currency = "WONS" }),
			"version":      create(func(d *dispatch.Dispatch) { d.Version = 1 << 40 }),
		} {
			var invalid *dispatch.InvalidValueError
			if !errors.As(err, &invalid) || invalid.Field != field || errors.Is(err, dispatch.ErrUnavailable) {
				t.Errorf("%s: %v", field, err)
			}
		}
		// These are compared before they are written, so the server names no column.
		MustBeError(t, "push token", put(func(d *dispatch.Device) { d.PushToken = "🚧" }), dispatch.ErrInvalidValue)
		MustBeError(t, "installation", put(func(d *dispatch.Device) { d.Installation = "가" }), dispatch.ErrInvalidValue)
	})
}

func TestFieldOfAnError(t *testing.T) {
	for text, field := range map[string]string{
		"Data too long for column 'site_address' at row 1":                                           "site_address",
		"Incorrect string value: '\\xF0\\x9F' for column `db`.`drivers`.`name` at row 1":             "name",
		"Out of range value for column 'fee_amount' at row 1":                                        "fee.amount",
		"Column 'phone' cannot be null":                                                              "phone",
		"CONSTRAINT `drivers.regions` failed for `db`.`drivers`":                                     "regions",
		"Invalid JSON text: \"Invalid value.\" at position 0 in value for column 'drivers.regions'.": "regions",
		"BIGINT value is out of range":                                                               "",
	} {
		testkit.Equal(t, text, field, database.FieldIn(text))
	}
}
