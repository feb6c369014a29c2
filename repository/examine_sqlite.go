package repository

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	driver "github.com/glebarez/go-sqlite"

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
		if f, isNew = examineFile(path); isNew || f.Status == doctor.Fails {
			return f
		}
		var version string
		var err error
		if db, err = sqliteConns(path, usualPatience, 1); err == nil {
			err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
		}
		if err != nil {
			return doctor.Failure(path+" can't be opened: "+err.Error(), afterNoFile(path, err))
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
		switch err := takesWrites(ctx, db); {
		case isBusy(err):
			return doctor.Failure(err.Error(), afterNoFile(path, err))
		case err != nil:
			return doctor.Failure(err.Error(), "let this user write to the file and its folder, and check that the disk is not full")
		}
		return doctor.Good("takes writes")
	})
	r.Check(ctx, checkMigrations, func(ctx context.Context) doctor.Finding {
		m, err := migrations.New(migrations.SQLite, db, slog.New(slog.DiscardHandler))
		if err != nil {
			return doctor.Failure(err.Error(), "")
		}
		return pendingMigrations(ctx, m, atStart)
	})
}

// examineFile checks what can be said of the file at path without opening it as a database.
func examineFile(path string) (f doctor.Finding, isNew bool) {
	const next = "correct " + databaseSetting
	folder := filepath.Dir(path)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		switch _, err := os.Stat(folder); {
		case errors.Is(err, fs.ErrNotExist):
			return doctor.Failure(path+" can't be created: there is no folder "+folder, "create the folder, or "+next), false
		case err != nil:
			return doctor.Failure(path+" can't be created: "+err.Error(), next), false
		}
		if err := writable(folder); err != nil {
			return doctor.Failure(path+" can't be created: "+err.Error(), "let this user write to the folder "+folder+", or "+next), false
		}
		return doctor.Good(path + " does not exist yet; the first start creates it"), true
	case err != nil:
		return doctor.Failure(err.Error(), next+", or the file's permissions"), false
	case info.IsDir():
		return doctor.Failure(path+" is a folder, not a file", next+" to name a file in it"), false
	case !info.Mode().IsRegular():
		return doctor.Failure(path+" is no file", next), false
	}
	// SQLite keeps its log beside the file.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(file.Close(), writable(folder))
	}
	if err != nil {
		return doctor.Failure(path+" can't be written: "+err.Error(), "let this user write to the file and to the folder "+folder), false
	}
	return doctor.Good(path), false
}

// writable returns nil if files can be made in the folder.
func writable(folder string) error {
	probe, err := os.CreateTemp(folder, ".firsttap-doctor-*")
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		return named.Err // the name of the probe tells nobody anything
	}
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// afterNoFile says what to do about the error of a file that SQLite does not open.
func afterNoFile(path string, err error) string {
	const notADatabase, corrupt = 26, 11
	var refused *driver.Error
	switch {
	case isBusy(err):
		return "another process has locked the file: end it, as the file is for a single instance"
	case errors.As(err, &refused) && (refused.Code()&0xff == notADatabase || refused.Code()&0xff == corrupt):
		return "the file is no SQLite database, or is damaged: name another one in " + databaseSetting + ", or restore a backup"
	}
	return "check the permissions of the file and of " + filepath.Dir(path) + ", and that the disk is not full"
}
