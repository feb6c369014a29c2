package redisclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/doctor"
)

// Installation is a database and its instances. The database is "" if it is not known.
type Installation struct{ Namespace, Database string }

const databaseSuffix = ":database"

// databaseKey is the key of the name of the database whose instances use the namespace.
func databaseKey(namespace string) string { return namespace + databaseSuffix }

// TakeNamespace writes which database the namespace belongs to. It returns the other database to which it belonged until then, "" for none.
func TakeNamespace(ctx context.Context, c Client, own Installation) (other string, err error) {
	before, err := c.SetArgs(ctx, databaseKey(own.Namespace), own.Database, redis.SetArgs{Get: true}).Result()
	if errors.Is(err, redis.Nil) || before == own.Database {
		return "", nil
	}
	return before, err
}

// scanPage and scanPages bound the search for other installations: a Redis may hold millions of keys.
const scanPage, scanPages = 1000, 100

// others looks for the databases of other installations.
func (e *examination) others(ctx context.Context) doctor.Finding {
	var found []string
	for _, n := range e.nodes {
		cursor := uint64(0)
		for range scanPages {
			keys, next, err := n.client.ScanType(ctx, cursor, databaseKey("*"), scanPage, "string").Result()
			if err != nil {
				return doctor.Doubt(n.addr+": "+err.Error(), "allow the user SCAN, so that other installations are seen")
			}
			for _, key := range keys {
				if name := strings.TrimSuffix(key, databaseSuffix); name != e.own.Namespace {
					found = append(found, name)
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	inUse, _ := e.client.Get(ctx, databaseKey(e.own.Namespace)).Result() // that it may be read is checked by another check
	if inUse != "" && e.own.Database != "" && inUse != e.own.Database {
		return doctor.Doubt(fmt.Sprintf("the namespace %s was last used with the database %s, and this one is %s",
			e.own.Namespace, inUse, e.own.Database), "if those instances still run, set FIRSTTAP_NAMESPACE to another name here")
	}
	if len(found) == 0 {
		return doctor.Good("no other installation has keys there")
	}
	slices.Sort(found)
	return doctor.Doubt("other installations have keys there: "+strings.Join(slices.Compact(found), ", "),
		"this is safe, as their namespaces differ; a Redis for each installation also keeps the load of one from the other")
}
