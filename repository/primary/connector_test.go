package primary

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// each runs the test on servers that are the test's own.
func each(t *testing.T, test func(t *testing.T, config *mysql.Config)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		if kind == servertest.TiDB {
			t.Skip("TiDB has no read_only")
		}
		u, err := url.Parse(servertest.StartDatabase(t, kind).URL(t))
		if err != nil {
			t.Fatal(err)
		}
		config := mysql.NewConfig()
		config.Net, config.Addr, config.DBName, config.User = "tcp", u.Host, u.Path[1:], u.User.Username()
		config.Passwd, _ = u.User.Password()
		config.Timeout = 2 * testkit.Patience // of which the check whether the server is read-only has half
		test(t, config)
	})
}

// After a dial that leads to a read-only server, concurrent callers do not dial it again at once.
func TestReadOnlyServerIsDialledNowAndThen(t *testing.T) {
	each(t, func(t *testing.T, config *mysql.Config) {
		p, err := NewConnector(config, 8, 0, &Server{})
		if err != nil {
			t.Fatal(err)
		}
		account := sql.OpenDB(p.Connector)
		defer account.Close()
		if _, err := account.ExecContext(t.Context(), "SET GLOBAL read_only = 1"); err != nil {
			t.Fatal(err)
		}
		counted := &countedConnector{Connector: p.Connector}
		p.Connector = counted
		for range 3 {
			if _, err := p.Connect(t.Context()); !errors.Is(err, ErrReadOnly) {
				t.Fatal(err)
			}
			p.refused.Store(&refusal{time.Now().Add(time.Hour), ErrReadOnly}) // just now, however long this takes
		}
		if counted.dials != 1 {
			t.Errorf("%d dials", counted.dials)
		}
	})
}

type countedConnector struct {
	driver.Connector
	dials int
}

func (c *countedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.dials++
	return c.Connector.Connect(ctx)
}

// Connections end at an age of their own.
func TestConnectionsAge(t *testing.T) {
	each(t, func(t *testing.T, config *mysql.Config) {
		const conns = 8
		p, err := NewConnector(config, conns, 0, &Server{})
		if err != nil {
			t.Fatal(err)
		}
		pool := sql.OpenDB(p)
		defer pool.Close()
		ends := map[time.Duration]bool{}
		var closing []func() error
		for range conns {
			c, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = c.Raw(func(dialed any) error {
				p := dialed.(*conn)
				if age := time.Until(p.expiresAt); age > MaxConnAge || age < minConnAge-time.Minute {
					t.Errorf("a connection ends in %v", age)
				}
				ends[p.expiresAt.Sub(p.checkedAt)] = true
				p.expiresAt = time.Now()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			closing = append(closing, c.Close)
		}
		for _, closes := range closing {
			if err := closes(); err != nil {
				t.Fatal(err)
			}
		}
		if len(ends) != conns {
			t.Errorf("%d connections have %d ages", conns, len(ends))
		}
		if n := pool.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections outlive their time", n)
		}
	})
}
