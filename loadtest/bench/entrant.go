package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// entrant is one way to serve the accept request. Its process is started anew for every turn, so that no other entrant's
// timers and pools run meanwhile.
type entrant interface {
	// serve starts the server and returns its address once it answers.
	serve(ctx context.Context) (*process, string, error)
	// drivers returns the bearer tokens of n drivers, always the same.
	drivers(ctx context.Context, address string, n int) ([]string, error)
	// dispatches makes n dispatches for the drivers of a race, and returns their ids.
	dispatches(ctx context.Context, address string, race, n int) ([]string, error)
	// wins is the number of 200s that each dispatch must have.
	wins() int
}

// The names of the ways, for -only, in the order of the table.
const (
	wayEcho      = "echo"
	waySimple    = "simple"
	wayForUpdate = "for-update"
	wayUpdate    = "update"
	wayFirstTap  = "firsttap"
)

var ways = []string{wayEcho, waySimple, wayForUpdate, wayUpdate, wayFirstTap}

var titles = map[string]string{
	wayEcho:      "bare Echo, a fixed 409",
	waySimple:    "simple flow: SET NX, First, Save, GET, DEL",
	wayForUpdate: "SELECT FOR UPDATE in a transaction",
	wayUpdate:    "conditional UPDATE only, GORM as it comes",
	wayFirstTap:  "**FirstTap**, with auth, audit and outbox",
}

// comparison is an entrant that this program serves with its hidden subcommand.
type comparison struct {
	stack *stack
	way   string
}

const comparisonDatabase = "comparison"

func (c comparison) serve(context.Context) (*process, string, error) {
	port, err := c.stack.ports.free()
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p, err := c.stack.starter.start(c.stack.dir, c.way, nil,
		self, serveCommand, c.way, address, c.stack.dsn(comparisonDatabase), c.stack.cache)
	if err != nil {
		return nil, "", err
	}
	if err := p.await(func() error { return dialable(address) }); err != nil {
		p.stop()
		return nil, "", err
	}
	return p, address, nil
}

// drivers returns bare ids: the comparisons do not verify the bearer, which costs them nothing.
func (c comparison) drivers(_ context.Context, _ string, n int) ([]string, error) {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("drv_%026d", i)
	}
	return ids, nil
}

func (c comparison) dispatches(ctx context.Context, _ string, _, n int) ([]string, error) {
	ids := make([]string, n)
	for i := range ids {
		c.stack.made++
		ids[i] = fmt.Sprintf("dsp_%026d", c.stack.made)
	}
	if c.way == wayEcho { // it reads no row
		return ids, nil
	}
	const most = 500
	for from := 0; from < n; from += most {
		part := ids[from:min(from+most, n)]
		row := "(?,'PENDING',1,1,'SEOUL','12 Teheran-ro',350000,NOW(3),NOW(3))"
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = id
		}
		_, err := c.stack.db.ExecContext(ctx, "INSERT INTO "+comparisonDatabase+".dispatches "+
			"(id,status,round,version,region,site_address,fee,created_at,updated_at) VALUES "+
			row+strings.Repeat(","+row, len(part)-1), args...)
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func (c comparison) wins() int {
	if c.way == wayEcho {
		return 0
	}
	return 1
}

// createComparisonTable makes the one table that the comparisons share.
func createComparisonTable(ctx context.Context, s *stack) error {
	if err := s.createDatabase(ctx, comparisonDatabase); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, "CREATE TABLE "+comparisonDatabase+`.dispatches (
		id VARCHAR(40) PRIMARY KEY, status VARCHAR(16) NOT NULL, round INT NOT NULL, version INT NOT NULL,
		region VARCHAR(40) NOT NULL, site_address VARCHAR(200) NOT NULL, fee BIGINT NOT NULL,
		accepted_by VARCHAR(40), accepted_at DATETIME(3), created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NOT NULL
	) ENGINE=InnoDB`)
	return err
}
