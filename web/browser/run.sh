#!/usr/bin/env bash
# Tests the pages: in Node what needs no browser, the rest in Chromium, on services that the tests start. Arguments go to
# `playwright test`. FIRSTTAP_TEST=all adds the tests that are tagged @slow, which `make test` leaves out; FIRSTTAP_TRACE=1 keeps a
# trace of each failed test.
# FIRSTTAP_BIN and FIRSTTAP_FCMSIM are the programs to run; the script builds the ones that are not given.
set -euo pipefail
cd "$(dirname "$0")"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
build() {
  (cd ../.. && go build -o "$tmp/$1" "$2")
  echo "$tmp/$1"
}
FIRSTTAP_BIN=${FIRSTTAP_BIN:-$(build firsttap .)}
FIRSTTAP_FCMSIM=${FIRSTTAP_FCMSIM:-$(build fcmsim ./notify/fcmsim)}
export FIRSTTAP_BIN FIRSTTAP_FCMSIM
if [[ ! -e node_modules/.package-lock.json || package-lock.json -nt node_modules/.package-lock.json ]]; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
fi
node --experimental-detect-module --no-warnings --test-reporter=spec pure/all.mjs
npx --no-install playwright test "$@"
if [[ ${FIRSTTAP_TEST:-} == all ]]; then
  npx --no-install tsc # checks the types of the tests, which run without it
else
  FIRSTTAP_TEST=all npx --no-install playwright test --list --grep @slow | sed -n 's/^Total: \([0-9]*\) tests.*/left out: \1 tests that are tagged @slow/p'
fi
