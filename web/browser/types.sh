#!/usr/bin/env bash
# Checks the types of the pages: of their modules among each other, of the texts that they ask for, and of what the API's description says
# that it answers.
set -euo pipefail
cd "$(dirname "$0")"

for packages in ../vendor .; do
  if [[ ! -e $packages/node_modules/.package-lock.json || $packages/package-lock.json -nt $packages/node_modules/.package-lock.json ]]; then
    (cd "$packages" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  fi
done
npx --no-install openapi-typescript ../../internal/openapi/openapi.json --output ../static/api.d.ts >/dev/null
for page in console driver; do
  npx --no-install tsc --project "../static/$page"
done
