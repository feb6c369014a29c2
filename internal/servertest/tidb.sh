#!/usr/bin/env bash
# Builds a TiDB server, with its embedded store, into FIRSTTAP_TIDB (/var/cache/firsttap/tidb/tidb-server), if it is not there. On two
# cores this takes a quarter of an hour, and it needs 8 GB of disk for Go's caches. It is a module of its own: TiDB's go.mod with TiDB
# as a requirement, because `go install` refuses a module with replacements. The product's go.mod does not know it.
set -euo pipefail

tidb=${FIRSTTAP_TIDB:-/var/cache/firsttap/tidb/tidb-server}
version=v1.1.0-beta.0.20260903095844-ac41d7e3c8fc # the branch release-8.5
parser=v0.0.0-20260814015501-679bbc290e7f         # a module apart in TiDB's repository, on the same branch
export GOTOOLCHAIN=go1.25.12 GOFLAGS=-mod=mod     # with Go 1.26 it panics at the start: it checks the layout of maps

if [ ! -x "$tidb" ]; then
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	cd "$module"
	source=$(go mod download -json "github.com/pingcap/tidb@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	install -m 644 "$source/go.mod" "$source/go.sum" .
	go mod edit -module=tidb -require="github.com/pingcap/tidb@$version" \
		-replace="github.com/pingcap/tidb/pkg/parser=github.com/pingcap/tidb/pkg/parser@$parser"
	mkdir -p "$(dirname "$tidb")"
	go build -p "${JOBS:-$(nproc)}" -o "$tidb.new" -ldflags="-X github.com/pingcap/tidb/pkg/parser/mysql.TiDBReleaseVersion=v8.5" \
		github.com/pingcap/tidb/cmd/tidb-server
	mv "$tidb.new" "$tidb"
fi
"$tidb" -V | sed -n 's/^Release Version: /TiDB: /p'
