#!/usr/bin/env bash
# Builds ../static/assets/{preact.js,uplot.js,uplot.css,LICENSES.txt} from the packages in package-lock.json. The build is
# reproducible: `build.sh --check` fails if the committed files differ from its output.
set -euo pipefail
cd "$(dirname "$0")"

out=../static/assets
if [[ ${1:-} == --check ]]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
npx --no-install esbuild preact.js uplot.js --bundle --minify --format=esm --target=es2022 --legal-comments=none \
  --outdir="$out" --log-level=warning
cp node_modules/uplot/dist/uPlot.min.css "$out/uplot.css"
for package in preact htm eventsource-parser uplot; do
  printf '%s %s\n\n' "$package" "$(node -p "require('./node_modules/$package/package.json').version")"
  cat "node_modules/$package/LICENSE"
  printf '\n\n'
done >"$out/LICENSES.txt"
[[ ${1:-} != --check ]] || for f in preact.js uplot.js uplot.css LICENSES.txt; do
  cmp "$out/$f" "../static/assets/$f"
done
