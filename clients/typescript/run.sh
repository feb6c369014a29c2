#!/usr/bin/env bash
# Generates a client from the /openapi.json of a real instance, compiles it, and races two drivers with it.
set -euo pipefail
cd "$(dirname "$0")"

tmp=$(mktemp -d)
pid=
cleanup() {
  local code=$?
  trap - EXIT INT TERM
  if [[ $pid ]]; then
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  rm -rf "$tmp"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

(cd ../.. && CGO_ENABLED=0 go build -o "$tmp/firsttap" .)
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

: >"$tmp/log" # the loop below may read it before the service writes it
key=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
FIRSTTAP_ADDR=127.0.0.1:0 FIRSTTAP_OPS_ADDR= FIRSTTAP_DATABASE_URL="sqlite://$tmp/firsttap.db" \
  FIRSTTAP_ADMIN_KEY=$key FIRSTTAP_JWT_SECRET=$key FIRSTTAP_LOG=warn "$tmp/firsttap" >"$tmp/log" 2>&1 &
pid=$!
url=
for ((i = 0; i < 300; i++)); do
  url=$(sed -n 's/.*"FirstTap listens on \([^"]*\)".*/\1/p' "$tmp/log")
  if [[ $url ]]; then break; fi
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.1
done
[[ $url ]] || { echo "firsttap did not start:" >&2; cat "$tmp/log" >&2; exit 1; }

node -e 'fetch(process.argv[1]).then(async (r) => process.stdout.write(await r.text()))' "$url/openapi.json" >openapi.json
npm run --silent generate
npm run --silent build
FIRSTTAP_URL=$url FIRSTTAP_ADMIN_KEY=$key node dist/smoke.js
