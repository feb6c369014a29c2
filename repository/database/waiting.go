package database

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/repository/primary"
)

// retryPause is the time between two attempts to reach a database.
const retryPause = 500 * time.Millisecond

// UntilReachable calls try, and repeats it while it fails with what passes by itself: the database does not answer, starts, stops, fails
// over, is locked, or has no connection free. It returns the error once it has failed for as long as patience says, or ctx has ended. The
// log has a line for the first failure, and one for the end of the wait.
func UntilReachable(ctx context.Context, patience time.Duration, log *slog.Logger, try func() error) error {
	err := try()
	if err == nil || !passes(err) || ctx.Err() != nil {
		return err
	}
	since := time.Now()
	log.Warn("the database can't be used yet; it is tried again twice a second", "error", err)
	for time.Since(since) < patience {
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
		again := try()
		if ctx.Err() != nil && again != nil {
			return err // the end of ctx says less than what it was waited for
		}
		if err = again; err == nil {
			log.Warn("the database can be used; the start goes on", "waited", time.Since(since))
		}
		if err == nil || !passes(err) {
			return err
		}
	}
	return err
}

// passing are the numbers of a server's errors that pass by themselves, beside those of the class of connection errors: no resources or
// connections, a lock, a statement or session that was killed, a server or proxy that is not up.
var passing = []uint16{1041, 1129, 1135, 1203, 1205, 1213, 1226, 1317, 1927, 1969, 2003, 2006, 2013, 3024, 3168, 3169, 4031, 9001}

// passes reports whether an error of a database may be gone soon, without anybody's doing.
func passes(err error) bool {
	const connectionErrors = "08"
	var refused *driver.MySQLError
	if errors.As(err, &refused) {
		return strings.HasPrefix(string(refused.SQLState[:]), connectionErrors) || slices.Contains(passing, refused.Number)
	}
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, driver.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, primary.ErrReadOnly) || IsBusy(err)
}
