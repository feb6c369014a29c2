# run.sh sources this after starting the servers. It replaces three instances behind HAProxy one after the other while k6 taps
# through the proxy. Afterwards it compares the database with the answers. BEFORE is the program of an earlier version: the first three
# instances run it, and the others this version.
internal/servertest/install.sh --haproxy >&2
export FIRSTTAP_DRAIN=${DRAIN:-5s}
apps=("$app1" "$app2" "$app3")

serve() { FIRSTTAP_ADDR=127.0.0.1:${apps[$1]} start "app$1" "$2" serve; }
for i in 0 1 2; do serve "$i" "${BEFORE:-$tmp/firsttap}"; done
for i in 0 1 2; do await "app$i" ready "${apps[i]}"; done

# The proxy has the deployed configuration with other addresses.
sed -e '/^resolvers docker/,/^$/d' -e 's/ resolvers docker init-addr.*//' -e '/monitor/d' -e "s/bind :8080/bind 127.0.0.1:$proxy/" \
  -e "s/server app1 app1:8080/server app1 127.0.0.1:$app1/" -e "s/server app2 app2:8080/&\n  server app3 127.0.0.1:$app3/" \
  -e "s/app2:8080/127.0.0.1:$app2/" deploy/haproxy.cfg >"$tmp/haproxy.cfg"
start proxy haproxy -db -f "$tmp/haproxy.cfg"
await proxy ready "$proxy"

export BASE_URLS="http://127.0.0.1:$proxy" K6_NO_USAGE_REPORT=true TAPS_FILE="$tmp/taps"
"$k6" run --quiet "$script" &
load=$!
pids+=("$load")
begun=$SECONDS
until (($(query 'SELECT COUNT(*) FROM taps') > 0)); do # until k6 taps
  kill -0 "$load" || exit 1
  sleep 0.2
done
for i in 0 1 2; do
  kill -TERM "${pid[app$i]}"
  wait "${pid[app$i]}" || { echo "app$i ended with $?" >&2; tail -n 20 "$tmp/app$i.log" >&2; exit 1; }
  serve "$i" "$tmp/firsttap"
  await "app$i" ready "${apps[i]}"
  sleep 2 # the proxy notices within 1 s
  echo "app$i replaced after $((SECONDS - begun)) s" >&2
done
kill -0 "$load" || { echo "the load was over before the last instance was replaced" >&2; exit 1; }
wait "$load" || { code=$?; tail -vn 20 "$tmp"/app?.log "$tmp/proxy.log" >&2; exit "$code"; }

# Nothing is lost: each answered tap is stored, each win is one claim, each event is relayed.
for ((i = 0; i < 100; i++)); do
  waiting=$(query 'SELECT COUNT(*) FROM events WHERE next_at IS NOT NULL')
  stored=$(query 'SELECT SUM(count) FROM taps')
  if ((waiting == 0 && stored == $(<"$TAPS_FILE"))); then break; fi
  sleep 0.1
done
claims=$(query 'SELECT COUNT(*) FROM claims')
dispatches=$(query 'SELECT COUNT(DISTINCT dispatch_id) FROM claims')
accepted=$(query "SELECT COUNT(*) FROM dispatches d JOIN claims c ON c.id = d.claim_id AND c.outcome = 'WON' WHERE d.status = 'ACCEPTED'")
events=$(query "SELECT COUNT(*) FROM events WHERE type = 'dispatch.accepted'")
echo "database: $claims claims of $dispatches dispatches, $accepted accepted, $events announced, $stored taps stored of $(<"$TAPS_FILE"), $waiting events not expanded"
((claims > 0 && claims == dispatches && claims == accepted && claims == events && waiting == 0 && stored == $(<"$TAPS_FILE")))
