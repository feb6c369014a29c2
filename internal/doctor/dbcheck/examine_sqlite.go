package dbcheck

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"firsttap/internal/doctor"
	"firsttap/migrations"
	"firsttap/repository/database"
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
	connected := r.Check(ctx, checkConnection, func(ctx context.Context) doctor.Finding {
		var err error
		isNew, err = database.CheckFile(path)
		if wrong := (*database.FileError)(nil); errors.As(err, &wrong) {
			return doctor.Failure(wrong.Found, wrong.Next)
		}
		if isNew {
			return doctor.Good(path + " does not exist yet; the first start creates it")
		}
		var version string
		if db, err = database.SQLiteConns(path, database.UsualPatience, 1); err == nil {
			err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
		}
		if err != nil {
			return doctor.Failure(path+" can't be opened: "+err.Error(), database.FileAdvice(path, err))
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
		switch err := database.TakesWrites(ctx, db); {
		case database.IsBusy(err):
			return doctor.Failure(err.Error(), database.FileAdvice(path, err))
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
