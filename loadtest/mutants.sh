#!/usr/bin/env bash
# Breaks the code on purpose, one promise at a time, in a copy, and checks that the tests notice. It prints a table of what
# was broken and which test failed, and fails if all tests passed. Each mutant names its tests, to save time. A mutant that the
# tests of `make test` miss is tried again with those of `make test-all`, and marked. Two mutants are tried at a time. A mutant that
# only vet reports is not caught by a test, so vet is off.
set -euo pipefail

cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'wait; rm -rf "$tmp"' EXIT
export FIRSTTAP_TEST_REQUIRE=redis,mariadb,faketime
SECONDS=0

# --check breaks nothing: it fails if a mutant's pattern is no longer in its file.
check=${1:-}
case $check in
'' | --check) ;;
*) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac

# The copies that no mutant uses at the moment, a line each.
mkfifo "$tmp/free"
exec 3<>"$tmp/free"
printf '%s\n' a b >&3

# mutant WHAT FILE PATTERN REPLACEMENT PACKAGE TESTS: the pattern is a fixed string that must be in the file.
mutant() {
  local copy
  if [ "$check" = --check ]; then
    PATTERN=$3 perl -0ne '/\Q$ENV{PATTERN}\E/ or exit 1' "$2" && return
    printf '%-62s NOT IN %s\n' "$1" "$2" && touch "$tmp/lived" && return
  fi
  read -r -u 3 copy
  {
    try "$tmp/$copy" "$@" || touch "$tmp/lived"
    echo "$copy" >&3
  } &
}

# try SRC WHAT FILE PATTERN REPLACEMENT PACKAGE TESTS fails if no test notices the mutant.
try() {
  local src=$1 what=$2 file=$3 pattern=$4 replacement=$5 package=$6 tests=$7 tier caught
  rm -rf "$src" && mkdir "$src"
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$src"
  PATTERN=$pattern REPLACEMENT=$replacement perl -0pi -e \
    's/\Q$ENV{PATTERN}\E/$ENV{REPLACEMENT}/g or die "not in the file: $ENV{PATTERN}\n"' "$src/$file" || return
  for tier in '' all; do
    (cd "$src" && FIRSTTAP_TEST=$tier go test -vet=off -ldflags='-s -w' -timeout 5m -run "$tests" "$package") >"$src.log" 2>&1 && continue
    if grep -qF -e '[build failed]' -e '[setup failed]' "$src.log"; then
      printf '%-62s DOES NOT COMPILE\n%s\n' "$what" "$(tail -n 5 "$src.log")"
      return 1
    fi
    caught=$(grep -oE -- '--- FAIL: [A-Za-z]+' "$src.log" | sort -u | sed 's/--- FAIL: //' | paste -sd ' ' || true)
    printf '%-62s %s%s\n' "$what" "${caught:-$(grep -m1 -E 'panic|race' "$src.log")}" "${tier:+ (only in test-all)}"
    return
  done
  printf '%-62s LIVED\n' "$what"
  return 1
}

