package repository

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"firsttap/doctor"
	"firsttap/migrations"
)

// examineSQLite checks the file at path. It does not create it.
func examineSQLite(ctx context.Context, r *doctor.Report, path string, atStart bool) {
	var db *sql.DB
	isNew := false
	defer func() {
		if db != nil {
			db.Close()
		}
	}()
	connected := r.Check(ctx, checkConnection, func(ctx context.Context) (f doctor.Finding) {
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			isNew = true
			return writableFolder(path)
		case err != nil:
			return doctor.Failure(err.Error(), "correct FIRSTTAP_DATABASE_URL, or the file's permissions")
		case !info.Mode().IsRegular():
			return doctor.Failure(path+" is no file", "correct FIRSTTAP_DATABASE_URL")
		}
		var version string
		var err error
		if db, err = sqliteConns(path, usualPatience, 1); err == nil {
			err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
		}
		if err != nil {
			return doctor.Failure(path+": "+err.Error(), "check that this is FirstTap's database, and the permissions of file and folder")
		}
		return doctor.Good(path + ", SQLite " + version + ", for a single instance")
	})
	if isNew && connected {
		return
	}
	if !connected {
		r.Skip(checkConnection, checkRole, checkMigrations)
		return
	}
	r.Check(ctx, checkRole, func(ctx context.Context) doctor.Finding {
		if err := takesWrites(ctx, db); err != nil {
			return doctor.Failure(err.Error(), "let this user write to the file and its folder, and check that the disk is not full")
		}
		return doctor.Good("takes writes")
	})
	r.Check(ctx, checkMigrations, func(ctx context.Context) doctor.Finding {
		m, err := migrations.New(migrations.SQLite, db, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return doctor.Failure(err.Error(), "")
		}
		return pendingMigrations(ctx, m, atStart)
	})
}

// writableFolder checks that a database can be created at path.
func writableFolder(path string) doctor.Finding {
	probe, err := os.CreateTemp(filepath.Dir(path), ".firsttap-doctor-*")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return doctor.Failure(path+" can't be created: "+err.Error(), "create the folder, and let this user write to it")
	}
	return doctor.Good(path + " does not exist yet; the first start creates it")
}
