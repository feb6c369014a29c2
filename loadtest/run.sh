#!/usr/bin/env bash
# Runs a load test against two instances of firsttap on one MariaDB and one Redis, all started for this run and removed after it.
#
#   loadtest/run.sh race|storm|doubletap [short]      short: the run for CI
#   loadtest/run.sh rolling [short]                   three instances behind HAProxy, replaced one after the other
#
# The scripts read their own settings (ROUNDS, RATE, P95_MS, ...) from the environment. The exit code is k6's.
set -euo pipefail

cd "$(dirname "$0")/.."
script=loadtest/$(basename "${1:-race}" .js).js
[[ -f $script ]] || { echo "usage: $0 race|storm|doubletap|rolling [short]" >&2; exit 2; }
if [[ ${2:-} == short ]]; then export SHORT=1; fi

tmp=$(mktemp -d)
pids=()
declare -A pid

# cleanup ends the processes that this script started, newest first, and no others.
cleanup() {
  local code=$? i
  trap - EXIT INT TERM
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
  rm -rf "$tmp"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND... runs the command in the background with its output in a log.
start() {
  "${@:2}" >"$tmp/$1.log" 2>&1 &
  pid[$1]=$!
  pids+=($!)
}

# await NAME COMMAND... polls until the command succeeds, for 30 s at most and only while the process lives.
await() {
  local i
  for ((i = 0; i < 300; i++)); do
    if "${@:2}" 2>/dev/null; then return; fi
    kill -0 "${pid[$1]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "$1 did not get ready:" >&2
  tail -n 20 "$tmp/$1.log" >&2
  exit 1
}

listens() { (: <"/dev/tcp/127.0.0.1/$1"); }
ready() { curl -fso /dev/null "http://127.0.0.1:$1/readyz"; }
query() { mariadb --no-defaults --user=root --host=127.0.0.1 --port="$db" --batch --skip-column-names firsttap -e "$1"; }
secret() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

# k6 is not a dependency of the product: it is built once, outside the module, at a pinned version.
version=$(<loadtest/k6.version)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/firsttap/bin
k6=$bin/k6-$version
if [[ ! -x $k6 ]]; then
  echo "building k6 $version ..." >&2
  mkdir -p "$bin"
  (cd "$tmp" && GOFLAGS='-trimpath -gcflags=all=-dwarf=false' GOBIN=$tmp go install "go.k6.io/k6@$version")
  mv "$tmp/k6" "$k6"
fi
go build -o "$tmp/firsttap" .

# The ports are free, and below the range that the kernel assigns to clients.
ports=()
while ((${#ports[@]} < 6)); do
  p=$((20000 + RANDOM % 12000))
  if [[ " ${ports[*]} " != *" $p "* ]] && ! listens "$p" 2>/dev/null; then ports+=("$p"); fi
done
read -r db redis app1 app2 app3 proxy <<<"${ports[*]}"

start redis redis-server --bind 127.0.0.1 --port "$redis" --dir "$tmp" --save '' --maxmemory-policy noeviction
await redis listens "$redis"

mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$tmp/db" --skip-test-db --tmpdir="$tmp" \
  --auth-root-authentication-method=normal >"$tmp/install.log" 2>&1 || { cat "$tmp/install.log" >&2; exit 1; }
echo 'CREATE DATABASE firsttap CHARACTER SET utf8mb4;' >"$tmp/init.sql"
start mariadb mariadbd --no-defaults --user="$(id -un)" --datadir="$tmp/db" --socket="$tmp/db.sock" \
  --bind-address=127.0.0.1 --port="$db" --tmpdir="$tmp" --init-file="$tmp/init.sql"
await mariadb listens "$db"

unset "${!FIRSTTAP_@}" # the caller's settings must not reach this run, least of all a real push project
ADMIN_KEY=$(secret) FIRSTTAP_JWT_SECRET=$(secret)
export ADMIN_KEY FIRSTTAP_ADMIN_KEY=$ADMIN_KEY FIRSTTAP_JWT_SECRET
export FIRSTTAP_DATABASE_URL="mysql://root@127.0.0.1:$db/firsttap" FIRSTTAP_REDIS_URL="redis://127.0.0.1:$redis"
export FIRSTTAP_RATE_LIMIT_DRIVER=100000/s FIRSTTAP_RATE_LIMIT_ADMIN=100000/s
export FIRSTTAP_OPS_ADDR='' FIRSTTAP_PUSH=log FIRSTTAP_LOG=warn FIRSTTAP_DRAIN=0
if [[ $script == loadtest/rolling.js ]]; then
  source loadtest/rolling.sh
  exit
fi
FIRSTTAP_ADDR=127.0.0.1:$app1 start app1 "$tmp/firsttap" serve
FIRSTTAP_ADDR=127.0.0.1:$app2 start app2 "$tmp/firsttap" serve
await app1 ready "$app1"
await app2 ready "$app2"

# k6 runs in the background, so that bash handles a signal at once. grep drops the errors of deliberately lost answers.
export BASE_URLS="http://127.0.0.1:$app1,http://127.0.0.1:$app2" K6_NO_USAGE_REPORT=true
"$k6" run --quiet "$script" 2> >(grep -v 'msg="Request Failed"' >&2) &
pids+=($!)
wait "$!" || { code=$?; tail -vn 20 "$tmp"/app?.log >&2; exit "$code"; }