claim=repository/dispatches/claim.go
conditions=TestEachConditionOfTheClaimHolds
mutant "the UPDATE without the status" $claim "AND status = 'PENDING' " "" ./repository/dispatches "$conditions"
mutant "the UPDATE without the round" $claim "AND round = ?" "AND ? > 0" ./repository/dispatches "$conditions"
mutant "the UPDATE without opens_at" $claim '"(opens_at <= {now} OR opens_at <= updated_at + 3)"' '"1 = 1"' ./repository/dispatches "$conditions"
mutant "the UPDATE without expires_at" $claim 'AND expires_at > {now}' "" ./repository/dispatches "$conditions"
mutant "the UPDATE without the driver's version" $claim "WHERE id = ? AND version = ? {for_share}" "WHERE id = ? AND ? > 0 {for_share}" ./repository/dispatches "$conditions"
mutant "the UPDATE without the time of the last change" $claim "AND updated_at = ? " "AND ? > 0 " ./repository/dispatches "$conditions"
mutant "an announcement comes after a claim that was decided before it" dispatch/rules.go "	d.UpdatedAt = now
	return []Event{d.event(EventOpened" "	return []Event{d.event(EventOpened" ./dispatch TestEveryActionFromEveryState
mutant "the driver's other claims are ignored" $claim "snapshot.claims + 1" "snapshot.claims + 2" ./repository/dispatches TestEachConditionOfTheAssignmentHolds
mutant "no re-read after a lost COMMIT" $claim "err = s.resolve(ctx, &d, events, err)" "_ = s.resolve" ./repository/dispatches TestTheReplyOfACommitIsLost
mutant "a late claim is committed after its refusal" $claim "NOT {read_only}\", event)" "NOT {read_only}\", dispatch.NewEventID(time.Now()))" ./repository/dispatches TestTheCommitArrivesLate
mutant "a change whose COMMIT got no reply is not looked up" repository/dispatches/dispatches.go "dispatch.ErrUnknown) && len(events) > 0" "dispatch.ErrUnknown) && false" ./repository/dispatches TestUpdateWhoseCommitIsLost
call=repository/dispatches/claim_call.go
mutant "a claim reads all claims" $call "WHERE dispatch_id = p_dispatch AND driver_id = p_driver AND outcome" "WHERE CONCAT(dispatch_id, '') = p_dispatch AND driver_id = p_driver AND outcome" ./systemtest TestStatementsReadFewRows
mutant "the call without the status" $call "AND status = 'PENDING' AND round" "AND round" ./repository/dispatches "$conditions"
mutant "the call without the round" $call "AND round = p_round" "AND p_round > 0" ./repository/dispatches "$conditions"
mutant "the call without the version" $call "AND version = p_version" "AND p_version > 0" ./repository/dispatches "$conditions"
mutant "the call without the time of the last change" $call "AND updated_at = p_updated_at" "AND p_updated_at > 0" ./repository/dispatches TestClaimOnOldKnowledge
mutant "the call without the time of the driver's last change" $call "AND updated_at = p_driver_updated_at" "AND p_driver_updated_at > 0" ./repository/dispatches TestClaimOnOldKnowledge
mutant "a lost reply's claim that is not found is not committed" $claim "answer.ReadOnly || answer.AcceptedAt == 0" "false" ./repository/dispatches TestTheClaimIsOnAnotherServer
mutant "the call without opens_at" $call "AND opens_at <= v_now " "" ./repository/dispatches "$conditions"
mutant "the call without expires_at" $call "AND expires_at > v_now " "" ./repository/dispatches "$conditions"
mutant "the call without the driver's version" $call "AND version = p_driver_version" "" ./repository/dispatches "$conditions"
mutant "the call decides ahead of the time of the database" $call "p_decided_at <= v_now AND " "" ./repository/dispatches TestClaimAtAWrongTime
mutant "the call without the driver's other work" $call "v_busy AND NOT p_busy OR " "" ./repository/dispatches TestClaimOnOldKnowledge
mutant "the call without the driver's withdrawals" $call " OR v_had_it AND NOT p_had_it" "" ./repository/dispatches TestClaimAfterAWithdrawal
mutant "the call without the driver's number" $call "+ 1 FROM claims FORCE" "+ 1 + FLOOR(1000 * RAND()) FROM claims FORCE" ./repository/dispatches TestOverlappingClaims
mutant "the call on a read-only server" $call "AND NOT {read_only}" "" ./repository/database TestAServerBecomesReadOnlyBefore
mutant "the call makes its event due for nobody" $call "v_now, v_clock + p_lease, p_owner);" "v_now, NULL, p_owner);" ./repository/dispatches TestClaimWritesEverything
mutant "a missing procedure is not created again" $call "if err = p.make(ctx); err != nil {" "if true {" ./repository/dispatches TestTheProcedureIsMissing
mutant "a round with a leading zero" handler/accept.go "digits[0] < '1' || " "" ./handler FuzzRounds
mutant "a lost COMMIT is treated as a failed one" repository/database/tx.go '%w: commit: %w", dispatch.ErrUnknown' '%w: commit: %w", dispatch.ErrUnavailable' ./repository/dispatches 'TestTheReplyOfACommitIsLost|TestUpdateWhoseCommitIsLost'
mutant "the claim ends with the client's connection" service/accept.go "context.WithTimeout(context.WithoutCancel(ctx), a.timeout)" "context.WithTimeout(ctx, a.timeout)" ./service TestDecisionHasATimeOfItsOwn
mutant "any client releases a lock" lock/gate.go 'if redis.call("GET", KEYS[1]) == ARGV[1] then return' 'if true then return' ./lock TestOnlyTheOwner
mutant "a marker replaces any client's lock" lock/gate.go 'if redis.call("GET", KEYS[1]) == ARGV[1] then
' 'if true then
' ./lock TestOnlyTheOwner
mutant "the marker's round is ignored" service/marker.go "m.committed && tap.Round < m.round" "m.committed" ./service 'TestMarkersRefuseByRound|TestRedisKeysThatRefuse'
mutant "the cache's round is ignored" service/memory.go "|| tap.Round > known.round " "" ./service 'TestTakenDispatches|TestUnassigned'
mutant "a winner is refused by another driver's tap" service/memory.go " || ok && f.driver != tap.Driver && m.knowsWinner(tap)" "" ./service TestWinnerTapsAgainBesideAnotherTap
mutant "a marker outlives its claim" service/checks.go "says != holds && says != d.said" "says != holds && (says == ended || says != d.said)" ./service TestMarkerOutlivesItsClaim
mutant "a marker of an earlier round silences taps without one" service/checks.go "case o.round == 0:" "case o.round < 0:" ./service TestMarkerOutlivesItsClaimBehindATap
mutant "the cache decides without a round" service/memory.go "tap.Round == 0 || tap.Round > known" "tap.Round > known" ./service .
mutant "a driver's own key is treated as a rival's" service/marker.go "m.driver == tap.Driver" "false" ./service TestRedisKeysThatRefuse
mutant "a key without an expiry" lock/gate.go ', "PX", ttl.Milliseconds()).Text()' ').Text()' ./lock TestOneOwner
mutant "the lock is kept after a failed claim" service/accept.go "err = lease.Release(ctx)" "err = nil" ./service TestRedisKeyDuringADecision
mutant "refused drivers are not notified" service/accept.go "a.memory.follow(f.key.offer, 0, false)" "_ = f" ./service .
mutant "drivers are not notified after an instance is killed" service/accept.go "a.memory.follow(offer{tap.Dispatch, tap.Round}, followUpRetry, false)" "_ = a" ./systemtest TestInstanceIsKilled
mutant "a change makes its event due for nobody" repository/journal/events.go "NextAt: &next, " "NextAt: map[bool]*int64{}[next > 0], " ./repository/dispatches TestClaimWritesEverythingTogether
mutant "a withdrawn claim can be replayed" dispatch/rules.go "round == 0 && c.HadIt" "false" ./service TestNextRound
mutant "losers ask Redis although the process knows the winner" service/memory.go "if !ok || known.round <= h.round {" "if false {" ./service .
mutant "a token with any algorithm is accepted" internal/auth/tokens.go "jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // or a token could choose \"none\"" "" ./internal/auth TestForgedTokens
mutant "a token without an expiry is accepted" internal/auth/tokens.go "jwt.WithExpirationRequired(), " "" ./internal/auth TestForgedTokens
mutant "unknown fields are accepted" handler/request.go "json.RejectUnknownMembers(true)" "json.RejectUnknownMembers(false)" ./handler TestBadBodies
mutant "a revoked token is accepted" internal/auth/tokens.go "t.revocations.isRevoked(v.driver, v.generation)" "false" ./internal/auth TestGenerations
mutant "a suspended driver starts a job" dispatch/rules.go " && v.Suspended(now)" " && false" ./dispatch TestEveryAction
mutant "withdrawals without a limit" dispatch/withdrawal.go "if wait > 0 {" "if false {" ./repository/dispatches TestWithdraw
mutant "a driver who can't win blocks other drivers" service/accept.go "a.memory.sideline(tap.Driver) {" "false {" ./service TestHopelessTaps
mutant "a lost claim is not counted" service/checks.go "a.lost.Add(1)" "" ./service 'TestLostClaim$'
mutant "a winner's device is not looked for" repository/pushes/expand.go "(SELECT 1 FROM devices dv WHERE dv.driver_id = e.driver_id AND dv.quarantined_at IS NULL LIMIT 1) IS NOT NULL own" "0 own" ./repository/pushes TestEventsThatConcernNobody
mutant "a deadlock's victim gives up its results" repository/database/tx.go "lost := Retryable(err)" "lost := false" ./repository/pushes TestWritesOfARelayAndADeadlock
mutant "devices that were offered it are not looked for" repository/pushes/expand.go "(SELECT 1 FROM notifications n WHERE n.dispatch_id = e.dispatch_id LIMIT 1) IS NOT NULL offered" "0 offered" ./repository/pushes TestEventsThatConcernNobody
mutant "a topic is not looked for" repository/pushes/expand.go "!row.Offered && !e.open && !row.Own" "!row.Offered && !row.Own" ./repository/pushes TestEventsThatConcernNobody
mutant "any owner's event is completed" repository/pushes/outbox.go "WHERE id IN ? AND next_at IS NOT NULL AND claim = ?" "WHERE id IN ? AND next_at IS NOT NULL AND ? <> ''" ./repository/pushes TestCompleteEvents
mutant "waiting events are expanded one by one" notify/committed.go "for range min(len(r.urgent), urgentBatch-1) {" "for range 0 {" ./notify TestWaitingEvents
mutant "offers of old terms are sent" notify/committed.go "e.Event.Type != dispatch.EventCreated && e.Event.Type != dispatch.EventOpened" "!e.Event.Type.IsOffer() && e.Event.Type != dispatch.EventCreated" ./notify TestChangedTerms
mutant "calls for topics go on while they are refused" notify/topics.go "r.pause(ctx, time.Until(r.topicsNotBefore))" "" ./notify TestTopicCallsAreRefused
mutant "a topic's message overtakes an offer" repository/pushes/expand.go " || r.delay > 0" "" ./repository/topics TestSubscribersArePushedByTopic
mutant "a topic that nobody ended stays" repository/topics/topics.go "NOT IN ?\`, true" "NOT IN ? AND 1 = 0\`, true" ./repository/topics TestTopicThatNobodyEnded
mutant "a relay that stops forgets its completions" notify/result_writer.go "for range len(w.expanded) {" "for range 0 {" ./notify TestRelayEndsWithCompletions
mutant "taps that come again are counted again" repository/offers/taps.go "CASE WHEN last_at = {new last_at} THEN 0 ELSE {new count} END" "{new count}" ./repository/offers TestEqualTapsAreOneRow/sqlite
mutant "the first of equal taps is forgotten" repository/offers/taps.go "at = CASE WHEN at < {new at} THEN at ELSE {new at} END" "at = {new at}" ./repository/offers TestEqualTapsAreOneRow/sqlite
mutant "drivers of another round are ahead" repository/offers/taps_read.go "round = @round AND at < @first" "round <> @round AND at < @first" ./repository/offers TestStandings
mutant "a page of taps is not in order" repository/offers/taps_read.go " ORDER BY id LIMIT ?) t" " ORDER BY id DESC LIMIT ?) t" ./repository/offers TestPagesOfTaps
mutant "a round that has not begun is booked" repository/offers/taps.go "|| round > newest" "" ./repository/offers TestTheRoundOfATap
mutant "taps are kept for ever" repository/retention/retention.go '"dispatch_id < ? AND last_at < ?"' '"dispatch_id < ? AND last_at < ? AND 1 = 0"' ./repository/retention TestRetentionOfTables
mutant "late taps go with their old dispatch" repository/retention/retention.go '"dispatch_id < ? AND last_at < ?"' '"dispatch_id < ? AND at < ? + last_at"' ./repository/retention TestNewsOfAnOldDispatchIsKept
mutant "a driver with a job is erased" repository/drivers/erase.go "if busy > 0 {" "if busy < 0 {" ./repository/drivers 'TestEraseOfABusyDriver|TestEraseAndClaimAtOnce'
mutant "a claim does not see an erasure" repository/drivers/erase.go "Version: was.Version + 1}" "Version: was.Version}" ./repository/drivers TestEraseBetweenDecisionAndClaim
mutant "an erased driver stays in the index" repository/drivers/driver_index.go "if !reflect.DeepEqual(before, after) {" "if !reflect.DeepEqual(before, after) && len(after) > 0 {" ./repository/drivers 'TestErasedDriverIsInNoTable|TestIndexOfDriversIsTrue'
index=repository/search/index.go find=repository/search/find.go
mutant "a new dispatch counts as indexed without its words" repository/dispatches/create.go "search.Entries(row.ID, row.Words())" "search.Entries(row.ID, nil)" ./repository/dispatches TestWordsFollowTheDispatch
mutant "a change leaves the old words" $index "x.Remove(tx, id, without(was, is))" "x.Remove(tx, id, nil)" ./repository/dispatches TestWordsFollowTheDispatch
mutant "a change adds no words" $index "x.Add(tx, Entries(id, without(is, was)))" "x.Add(tx, nil)" ./repository/dispatches TestIndexOfDispatchesIsTrue
mutant "a search checks one term" $find "HaveAll(terms, " "HaveAll(terms[:1], " ./repository/dispatches TestSearch
mutant "a common term counts as rare" $index "} else if many {" "} else if false {" ./repository/dispatches TestSearchForCommonWords
mutant "a search goes on though a term is rare" $index "len(ids) <= fewRows" "len(ids) < 0" ./repository/dispatches TestPlansOfASearch
mutant "a search reads to the end" $find "read, size = read+size, 2*size" "size = 2*size" ./repository/dispatches TestSearchForCommonWords
mutant "a search reads once" $find "next == \"\" {" "true {" ./repository/dispatches TestSearchForCommonWords
mutant "a search reads as few rows each time" $find "2*size" "size" ./repository/dispatches TestSearchForCommonWords
mutant "a search takes a row for one without the term" repository/search/words.go "return t.ID == \"\" && !slices" "return !slices" ./repository/dispatches TestSearch
mutant "a search gives up where its page is short" $find "	if len(found) > page.Limit {" "	if next = \"\"; len(found) > page.Limit {" ./repository/dispatches TestSearchForCommonWords
mutant "a driver's signals ignore how long taps are kept" repository/board/reactions.go "kept > 0 && now.Add(-kept).After(taps.Since)" "kept < 0" ./repository/offers TestTapsOfThirtyDays
mutant "a driver's signals look back as long as taps are kept" repository/board/reactions.go "kept > 0 && now.Add(-kept).After(taps.Since)" "kept > 0" ./repository/offers TestTapsOfThirtyDays
mutant "a search ignores the cursor" $find "id >= last" "false" ./repository/dispatches TestSearch
mutant "an erased driver comes back into the index" repository/drivers/driver_index.go "if row.ErasedAt != nil {" "if false {" ./repository/drivers TestIndexOfDriversIsTrue
words=repository/drivers/driver_words.go
mutant "a changed driver keeps their words" repository/drivers/driver_index.go "if slices.Equal(wordsOf(was), words) {" "if len(was) > 0 {" ./repository/drivers TestIndexOfDriversIsTrue
mutant "a phone is not found by its end" $words "all = append(all, word)" "_ = word" ./repository/drivers TestListDrivers
mutant "a phone is not found as dialed at home" $words "number = end" "_ = end" ./repository/drivers TestListDrivers
mutant "a Korean name is not found by a part" $words "StringOrEmpty(row.FirebaseUID)}, row.Name)" "StringOrEmpty(row.FirebaseUID), row.Name})" ./repository/drivers TestListDrivers
mutant "an erased driver registers a device" repository/devices/devices.go "WHERE id = ? AND erased_at IS NULL" "WHERE id = ?" ./repository/drivers TestErasedDriverTakesNoPart
mutant "a demoted server decides a claim" repository/dispatches/claim_snapshot.go "if readOnly {" "if false {" ./repository/database TestReadOnlyServerAnswersNothing
mutant "a demoted server answers reads" repository/primary/connector.go "unchecked(ctx) || time.Since(c.checkedAt) < c.connector.recheckAfter" "true" ./repository/database TestReadOnlyServerAnswersNothing
mutant "a server that did not answer keeps its connections" repository/primary/connector.go "s.suspectedAt.CompareAndSwap(last, &now)" "false" ./repository/primary TestSuspicion
mutant "a server that commits nothing keeps its connections" repository/primary/connector.go "if (late ||" "if (late && false ||" ./repository/primary TestUnansweredStatement
mutant "a connection after a suspicion is used for minutes" repository/primary/connector.go "age = doubtedAge/2" "age += doubtedAge/2" ./repository/primary TestDoubtedConnection
mutant "a slow dial is believed" repository/primary/connector.go "took > quickDial &&" "took > time.Hour &&" ./repository/primary TestASlowDialIsRepeated
mutant "a connection is not checked at its first use" repository/primary/connector.go "	if c.taken {" "	if true {" ./repository/primary TestFirstUseIsChecked
mutant "the driver's panic goes on" repository/primary/connector.go "why := recover(); why != nil" "why := error(nil); why != nil" ./repository/primary TestUnreadableAnswer

suite=TestLockerAndLeader
mutant "a lease is trusted longer than the server keeps it" lock/hold.go "return ttl / 10" "return -ttl / 10" ./lock "$suite/NoOverlap"
mutant "a lease is trusted from the arrival of the answer" lock/renew.go "l.trustedUntil = l.trustEnd(sent)" "l.trustedUntil = l.trustEnd(time.Now())" ./lock "$suite/NoOverlapAfterSlow"
mutant "any client renews a lease" lock/redis.go 'if not value then return 0 end
if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
return redis.call("PEXPIRE"' 'if not value then return 0 end
return redis.call("PEXPIRE"' ./lock "TestRedisConforms/(OnlyTheOwner|ExtendTooLate)"
mutant "any client releases a lease" lock/redis.go 'if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call("DEL"' 'redis.call("DEL"' ./lock "TestRedisConforms/OnlyTheOwner"
mutant "fences restart after a flush" lock/redis.go "fence = math.max(fence, t[1] * 1000000 + t[2])" "" ./lock "TestRedisConforms/Flushed"
mutant "a lost acquisition's key is not removed" lock/locker.go "l.orphans.release(grant, sent.Add(hold.TTL), false)" "_ = sent" ./lock "$suite/ReplyOfAnAcquireLost"
mutant "a lost release's key is not removed" lock/lease.go "l.locker.orphans.release(l.grant, end, true)" "_ = end" ./lock "$suite/ReleaseInAPartition"
mutant "a release is sent once" lock/lease.go "if !errors.Is(err, ErrUnavailable) {
		return err
	}
	second := once()" "if true {
		return err
	}
	second := once()" ./lock "$suite/ReplyOfAReleaseLost"
mutant "a release ends with its caller's context" lock/lease.go "ctx = context.WithoutCancel(ctx) // a release" "_ = 0 // a release" ./lock TestReleaseAfterItsContext
mutant "renewal stops when the work is canceled" lock/renew.go "case lost != nil || releasing:" "case lost != nil || releasing || l.ctx.Err() != nil:" ./lock "$suite/Shutdown"
mutant "a lock without a run is kept" lock/lease.go "l.hold.AtLeast = 0" "_ = 0" ./schedule TestALockWithoutARunIsNotKept
mutant "an unanswered release that finds a rival succeeds" lock/lease.go 'return fmt.Errorf("%w: %w", second, err)' "return nil" ./lock TestNamedOfMariaDBConforms
mutant "a rival that has come and gone is not seen" lock/session_grant.go "!row.heldBy.Valid && row.fence == g.fence" "!row.heldBy.Valid" ./lock TestNamedOfMariaDBConforms
mutant "a hold has no limit" lock/lease.go "l.hold.AtMost > 0 && limit.Before(end)" "false && limit.Before(end)" ./lock "$suite/AtMost"
mutant "no beat is required" lock/renew.go "> 0 && sent.Sub(beat) >=" "< 0 && sent.Sub(beat) >=" ./lock "$suite/Beat"
mutant "AtLeast is ignored" lock/lease.go "keep := max(l.acquired.Add(atLeast).Sub(now), 0)" "_, keep := atLeast, time.Duration(0)" ./lock "$suite/Between"
mutant "a release wakes no waiter" lock/redis.go 'redis.pcall("PUBLISH", ARGV[2], "")
return 1' 'return 1' ./lock "TestRedisConforms/Watch$"
mutant "each lease is renewed by its own request" lock/redis_renew.go "maxRenewalsPerRequest = 500" "maxRenewalsPerRequest = 1" ./lock TestRedisRenewsTogether
mutant "a minority is enough" lock/quorum_votes.go "majority: servers/2 + 1" "majority: servers / 2" ./lock 'TestQuorum[A-BD-Z]'
mutant "an empty server is not healed" lock/quorum.go "if errors.Is(err, ErrExpired) {
		g.missing" "if false {
		g.missing" ./lock TestQuorumHeals
mutant "an unanswered restoration counts as a no" lock/quorum.go "return *why" "return ErrExpired" ./lock TestQuorumAcquisitionWithoutAnAnswer
mutant "a vote that is under way counts as a no" lock/quorum.go "case <-g.acquired[i]:
	default:
		return unavailable(ctx, errors.New(\"lock: the name is being acquired\"))" "default:" ./lock TestQuorumAcquisitionWithoutAnAnswer
mutant "a majority's fence is not written to the other servers" lock/quorum.go "return g.quorum.nodes[i].raiseFence(ctx, g.name, ownerPrefix(g.owner), g.fence)" "return nil" ./lock TestQuorumFencesGrow
mutant "every waiter of an instance asks the server" lock/waiters.go "case w.token <- struct{}{}:
		defer func() { <-w.token }()" "case w.token <- struct{}{}:
		<-w.token" ./lock TestOneOfACrowd
mutant "the leader resigns after the run" lock/leader.go "l.keptUntil = time.Now().Add(l.hold.TTL)" "l.keptUntil = time.Now()" ./lock 'TestALeadIsKept|TestLockerAndLeader/TheLeadIsKept'
mutant "a stale writer is accepted" lock/fences.go "case largest > fence:" "case largest > fence && false:" ./lock TestFencesRefuse
mutant "any client renews or releases a lock in the table" lock/table.go "WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(6)" "WHERE name = ? AND ? <> '' AND lock_until > UTC_TIMESTAMP(6)" ./lock TestTableOfMariaDBConforms/OnlyTheOwner
mutant "the operator's release leaves the fence" internal/app/lock_command.go "l.fences.Raise(ctx, name, h.Fence+1)" "l.fences.Raise(ctx, name, 1)" ./internal/app TestReleaseFences
mutant "the operator's release leaves the run" internal/app/lock_command.go "store.Runs.InterruptRuns(ctx, jobs)" "store.Runs.InterruptRuns(ctx, nil)" ./systemtest TestReleasedHolderConcludesNothing

outbox=repository/pushes/outbox.go
mutant "any instance settles a push" $outbox "WHERE id IN ? AND claim = ? AND state = 0" "WHERE id IN ? AND ? <> '' AND state = 0" ./repository/pushes TestOnlyTheOwnerRecordsResults
mutant "a push's lease ends at once" repository/pushes/leases.go "SET claim = ?, due_at = {now} + ?" "SET claim = ?, due_at = {now} + 0 * ?" ./repository/pushes TestExpiredLeaseIsTakenOver
mutant "any instance expands an event" repository/pushes/expand.go "WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ?" "WHERE e.id IN ? AND e.next_at IS NOT NULL AND ? <> ''" ./repository/pushes TestOnlyItsOwnerExpandsAnEvent
mutant "a small event waits for all of a large one" repository/pushes/leases.go "return min(due, *first+dueGap.Microseconds())" "return due" ./repository/pushes TestASmallEventPassesALargeOne
mutant "an offer that is leased meanwhile is sent without its end" repository/pushes/expand.go "int(done.RowsAffected) < len(e.obsolete)" "int(done.RowsAffected) < 0" ./repository/pushes TestAnOfferThatIsLeasedMeanwhile
mutant "a long event holds up those behind it" repository/pushes/expand.go "if e.takesLong() {" "if false {" ./repository/pushes TestALongEventEndsTheCall
mutant "a large audience is due at once" repository/pushes/expand.go "int64(len(e.rows)/notificationColumns/dueBatch)*dueGap" "0*int64(len(e.rows))*dueGap" ./repository/pushes TestASmallEventPassesALargeOne
mutant "each part of a large audience is due with the first" repository/pushes/expand.go "max(e.due, row.Walk.DueAt)" "e.due" ./repository/pushes TestAWalkThroughALargeAudience
mutant "a lower priority has no share" repository/pushes/leases.go "share := (limit + rand.IntN(10)) / 10" "share := 0 * rand.IntN(10)" ./repository/pushes TestEachPriorityHasItsShare
mutant "pushes that could not be read stay leased" repository/pushes/leases.go "pushes, now, err = o.pushes(tx, ids, until)" "pushes, now, _ = o.pushes(tx, ids, until)" ./repository/pushes TestLeasedPushesThatCouldNotBeRead
mutant "a released push goes to the end" repository/pushes/outbox.go 'since = "created_at"' 'since = "{now}"' ./repository/pushes TestReleasedPushIsDueAtOnce
mutant "a backlog is older than its pushes" repository/pushes/notifications.go "made.After(since)" "made.Before(since)" ./repository/pushes TestBacklogIsNoOlderThanItsPushes
mutant "a backlog is sent before what was just committed" notify/ready.go "r.last = (r.last + 1) % queueCount" "r.last = fromBacklog - r.last%1" ./notify TestCommittedPushesPassABacklog
mutant "an offer is pushed although it is taken" repository/pushes/leases.go "case p.Dispatch.Superseded(p.Type, p.Silent, p.Driver, p.Round):" "case false:" ./notify 'TestSuperseded/sqlite'
mutant "unsent pushes are kept at shutdown" notify/relay.go "r.releaseAll(anyPush, 0)" "_ = anyPush" ./notify 'TestRelayEnds/sqlite'
mutant "an expansion leaves its pushes to another query" notify/committed.go "Expand(ctx, events, places)" "Expand(ctx, events, 0*places)" ./notify 'TestBudgetOfADispatch/sqlite'
mutant "each completed event is a statement" notify/result_writer.go "len(events) < completeBatch" "len(events) < 1" ./notify 'TestEventsWithoutDeliveries/sqlite'
mutant "an audience is written in one piece" repository/pushes/audience.go "if err != nil || p.drivers <= part {" "if err != nil || true {" ./notify TestASmallAudienceIsWrittenBetweenLargeOnes
mutant "a walk forgets a page that had nobody to tell" repository/pushes/expand.go "if row.Walk.EventID != \"\" {" "if false {" ./repository/pushes TestAWalkPassesPagesWithoutRecipients/sqlite
mutant "an answer of the old URL pauses the new one" repository/webhooks/webhooks_complete.go "r.Lease.Delivery.Endpoint, r.Lease.URL}" "r.Lease.Delivery.Endpoint, \"https://new.example\"}" ./repository/webhooks TestEndpointThatIsGoneIsPaused/sqlite
mutant "a walk begins with the same driver each time" repository/pushes/audience.go "	w.Position = w.Start" "	w.Start, w.Position = \"\", \"\"" ./repository/pushes TestTheFirstPartIsAnotherEachTime
mutant "a part tells those of an earlier one again" repository/pushes/audience.go "|| told || busy" "|| busy" ./repository/pushes TestTheReplyOfAnOfferToFewIsLost
mutant "a storm of 503 pauses nothing" notify/throttle.go "case t.failures >= failuresToPause:" "case t.failures >= 1000:" ./notify 'TestThrottleBacksOff'
mutant "a full quota consumes attempts" notify/send.go "case Quota:
		s.RetryAfter" "case Quota:
		s.Attempts++
		s.RetryAfter" ./notify TestQuota
mutant "the SDK may repeat a 503" notify/fcm/transport.go "notOK = 599" "notOK = 503" ./notify/fcm TestUnavailableAnswersAtOnce
mutant "every report of a dead token is believed" notify/tokens.go "!t.acceptsSince(*suspected, now)" "false" ./notify 'TestTwoVerdicts'
mutant "a fleet may be quarantined at once" repository/devices/devices.go "if v == outbox.Quarantined {" "if false {" ./repository/devices TestFewAreQuarantinedAtOnce/sqlite
mutant "a dead token is tried again" notify/tokens.go "verdict{p.Device, outbox.Quarantined}" "verdict{p.Device, outbox.Suspected}" ./notify 'TestDeadToken/sqlite'
mutant "a lost reply ends the push" notify/send.go "case Unavailable, Unsure:
		s.Attempts++" "case Unavailable, Unsure:
		s.Status = outbox.Dead
		s.Attempts++" ./notify TestReplyIsLost
mutant "a notification without a tag" notify/fcm/message.go "&messaging.AndroidNotification{Tag: e.tag, " "&messaging.AndroidNotification{" ./notify/... 'TestReplyIsLost|TestMessages'
due=repository/due/due.go
mutant "an offer expires before its window ends" dispatch/rules.go "d.Status != Expired {" "false {" ./dispatch TestExpire
mutant "what is due is not checked again under the lock" $due "err != nil || still == 0" "err != nil" ./repository/due 'TestDueOnce/(ExpireOffers|Remind)/mariadb'
mutant "each check sends a reminder" $due "WHERE dispatch_id = d.id AND round = d.round AND type = ?) = 0" "WHERE dispatch_id = d.id AND round = d.round AND type = ?) >= 0" ./repository/due 'TestDueInBatches/Remind/mariadb'
mutant "unfinished work is closed" dispatch/rules.go 'if !d.WorkEndsAt.Before(now.Add(-after)) {' 'if false {' ./dispatch TestCloseOverdue
mutant "closing overdue work sends a push" dispatch/delivery.go "case e.Actor == System && e.ReasonCode == ReasonOverdue:" "case false:" ./dispatch TestPushed
mutant "what a killed migrator has done is an error" migrations/server.go "case isError(err, doneBefore):" "case false:" ./migrations TestDoneBefore
mutant "a version that is half taken back counts as applied" migrations/server.go "UPDATE goose_db_version SET is_applied = FALSE WHERE version_id = %d AND is_applied" "DO 0 -- %d" ./migrations TestCutAtEveryStatement
mutant "a migration fills the first rows only" migrations/server.go "err != nil || changed == 0 {" "err != nil || changed >= 0 {" ./migrations TestNextVersion
mutant "a session outlives the TTL of its name" lock/session_grant.go "SET SESSION wait_timeout = %d" "SET SESSION wait_timeout = 9%d" ./lock TestCutOffSession
mutant "the row that bars a claim is an event of its dispatch" repository/dispatches/claim.go "SELECT ?, '', '', 0," "SELECT ?, 'dsp_x', '', 0," ./repository/dispatches TestTheCommitNeverArrives
mutant "an unfinished run is pruned" repository/retention/retention.go "slot < ? AND status NOT IN ?" "slot < ? AND 'x' NOT IN ?" ./repository/retention 'TestRetentionOfTables/sqlite'
jobs=repository/runs/runs.go
mutant "a run begins beside a live run" dispatch/cronjob/cronjob.go "r.Status == Running && now.Before(*r.LeasedUntil)" "false && now.Before(*r.LeasedUntil)" ./repository/runs 'TestOneRunOfAJobAtATime/mariadb|TestBeginRun/mariadb'
mutant "a run that kills instances is taken over for ever" dispatch/cronjob/cronjob.go "r.Attempt >= MaxAttempts" "r.Attempt >= 1000" ./schedule TestARunThatKillsIsGivenUp
mutant "a slot begins again" $jobs 'job["slot"] = database.Micros(run.Slot)' '_ = job' ./repository/runs 'TestASlotIsBegunOnce/mariadb|TestBeginRun/mariadb'
mutant "an overtaken instance ends the run" $jobs "WHERE job = ? AND slot = ? AND owner = ? AND status IN ?" "WHERE job = ? AND slot = ? AND ? <> '' AND status IN ?" ./repository/runs 'TestFormerOwnerChangesNothing/mariadb'
mutant "a conclusion is written twice" $jobs "endRun(tx, run, end, cronjob.Running); err" "endRun(tx, run, end, cronjob.Running, cronjob.Succeeded); err" ./repository/runs 'TestConcludeRun/mariadb|TestConcludeWhoseCommitIsLost/mariadb'
mutant "a stopped instance keeps its run" schedule/ledger.go "a.abandoned && a.end.Status" "a.end.Status" ./schedule TestAnInstanceThatStopsGivesItsRunBack
mutant "a run cut at its limit is taken over instead of FAILED" schedule/run.go "return errors.Is(cause, lock.ErrMaxHold) ||" "return" ./schedule TestAWorkThatHangsIsCut
mutant "a job that does not run is not reported" schedule/job.go 'j.blocked("unavailable", lockAway, err)' "_ = err" ./schedule TestRedisIsGone
mutant "missed slots are skipped" schedule/watch.go "case j.wake <- struct{}{}:" "" ./schedule 'TestDowntime|TestRunNow'
mutant "jobs run by the instance's own clock" schedule/watch.go "j.due(state, now))" "j.due(state, time.Now()))" ./schedule TestSlotsByTheDatabasesClock
mutant "a leader without the ledger keeps the lead" schedule/lead.go "silence > maxSilence" "silence < 0" ./schedule TestLeaderWithoutItsLedger
mutant "a stuck leader keeps the lead" schedule/lead.go "j.OnLeader && j.stuck.Load() >= maxStuck" "j.OnLeader && j.stuck.Load() < 0" ./schedule TestStuckLeader
mutant "a job whose row is gone is forgotten" repository/runs/runs_list.go "len(jobs) < len(names)" "len(jobs) == 0" ./repository/runs TestRegisterJobs
mutant "the relay's leader keeps the lead without its database" internal/app/leader_relay.go "time.Since(r.upAt) < relayPatience" "true" ./internal/app TestLeaderWithoutItsDatabase
mutant "a relay without locks stops in a short outage of its database" internal/app/leader_relay.go "time.Since(r.upAt) < relayPatience" "time.Since(r.upAt) == 0" ./internal/app TestRelaysWithoutLocks
mutant "without locks nobody relays" internal/app/leader_relay.go "r.startSending(ctx); !r.blind" "r.stopSending(); !r.blind" ./internal/app TestRelaysWithoutLocks
mutant "a stopped relay keeps the lead" internal/app/leader_relay.go "defer r.resign(ctx)" "defer r.stopSending()" ./internal/app TestStoppedLeaderHandsOver
mutant "a key reads without a rest" handler/turns.go "min(took, maxRest)" "0*took" ./handler TestTurnsRest
mutant "a list waits for no turn" handler/turns.go "if !enter(ctx, own.turn) {" "if own.turn = make(chan struct{}, 1); !enter(ctx, own.turn) {" ./handler TestListsWaitForTheirTurn
mutant "bodies of strangers are held without a bound" handler/bodies.go "body.all = strangers" "_ = strangers" ./handler TestBodiesInFlight
mutant "work of an earlier round starts" service/driver_service.go "return round != 0 && round != d.Round" "return round < 0" ./service 'TestLateStepOfAnEarlierRound|TestWithdraw'
mutant "a known key above its rate is looked up" handler/auth.go "	if known {" "	if known && false {" ./handler TestRequestsAboveTheRateCostNoStatement
mutant "a look-up that failed is a verdict" notify/webhooks/address.go "if dns.IsNotFound {" "if dns != nil {" ./notify/webhooks TestNamesOfForbiddenAddresses
mutant "an answer undoes what an admin changes meanwhile" repository/webhooks/webhooks.go "			row.Version++" "" ./repository/webhooks TestADeletedEndpointIsNotPaused
mutant "a long supply has every point" repository/board/board.go "step > time.Minute {" "step > 1000*time.Hour {" ./repository/board TestSupplyIsBounded
mutant "unknown options of a database URL are ignored" repository/database/mysql.go 'key != "tls"' 'key == "?"' ./internal/config TestEachBadSetting
mutant "a stopping instance stays the leader" schedule/lead.go "s.leader.Resign(ctx)" "ctx.Err()" ./schedule TestTheLeader
mutant "a race is verified" service/checks.go "verifyAfter = time.Second" "verifyAfter = time.Duration(0)" ./service TestARaceIsNotVerified
mutant "a job without work runs at each slot" schedule/job.go "if j.Demand != nil && state.Slot != nil {" "if j.Demand == nil && state.Slot != nil {" ./schedule TestSlotsWithoutWork
mutant "a slot with work is passed over" schedule/job.go "min(j.workAt.Load(), idle)" "idle" ./schedule 'TestSlotsWithWork|TestUnknownDemand'
mutant "an idle job runs an hour later" schedule/job.go "state.Slot.Add(j.MaxIdle)" "state.Slot.Add(time.Hour)" ./schedule TestSlotsWithoutWork
mutant "an idle instance reads the ledger all the time" schedule/watch.go "time.Since(s.readAt) >= maxReadingAge" "!s.readAt.IsZero()" ./schedule TestIdleInstances
mutant "an outage of the ledger is not counted" schedule/watch.go "if s.states == nil {" "if err != nil {" ./schedule TestAnOutageOfTheLedgerIsFewLines
mutant "requested runs wait for the next reading" schedule/watch.go "!open.IsZero() && !open.After(now)" "open.Equal(now)" ./schedule TestRunNow
mutant "each part of an instance polls by itself" repository/poll/poll.go "time.Since(w.ReadAt) < maxAge" "maxAge < 0" ./repository/poll TestPollsAreShared
mutant "a poll tells of other processes' jobs" repository/poll/poll.go "WHERE j.name IN ? AND r.job" "WHERE (j.name IN ? OR 1 = 1) AND r.job" ./repository/poll 'TestPoll$/mariadb'
mutant "a look at an offer teaches nothing" repository/offers/offered.go "s.dispatches.Learn(&o.Dispatch)" "_ = o" ./repository/dispatches TestClaimAfterALook/mariadb
mutant "a missing privilege on a table ends the use of the procedure" $call "1558, 1044, 1064, 1227" "1558, 1044, 1064, 1142, 1227" ./repository/dispatches TestAUserWithoutPrivilegesForTables/mariadb
mutant "the scheduler uses the poll of another" $jobs "s.poll.Waiting(ctx, 0, jobs)" "s.poll.Waiting(ctx, poll.MaxAge, jobs)" ./repository/poll TestPollsAreShared
mutant "what is due is told by the database's clock" repository/poll/poll.go "w.ReadAt.Add(at.Sub(w.Now))" "at" ./repository/poll TestDue
mutant "a poll believes a read-only server" repository/poll/poll.go "case readOnly:" "case readOnly && now < 0:" ./repository/database TestReadOnlyServerAnswersNothing
mutant "a locked table makes an instance not ready" repository/database/probe.go "err := d.Ping(ctx); err" 'err := d.Watch.With(ctx).Exec("SELECT 1 FROM topics").Error; err' ./repository/poll TestProbeWhileATableIsLocked
mutant "the end of a lease is noticed late" notify/poll.go "time.AfterFunc(wait, signal.Set)" "if wait <= 0 { signal.Set() }" ./notify TestEndOfALease
mutant "a failed poll stops the relay" notify/poll.go "due = outbox.Due{ReadAt: now, Events: now, Notifications: now, Topics: now}" "due.ReadAt = now" ./notify TestRelayWithoutPolls
mutant "the gauges of the backlog need a poll" notify/metrics.go "err == nil && (at.IsZero()" "(at.IsZero()" ./notify TestRelayWithoutPolls
lease=repository/webhooks/webhooks_lease.go outcome=repository/webhooks/webhooks_complete.go
fanout=repository/webhooks/webhooks_fanout.go
mutant "a webhook overtakes an earlier one" $lease "p.event_id < d.event_id OR" "p.event_id < '' OR" ./repository/webhooks TestLaterEventWaitsForTheEarlier
mutant "a webhook overtakes an earlier one that is not written" $lease "q.event_id < d.event_id" "q.event_id < ''" ./repository/webhooks TestLaterEventWaitsForTheEarlier
mutant "a webhook is sent beside a later one of its dispatch" $lease "OR p.event_id > d.event_id AND p.claim <> '' AND p.next_at > {now}" "" ./repository/webhooks TestALateEventIsSentNext
mutant "a webhook overtakes a replay" $lease "AND e.id > ? AND e.id <= ?" "AND 1 = 0 AND e.id > ? AND e.id <= ?" ./repository/webhooks TestNewEventsWaitForTheReplay
mutant "a lost lease of a webhook counts" $outcome "AND claim = ? ORDER BY" "AND (claim = ? OR claim <> '') ORDER BY" ./repository/webhooks TestLostLeaseOfADelivery
mutant "the result of an attempt counts twice" $outcome "row.Attempt+1 != r.Lease.Attempt" "row.Attempt < 0" ./repository/webhooks TestLostLeaseOfADelivery
mutant "a delivery that ends wakes none" $outcome "if len(ended) == 0 {" "if len(ended) >= 0 {" ./repository/webhooks 'TestLaterEventWaitsForTheEarlier|TestTheNextDeliveryIsDueAtOnce'
mutant "a fan-out waits for other transactions" $fanout "event_id LIMIT ? {skip_locked}" "event_id LIMIT ? {for_update}" ./repository/webhooks TestFanOutWaitsForNobody
mutant "an event stays in the queue" $fanout "q.dispatch_id = ? AND q.event_id = ?" "q.dispatch_id = ? AND q.event_id < ?" ./repository/webhooks TestDeliveriesOfEvents
mutant "a claim is no webhook" repository/dispatches/claim_call.go "INSERT INTO webhook_events (dispatch_id, event_id) SELECT p_dispatch, p_event FROM webhooks WHERE status = 'ACTIVE' LIMIT 1;" "" ./repository/webhooks TestDeliveriesOfEvents
mutant "a change is no webhook" repository/journal/events.go "return queueForWebhooks(tx, events)" "return nil" ./repository/webhooks TestDeliveriesOfEvents
mutant "an endpoint is paused when it begins to fail" $outcome ".Add(webhook.PauseAfter)" "" ./repository/webhooks TestEndpointThatFailsIsPaused
mutant "a success does not count" $outcome "			w.FailingSince = nil" "" ./repository/webhooks TestEndpointThatFailsIsPaused
mutant "a webhook that was not sent counts as an attempt" $outcome "if v == failed || v == succeeded {" "if v != gone {" ./repository/webhooks TestLostLeaseOfADelivery
mutant "a webhook that failed is tried for ever" $outcome "	case again:" "	case again || n > 7:" ./repository/webhooks TestAttemptsOfADelivery
mutant "a paused endpoint gets events" $fanout 'FROM webhooks WHERE status = ? ORDER BY id"' "FROM webhooks WHERE (status = ? OR status = 'PAUSED') ORDER BY id\"" ./repository/webhooks TestDeliveriesOfEvents
mutant "a replay that is asked for again is lost" repository/webhooks/webhooks_replay.go "replay_until IS NOT NULL {skip_locked}" "replay_until IS NOT NULL" ./repository/webhooks TestReplayThatIsAskedForAgain
mutant "a poll that failed leaves the one before it" repository/poll/poll.go "	p.latest.Store(w)" "	if err == nil {
		p.latest.Store(w)
	}" ./repository/poll TestPollThatFails
mutant "a failed poll keeps runs from beginning" schedule/watch.go "return true // the ledger" "return false // the ledger" ./schedule TestJobsWithoutPolls
mutant "a failing job without work seems to succeed" schedule/metrics.go "now := time.Now(); !m.failing {" "now := time.Now(); m != nil {" ./schedule TestFailingJobWithoutWork
mutant "the board counts what is over as open" repository/board/supply.go "region, -COUNT(*)" "region, 0" ./repository/board TestBoardCounts
mutant "the board counts all that ever expired" repository/board/supply.go "SUM(expires_at >= {now} - @window)" "COUNT(*)" ./repository/board TestBoardCounts
mutant "history is deleted at full speed" repository/retention/retention.go "rest(ctx, time.Since(began))" "rest(ctx, 0*time.Since(began))" ./repository/retention TestPruneRests
mutant "claims of a removed dispatch are not renumbered" repository/retention/retention.go "err := renumberClaims(tx, id); err != nil" "err := error(nil); err != nil" ./repository/retention 'TestRemovalOfTheNewestClaim/sqlite'
mutant "a missed slot with work is not made up for" schedule/watch.go "len(state.Unfinished) > 0 || j.toRun(state, now)" "len(state.Unfinished) > 0" ./schedule TestMissedSlotWithWork
mutant "an expansion that failed is never retried" notify/poll.go "if r.failed.any() {" "if r == nil {" ./notify TestAReleaseIsLost
mutant "a text outlives its dispatch's version" notify/fcm/text.go "d.ID, d.Version, " "d.ID, 0, " ./notify/fcm TestTextsOfOneSender
mutant "a text outlives its day" notify/fcm/text.go "now.Year()*1000 + now.YearDay()" "now.Year()" ./notify/fcm TestTextsOfOneSender
mutant "a push that is handed over is lost" notify/send.go "case p = <-r.handOver:" "case <-r.handOver:" ./notify TestWaitingEvents
mutant "a tap is not stored" service/accept.go "a.attempts.Record(ctx, tap, arrived, err)" "_ = arrived" ./service TestEveryTapIsKept

once=repository/journal/idempotency.go
mutant "names in any case are accepted" handler/request.go "json.MatchCaseInsensitiveNames(false)" "json.MatchCaseInsensitiveNames(true)" ./handler TestNamesCountOnce
mutant "changed terms stay in the same round" dispatch/changes.go "d.Round++" "_ = agreed" ./handler TestRandomLifecycles
mutant "an assignment ignores the version" dispatch/changes.go "	case version != d.Version:
		return nil, ErrVersionConflict
	case d.Status == Canceled:" "	case d.Status == Canceled:" ./handler TestRandomLifecycles
mutant "a busy driver is assigned" dispatch/changes.go "	if c.Busy {
		return nil, ErrDriverBusy
	}" "" ./handler TestRandomLifecycles
mutant "taps after an assignment ask the database" service/backoffice.go "s.acceptor.markTaken(ctx, id, *d.Claim)" "_ = d" ./service 'Assign'
mutant "an answer is made twice" $once "case row.LeaseEnds > database.Micros(now):" "case false:" ./handler TestTwentyAtOnce
mutant "a repeated request gets a new seed" $once "row.Leased, row.LeaseEnds = fresh.Leased, fresh.LeaseEnds" "row = fresh" ./handler TestAfterADeath
mutant "new rounds in a row are pushed at once" dispatch/opening.go "if len(recent) == 0 {" "if true {" ./dispatch TestOpeningsAreDamped
mutant "a 503 is replayed" handler/idempotency.go "return a.Status < 400" "return true" ./handler TestAnswersThatAreNotKept
mutant "a decline changes the dispatch's version" dispatch/offer.go "	e := d.event(EventDeclined" "	d.bumpVersion(now)
	e := d.event(EventDeclined" ./dispatch .
mutant "an unwritten tap is reported as missing" service/driver_service.go "if !written ||" "if !written && false ||" ./handler TestReceiptWithoutTheLedger
mutant "each instance limits by itself" internal/limit/limit.go "if l.Redis == nil {" "if true {" ./internal/limit 'TestThreeInstances$'
mutant "a pause forgets what was paid" internal/limit/limit.go "case c.credit > 0:" "case c.credit > 0 && !quiet:" ./internal/limit TestCreditOutlastsAPause
mutant "every request asks Redis" internal/limit/limit.go "	case c.credit > 0: // also after a pause: it is paid for
		c.credit--
		return 0
" "" ./internal/limit 'TestFirstTapsDoNotWait|TestThreeInstances'
mutant "a disabled user stays signed in" internal/firebase/users.go "return !v.value.gone && !issued.Before(v.value.validSince)" "return !issued.Before(v.value.validSince)" ./internal/firebase TestRefusedWithinAMinute
mutant "a user who signed out everywhere stays signed in" internal/firebase/users.go "return !v.value.gone && !issued.Before(v.value.validSince)" "return !v.value.gone" ./internal/firebase TestRefusedWithinAMinute
mutant "a revoked client's stream goes on" handler/stream.go "< recheckInterval" "< 1000*recheckInterval" ./handler TestStreamOfARevokedCaller
mutant "a stream goes on after its session's end" handler/stream.go "!with.until.IsZero() && " "false && " ./handler TestStreamOfASession
mutant "a stream keeps the buffers of its request" handler/stream.go "conn, _, err := control.Hijack()" "conn, kept, err := control.Hijack()
	check = func(context.Context) error { _ = kept.Reader.Buffered(); return nil }" ./handler TestMemoryOfAStream
mutant "a stream is counted when it begins" handler/middleware.go "c.Get(outlived) == nil" "true" ./handler TestStreamIsObservedAtItsEnd
mutant "HTTP/1.0 gets chunks" handler/stream.go "c.Request().ProtoAtLeast(1, 1)" "true" ./handler TestFormOfAStream
live=notify/stream/connection.go
mutant "a stream keeps its request's goroutine" $live "	go func() {" "	func() {" ./handler TestMemoryOfAStream
mutant "a stream without the last chunk" $live "broken == nil && c.Chunked" "false" ./handler TestFormOfAStream
mutant "a client that has gone keeps its stream" $live "			s.end(errGone)" "			_ = errGone" ./handler TestHangingUpEndsTheStream
mutant "a panic of one stream ends the instance" $live "p := recover(); p != nil" "p := any(nil); p != nil" ./notify/stream TestPanicOfAStream
mutant "a client that has gone keeps its connection" $live "			c.Close() // at once" "			_ = c // at once" ./notify/stream TestHangingUp
mutant "a client that has gone is served until a heartbeat" notify/stream/deliver.go "	s.wake.Set()
	last :=" "	last :=" ./notify/stream TestHangingUp
mutant "the stop waits for clients that read nothing" $live "context.AfterFunc(s.hub.lasting, func() { c.Close() })" "context.AfterFunc(s.hub.lasting, func() {})" ./notify/stream 'TestShutdownWaits|TestLateStream'
mutant "the stop does not wait for the streams' last words" notify/stream/hub.go "	case <-ctx.Done():
		h.endLasting()" "	default:
		h.endLasting()" ./notify/stream TestShutdownWaits
mutant "each client's event is encoded again" notify/stream/stream.go "return m.forDriver(&v, now)" "return append([]byte(nil), m.forDriver(&v, now)...)" ./notify/stream TestOneEventIsEncodedOnce
mutant "a stream that has ended loads its driver" notify/stream/serve.go "	if s.ended() {" "	if false {" ./notify/stream TestEndedStreamsDoNotReload
mutant "an idle stream has one heartbeat" notify/stream/serve.go "		timer.Reset(due.Sub(now))" "" ./notify/stream TestHeartbeats
mutant "a stream that is idle never ends" notify/stream/serve.go "		return due
	}
	return end" "		return due
	}
	return now.Add(1000 * time.Hour)" ./notify/stream TestHeartbeats
mutant "all streams load their drivers at once" notify/stream/hub.go "make(chan struct{}, maxReloads)" "make(chan struct{}, 100*maxReloads)" ./notify/stream TestFewStreamsReloadAtOnce
mutant "Redis keeps a quiet stream for ever" notify/stream/bus.go "strconv.FormatUint(oldest, 10)" "strconv.FormatUint(0*oldest, 10)" ./notify/stream TestBusForgets
mutant "an instance trims by its own clock" notify/stream/follow.go "h.bus.markAndTrim(ctx, last," "h.bus.markAndTrim(ctx, h.ids.next(h.options.Now())," ./notify/stream TestInstanceWithAWrongClock
mutant "a burst fills Redis" notify/stream/bus.go "MaxLen: busLength, Approx: true, " "" ./notify/stream TestBurstDoesNotFillRedis
mutant "another origin's page uses a session" handler/session.go "s.crossOrigin.Check(&change); err != nil" "s.crossOrigin.Check(&change); err != nil && false" ./handler TestCrossSite
mutant "a session never ends" handler/session.go "err != nil || !now.Before(v.until)" "err != nil" ./handler TestSessionEnds
mutant "scripts read the session" handler/session.go "HttpOnly: true" "HttpOnly: false" ./handler 'TestSession$'
mutant "a cookie beats the header" handler/session.go "len(c.Request().Header.Values(echo.HeaderAuthorization)) > 0" "len(c.Cookies()) == 0" ./handler TestHeaderBeatsCookie
mutant "the demo keeps its folder" internal/demo/demo.go "os.RemoveAll(dir)" "error(nil)" ./systemtest 'TestDemo$'
mutant "any role may make a change" handler/auth.go "if key.Role < role {" "if false {" ./handler TestMatrix
hooks=notify/webhooks/client.go
mutant "a webhook's connection is not checked" $hooks "dialer.Control = c.checkConnection" "_ = c.checkConnection" ./notify/webhooks 'TestAddressesThatAreRefused|TestNameThatChanges'
mutant "an address of a webhook is not checked at its registration" notify/webhooks/address.go "return u, c.checkAddress(address)" "return u, func(netip.Addr) error { return nil }(address)" ./notify/webhooks TestAddressesThatAreRefused
mutant "a name of a private address may be registered" notify/webhooks/address.go "err := c.checkAddress(a.Unmap()); err != nil" "err := c.checkAddress(a.Unmap()); err != nil && false" ./notify/webhooks TestNamesOfForbiddenAddresses
mutant "numbers are names" notify/webhooks/address.go "case endsInNumber(host):" "case host == \"\":" ./notify/webhooks TestAddressesThatAreRefused
mutant "webhooks by http" notify/webhooks/address.go '(u.Scheme != "http" || !c.options.AllowPrivate)' '(u.Scheme != "http")' ./notify/webhooks TestURLsThatAreRefused
mutant "a redirect by 302 is followed" $hooks "s != http.StatusTemporaryRedirect &&" "s != http.StatusFound && s != http.StatusTemporaryRedirect &&" ./notify/webhooks TestRedirectsThatAreRefused
mutant "redirects of a webhook without end" $hooks "len(via) > maxRedirects" "len(via) > 9" ./notify/webhooks TestDelivery
mutant "a redirect tells the URL before it" $hooks 'req.Header.Del("Referer")' "_ = req" ./notify/webhooks TestDelivery
mutant "an answer to a webhook without end" $hooks "io.LimitReader(resp.Body, webhook.MaxAnswer)" "io.LimitReader(resp.Body, 1<<20)" ./notify/webhooks TestBoundedAnswers
mutant "a header of an answer without end" $hooks "MaxResponseHeaderBytes: maxHeader" "MaxResponseHeaderBytes: 64 * maxHeader" ./notify/webhooks TestBoundedAnswers
mutant "an attempt may take a minute" $hooks "context.WithTimeout(ctx, webhook.AttemptTimeout)" "context.WithTimeout(ctx, time.Minute)" ./notify/webhooks TestBoundedAnswers
mutant "an idle connection that is closed fails a delivery" $hooks 'req.Header["Idempotency-Key"] = []string{}' "_ = req" ./notify/webhooks TestIdleConnectionThatIsClosed
mutant "the log of a delivery has its URL" $hooks "err = request.Err" "_ = request.Err" ./notify/webhooks TestErrorsWithoutURL
mutant "an old secret signs for ever" notify/webhooks/signature.go "&& at.Before(l.Secrets.PreviousUntil)" "" ./notify/webhooks TestSignatures
mutant "a rotation ends the old secret" notify/webhooks/signature.go "secrets = append(secrets, l.Secrets.Previous)" "_ = secrets" ./notify/webhooks TestSignatures
courier=notify/webhooks/courier.go
mutant "an endpoint that hangs occupies all" $courier "perEndpoint, busy, room" "maxInFlight, busy, room" ./notify/webhooks TestHangingEndpoint
mutant "the slots of other endpoints are not enough" $courier "perEndpoint * webhook.MaxEndpoints" "perEndpoint * 16" ./notify/webhooks TestAllEndpointsHang
mutant "a full lease is the last one" $courier "		if more {
			c.deliveriesDue.Set()" "		if more && false {
			c.deliveriesDue.Set()" ./notify/webhooks TestAllEndpointsHang
mutant "a record wakes no lease" $courier "	c.deliveriesDue.Set()
}

// write writes" "}

// write writes" ./notify/webhooks TestResultsAreBatched
mutant "a commit does not wake the courier" $courier "func (c *Courier) OnCommit() { c.eventsDue.Set() }" "func (c *Courier) OnCommit() {}" ./notify/webhooks TestEventsAreWritten
mutant "without an endpoint each commit costs a write" $courier "sleep(ctx, c.options.PollInterval)" "" ./notify/webhooks TestEventsAreWritten
mutant "a lease during the stop is attempted" $courier "ctx.Err() != nil || time.Until" "time.Until" ./notify/webhooks TestLeaseDuringTheStop
mutant "a lease that is about to end is attempted" $courier "|| time.Until(l.LeasedUntil) < webhook.AttemptTimeout" "" ./notify/webhooks TestShortLease
mutant "a stop is an endpoint's failure" $courier "if ctx.Err() != nil && !r.Succeeded() {" "if false {" ./notify/webhooks TestDrain
mutant "a stop waits for every attempt" $courier "time.AfterFunc(c.options.DrainTimeout, stop)" "time.AfterFunc(time.Hour, stop)" ./notify/webhooks TestDrain
mutant "a stop waits for the database" $courier "c.results.run(lasting)" "c.results.run(context.WithoutCancel(ctx))" ./notify/webhooks TestStopWhileTheDatabaseIsAway
mutant "a result is given up at once" notify/webhooks/results.go "time.Now().After(end)" "!end.IsZero()" ./notify/webhooks TestDatabaseAway
mutant "a webhook that is due without a word waits for a poll" $courier "time.AfterFunc(wait, c.Wake)" "time.AfterFunc(max(0, wait)*2, c.Wake)" ./notify/webhooks TestDueWithoutAWord
replica=repository/database/replica.go
mutant "a list does not wait for the replica" $replica "case !there.Bool:" "case false:" ./repository/database TestListsHaveWhatWasCommitted
mutant "a list of a replica that fails is not read again" $replica "!errors.Is(err, dispatch.ErrUnavailable) { // an answer" "true { // an answer" ./repository/database TestListsHaveWhatWasCommitted
mutant "every list tries a replica that failed" $replica "return time.Now().Before(r.askAfter)" "return false" ./repository/database 'TestReplicaThatIsGone|TestAReplicaThatFailed'
mutant "a list from before brings a replica back" $replica "!inUse && !now.Before(r.askAfter):" "!inUse:" ./repository/database TestAReplicaThatFailed
mutant "lists have states by the replica's clock" $replica "r.text, clock, d" "d.text, clock, d" ./repository/database TestReplicaThatCantAnswer
mutant "any database is taken for the replica" $replica "case origin != p.origin:" "case false:" ./repository/database TestReplicaThatCantAnswer
mutant "a demoted primary says how far the primary is" $replica "if at.readOnly {" "if false {" ./repository/database TestReplicaThatCantAnswer
mutant "a driver's jobs are read from the replica" repository/dispatches/read.go 'if q.Driver != "" {' "if false {" ./systemtest TestReplicaAnswersLists
mutant "each request with an invalid key takes a connection" internal/auth/keys.go "reading: make(chan struct{}, 1)}" "reading: make(chan struct{}, 9)}" ./internal/auth TestManyInvalidKeysTakeOneConnection
wait
[ "$check" = --check ] || echo "The mutants took $SECONDS s."
[ ! -e "$tmp/lived" ]
