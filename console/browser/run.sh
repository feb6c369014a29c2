#!/usr/bin/env bash
# Tests the pages in Chromium, on services that the tests start. Arguments go to `playwright test`.
# FIRSTTAP_BIN is the service to run; without it the script builds one.
set -euo pipefail
cd "$(dirname "$0")"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [[ -z ${FIRSTTAP_BIN:-} ]]; then
  (cd ../.. && CGO_ENABLED=0 go build -o "$tmp/firsttap" .)
  export FIRSTTAP_BIN=$tmp/firsttap
fi
if [[ ! -e node_modules/.package-lock.json || package-lock.json -nt node_modules/.package-lock.json ]]; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
fi
npx --no-install tsc
npx --no-install playwright test "$@"
