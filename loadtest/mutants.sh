#!/usr/bin/env bash
# Breaks the code on purpose, one promise at a time, in a copy, and checks that the tests notice. It prints a table of what
# was broken and which test failed, and fails if all tests passed. Each mutant names its tests, to save time.
set -euo pipefail

cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export FIRSTTAP_TEST_REQUIRE=redis,mariadb,faketime
lived=0

# --check breaks nothing: it fails if a mutant's pattern is no longer in its file.
check=${1:-}

# mutant WHAT FILE PATTERN REPLACEMENT PACKAGE TESTS: the pattern is a fixed string that must be in the file.
mutant() {
  local what=$1 file=$2 pattern=$3 replacement=$4 package=$5 tests=$6 caught
  if [ "$check" = --check ]; then
    PATTERN=$pattern perl -0ne '/\Q$ENV{PATTERN}\E/ or exit 1' "$file" && return
    printf '%-62s NOT IN %s\n' "$what" "$file" && lived=1 && return
  fi
  rm -rf "$tmp/src" && mkdir "$tmp/src"
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$tmp/src"
  PATTERN=$pattern REPLACEMENT=$replacement perl -0pi -e \
    's/\Q$ENV{PATTERN}\E/$ENV{REPLACEMENT}/g or die "not in the file: $ENV{PATTERN}\n"' "$tmp/src/$file"
  if (cd "$tmp/src" && ! go vet "$package" >"$tmp/log" 2>&1); then
    printf '%-62s DOES NOT COMPILE\n' "$what" && tail -n 5 "$tmp/log" && lived=1 && return
  fi
  if (cd "$tmp/src" && go test -timeout 2m -run "$tests" "$package" >"$tmp/log" 2>&1); then
    printf '%-62s LIVED\n' "$what" && lived=1 && return
  fi
  caught=$(grep -oE -- '--- FAIL: [A-Za-z]+' "$tmp/log" | sort -u | sed 's/--- FAIL: //' | paste -sd ' ' || true)
  printf '%-62s %s\n' "$what" "${caught:-$(grep -m1 -E 'panic|race' "$tmp/log")}"
}

claim=repository/claim.go
conditions=TestEachConditionOfTheClaimHolds
mutant "the UPDATE without the status" $claim "AND status = 'PENDING' " "" ./repository "$conditions"
mutant "the UPDATE without the round" $claim "AND round = ?" "AND ? > 0" ./repository "$conditions"
mutant "the UPDATE without opens_at" $claim '"opens_at <= "+s.dialect.now()' '"1 = 1"' ./repository "$conditions"
mutant "the UPDATE without expires_at" $claim 'AND expires_at > `+s.dialect.now()+`' "" ./repository "$conditions"
mutant "the UPDATE without the driver's version" $claim "WHERE id = ? AND version = ?\`+s" "WHERE id = ? AND ? > 0\`+s" ./repository "$conditions"
mutant "the driver's other claims overlooked" $claim "snapshot.claims + 1" "snapshot.claims + 2" ./repository "$conditions"
mutant "no re-read after a lost COMMIT" $claim "err = s.resolve(ctx, id, d.Claim.ID, err)" "_ = s.resolve" ./systemtest TestReplyOfCommitIsLost
mutant "the re-read does not wait for the row" $claim '"SELECT id FROM dispatches WHERE id = ?"+s.dialect.forUpdate' '"SELECT id FROM dispatches WHERE id = ?"' ./repository TestTheCommitArrivesLate
mutant "a lost COMMIT taken for a failed one" repository/tx.go '%w: commit: %w", dispatch.ErrUnknown' '%w: commit: %w", dispatch.ErrUnavailable' ./systemtest TestReplyOfCommitIsLost
mutant "the claim ends with the client's connection" service/accept.go "context.WithTimeout(context.WithoutCancel(ctx), decideTimeout)" "context.WithTimeout(ctx, decideTimeout)" ./systemtest TestClientHangsUp
mutant "a release that is anybody's" lock/gate.go 'if redis.call("GET", KEYS[1]) == ARGV[1] then return' 'if true then return' ./lock TestOnlyTheOwner
mutant "a marker over anybody's lock" lock/gate.go 'if redis.call("GET", KEYS[1]) == ARGV[1] then
' 'if true then
' ./lock TestOnlyTheOwner
mutant "the marker's round not read" service/marker.go "m.committed && tap.Round < m.round" "m.committed" ./systemtest TestInvalidRedisKeys
mutant "the cache's round not read" service/inflight.go " && tap.Round <= h.round" "" ./systemtest TestRounds
mutant "the cache believed without a round" service/inflight.go "tap.Round != 0 && " "" ./service .
mutant "an own key taken for a rival's" service/marker.go "m.driver == tap.Driver" "false" ./systemtest TestInvalidRedisKeys
mutant "a key without an end" lock/gate.go ', "PX", ttl.Milliseconds()).Text()' ').Text()' ./lock TestOneOwner
mutant "the lock kept after a failed claim" service/accept.go "err = lease.Release(ctx)" "err = nil" ./systemtest 'TestReplyOfUpdateIsLost|TestCommitFails'
mutant "nobody told who was turned away" service/accept.go "a.reannouncer.schedule(tap, 0, f.refused...)" "_ = a.reannouncer" ./service .
mutant "nobody told when an instance is killed" service/accept.go "a.reannouncer.schedule(tap, followUpRetry)" "_ = a.reannouncer" ./systemtest TestInstanceIsKilled
mutant "the claim without its outbox row" repository/outbox.go "return tx.Create(&outbox).Error" "return nil" ./systemtest TestExactlyOneWinner
mutant "a claim given back can be replayed" dispatch/rules.go "round == 0 && c.Withdrew" "false" ./systemtest TestRounds
mutant "losers ask Redis though the process knows" service/inflight.go "if !ok || old.round <= h.round {" "if false {" ./service .
mutant "any algorithm for a token" service/tokens.go "jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // or a token could choose \"none\"" "" ./handler TestForgedTokens
mutant "a token without an end" service/tokens.go "jwt.WithExpirationRequired(), " "" ./handler TestForgedTokens
mutant "unknown fields taken" handler/request.go "json.RejectUnknownMembers(true)" "json.RejectUnknownMembers(false)" ./handler TestBadBodies
mutant "a revoked token is good" service/tokens.go "t.revocations.isRevoked(v.driver, v.generation)" "false" ./service TestGenerations
mutant "a suspended driver starts" dispatch/rules.go " && v.Suspended(now)" " && false" ./dispatch TestEveryAction
mutant "withdrawals without a limit" dispatch/withdrawal.go "if wait > 0 {" "if false {" ./repository TestWithdraw
mutant "a driver who can't win keeps others out" service/accept.go "if unwinnable && a.inflight.sideline(tap.Driver) {" "if unwinnable && false {" ./service TestHopelessTaps
mutant "a lost claim is not counted" service/verify.go "v.lost.Add(1)" "" ./service 'TestLostClaim$'
mutant "a demoted server decides a claim" repository/claim.go "if row.ReadOnly {" "if false {" ./repository TestReadOnlyServerAnswersNothing
mutant "a demoted server answers reads" repository/primary.go "c.primary.recheckAfter < 0 || time.Since(c.checkedAt) < c.primary.recheckAfter" "true" ./repository TestReadOnlyServerAnswersNothing

suite=TestRedisConforms/Together
mutant "a lease trusted until the server ends it, and longer" lock/hold.go "return ttl / 10" "return -ttl / 10" ./lock "$suite/NoOverlap"
mutant "a lease trusted from when the answer came" lock/renew.go "l.trustedUntil = l.trustEnd(sent)" "l.trustedUntil = l.trustEnd(time.Now())" ./lock "$suite/NoOverlapAfterSlow"
mutant "a renewal that is anybody's" lock/redis.go 'if not value then return 0 end
if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
return redis.call("PEXPIRE"' 'if not value then return 0 end
return redis.call("PEXPIRE"' ./lock "$suite/(OnlyTheOwner|Stolen)"
mutant "a lease's release that is anybody's" lock/redis.go 'if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call("DEL"' 'redis.call("DEL"' ./lock "$suite/OnlyTheOwner"
mutant "fences that begin anew after a flush" lock/redis.go "fence = math.max(fence, t[1] * 1000000 + t[2])" "" ./lock "$suite/Flushed"
mutant "what an acquisition left stays behind" lock/locker.go "l.orphans.release(grant, sent.Add(hold.TTL), false)" "_ = sent" ./lock "$suite/ReplyOfAnAcquireLost"
mutant "what a release left stays behind" lock/lease.go "l.locker.orphans.release(l.grant, end, true)" "_ = end" ./lock "$suite/ReleaseInAPartition"
mutant "a release is sent once" lock/lease.go "if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if err = once()" "if true {
		return err
	}
	if err = once()" ./lock "$suite/ReplyOfAReleaseLost"
mutant "a release ends with its caller's context" lock/lease.go "ctx = context.WithoutCancel(ctx) // a release" "_ = 0 // a release" ./lock TestReleaseAfterItsContext
mutant "renewal stops when the work is called off" lock/renew.go "case lost != nil || releasing:" "case lost != nil || releasing || l.ctx.Err() != nil:" ./lock "$suite/Shutdown"
mutant "no end to a hold" lock/lease.go "l.hold.AtMost > 0 && limit.Before(end)" "false && limit.Before(end)" ./lock "$suite/AtMost"
mutant "no beat asked for" lock/renew.go "> 0 && sent.Sub(beat) >=" "< 0 && sent.Sub(beat) >=" ./lock "$suite/Beat"
mutant "AtLeast forgotten" lock/lease.go "keep := max(l.acquired.Add(l.hold.AtLeast).Sub(now), 0)" "keep := time.Duration(0)" ./lock "$suite/Between"
mutant "a release wakes nobody" lock/redis.go 'redis.pcall("PUBLISH", ARGV[2], "")
return 1' 'return 1' ./lock TestRedisConforms/Handover
mutant "each lease renewed on its own" lock/redis_renew.go "maxRenewalsPerRequest = 500" "maxRenewalsPerRequest = 1" ./lock TestRedisRenewsTogether
mutant "a minority is enough" lock/quorum_votes.go "majority: servers/2 + 1" "majority: servers / 2" ./lock 'TestQuorum[A-BD-Z]'
mutant "an empty server is not healed" lock/quorum.go "g.missing[i].Store(errors.Is(err, ErrExpired))" "g.missing[i].Store(false)" ./lock TestQuorumHeals
mutant "a majority's fence kept to itself" lock/quorum.go "return g.quorum.nodes[i].raiseFence(ctx, g.name, ownerPrefix(g.owner), g.fence)" "return nil" ./lock TestQuorumFencesGrow
mutant "a crowd asks one by one" lock/waiters.go "case w.token <- struct{}{}:
		defer func() { <-w.token }()" "case w.token <- struct{}{}:
		<-w.token" ./lock TestOneOfACrowd
mutant "the lead given up after the run" lock/leader.go "l.keptUntil = time.Now().Add(l.hold.TTL)" "l.keptUntil = time.Now()" ./lock 'TestALeadIsKept|TestRedisConforms/Together/TheLeadIsKept'
mutant "a stale writer let through" lock/fences.go "case largest > fence:" "case largest > fence && false:" ./lock TestFencesRefuse
mutant "the table by anybody's name" lock/table.go "WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(6)" "WHERE name = ? AND ? <> '' AND lock_until > UTC_TIMESTAMP(6)" ./lock 'TestTableOfMariaDBConforms/Together/OnlyTheOwner'
mutant "the operator's release leaves the fence" app/lock_command.go "l.fences.Raise(ctx, name, h.Fence+1)" "l.fences.Raise(ctx, name, 1)" ./app TestLockCommand
mutant "the operator's release leaves the run" app/lock_command.go "store.InterruptRuns(ctx, jobs)" "store.InterruptRuns(ctx, nil)" ./systemtest TestReleasedHolderConcludesNothing

outbox=repository/outbox.go
mutant "anybody settles a push" $outbox "WHERE id IN ? AND claim = ? AND state = 0" "WHERE id IN ? AND ? <> '' AND state = 0" ./repository TestOnlyTheOwnerRecordsResults
mutant "a lease that is no lease" repository/lanes.go 'SET claim = ?, next_at = " + now + " + ? WHERE' 'SET claim = ?, next_at = " + now + " + 0 * ? WHERE' ./repository TestExpiredLeaseIsTakenOver
mutant "an event is expanded by anybody" repository/expand.go "WHERE event_id = ? AND state = 0 AND claim = ?" "WHERE event_id = ? AND state = 0 AND ? <> ''" ./repository TestOnlyItsOwnerExpandsAnEvent
mutant "an offer is pushed though it is taken" $outbox "case p.Dispatch.Superseded(p.Type, p.Silent, p.Driver, p.Round):" "case false:" ./notify 'TestSuperseded/sqlite'
mutant "what was not sent is kept at the end" notify/relay.go "r.releaseAll(anyPush, 0)" "_ = anyPush" ./notify 'TestRelayEnds/sqlite'
mutant "all of a large audience has one turn" repository/lanes.go "return e.lastTurns[l] + 1 + int64(i/perTurn)" "return e.lastTurns[l] + 1" ./notify 'TestLargeAudienceDelaysNoOtherPush/1_instances/sqlite'
mutant "drivers' own jobs in the lane of offers" outbox/lane.go "return LaneClaimant" "return LaneOffer" ./notify 'TestLargeAudienceDelaysNoOtherPush/1_instances/sqlite|TestOffersHaveTheirShare/sqlite|TestLanesHaveTheirShares'
mutant "one event after the other" notify/lanes.go "r.position++" "_ = r" ./notify TestEventsTakeTurns
mutant "an audience in one piece" repository/expand.go "if len(fresh) > e.budget {" "if false {" ./notify 'TestASmallAudienceIsWrittenBetweenLargeOnes/sqlite'
mutant "a storm of 503 pauses nothing" notify/throttle.go "case t.failures >= failuresToPause:" "case t.failures >= 1000:" ./notify 'TestThrottleBacksOff'
mutant "a full quota burns attempts" notify/send.go "case Quota:
		s.RetryAfter" "case Quota:
		s.Attempts++
		s.RetryAfter" ./notify 'TestQuota/sqlite'
mutant "the SDK may repeat a 503" notify/fcm/transport.go "notOK = 599" "notOK = 503" ./notify/fcm 'TestClasses|TestNoAnswer'
mutant "every dead token is believed" notify/dead_tokens.go "t.reachesSince(p.Driver, *suspected, now)" "true" ./notify 'TestTwoVerdicts'
mutant "a push service with a fault is believed" notify/dead_tokens.go "!now.Before(t.distrust.until)" "true" ./notify 'TestDistrust'
mutant "made-up tokens are evidence" notify/dead_tokens.go "return v.PushAcceptedAt != nil && " "return v.PushAcceptedAt == nil || " ./notify 'TestMadeUpTokensAreNoEvidence'
mutant "a dead token is asked again" notify/verdict_writer.go "record = w.devices.Quarantine" "record = w.devices.Suspect" ./notify 'TestDeadToken/sqlite'
mutant "suspects go with the others" notify/send.go "r.deadTokens.suspected(*p, now)" "false" ./notify 'TestSuspectsGoApart'
mutant "a lost reply ends the push" notify/send.go "case Unavailable, Unsure:
		s.Attempts++" "case Unavailable, Unsure:
		s.Status = outbox.Dead
		s.Attempts++" ./notify 'TestReplyIsLost/sqlite'
mutant "a notification without a tag" notify/fcm/message.go "&messaging.AndroidNotification{Tag: e.tag, " "&messaging.AndroidNotification{" ./notify/... 'TestReplyIsLost/sqlite|TestWireForm'
due=repository/due.go
mutant "an offer ends though its window has not passed" dispatch/rules.go "written != Pending || d.Status != Expired" "written != Pending" ./repository 'TestChangedBeforeItExpires/mariadb/extended'
mutant "an offer ends as often as somebody looks" dispatch/rules.go "written != Pending || d.Status != Expired" "d.Status != Expired" ./repository 'TestDueOnce/ExpireOffers/mariadb'
mutant "a reminder from each who looks" $due "err != nil || given > 0" "err != nil" ./repository 'TestDueOnce/Remind/mariadb'
mutant "a reminder each time somebody looks" $due "WHERE dispatch_id = d.id AND round = d.round AND type = ?) = 0" "WHERE dispatch_id = d.id AND round = d.round AND type = ?) >= 0" ./repository 'TestDueInBatches/Remind/mariadb'
mutant "work that is not over is closed" dispatch/rules.go 'if !d.WorkEndsAt.Before(now.Add(-after)) {' 'if false {' ./repository 'TestChangedBeforeItIsClosed/mariadb'
mutant "a push at night for what nobody closed" dispatch/delivery.go "case e.Actor == System && e.ReasonCode == ReasonOverdue:" "case false:" ./repository 'TestOverdueIsNotPushed/sqlite'
mutant "a run that has not ended is pruned" repository/retention.go "slot < ? AND status NOT IN ?" "slot < ? AND 'x' NOT IN ?" ./repository 'TestRetentionOfTables/sqlite'
jobs=repository/runs.go
mutant "a run is begun beside one that is alive" cronjob/cronjob.go "r.Status == Running && now.Before(*r.LeasedUntil)" "false && now.Before(*r.LeasedUntil)" ./repository 'TestOneRunOfAJobAtATime/mariadb|TestBeginRun/mariadb'
mutant "a run that kills is taken over for ever" cronjob/cronjob.go "r.Attempt >= MaxAttempts" "r.Attempt >= 1000" ./schedule TestARunThatKillsIsGivenUp
mutant "a slot is begun again" $jobs 'job["slot"] = micros(next.Slot)' '_ = job' ./repository 'TestASlotIsBegunOnce/mariadb|TestBeginRun/mariadb'
mutant "who was overtaken ends the run" $jobs "WHERE job = ? AND slot = ? AND owner = ? AND status IN ?" "WHERE job = ? AND slot = ? AND ? <> '' AND status IN ?" ./repository 'TestFormerOwnerChangesNothing/mariadb'
mutant "what is concluded twice is written twice" $jobs "s.endRun(tx, run, end, cronjob.Running); err" "s.endRun(tx, run, end, cronjob.Running, cronjob.Succeeded); err" ./repository 'TestConcludeRun/mariadb|TestConcludeWhoseCommitIsLost/mariadb'
mutant "a run stopped is not handed over" schedule/ledger.go "return asLock(a.ledger.InterruptRun(ctx, a.job, a.owner))" "return nil" ./schedule TestAnInstanceThatStopsGivesItsRunBack
mutant "a cut run is taken over, and not FAILED" schedule/run.go "return errors.Is(cause, lock.ErrMaxHold) ||" "return" ./schedule TestAWorkThatHangsIsCut
mutant "nobody says that a job does not run" schedule/job.go 'j.blocked("unavailable", "its lock is unavailable", err)' "_ = err" ./schedule TestRedisIsGone
mutant "missed slots are left out" schedule/watch.go "case j.wake <- struct{}{}:" "" ./schedule 'TestDowntime|TestRunNow'
mutant "the instance's own clock" schedule/clock.go "c.offset.Store(" "_ = (" ./schedule TestSkewedClock
mutant "the lead kept by who stops" schedule/schedule.go "s.leader.Resign(ctx)" "ctx.Err()" ./schedule TestTheLeader
mutant "a tap that is not kept" service/accept.go "a.attempts.Record(ctx, tap, arrived, err)" "_ = arrived" ./service TestEveryTapIsKept

once=repository/idempotency.go
mutant "names in any case taken" handler/request.go "json.MatchCaseInsensitiveNames(false)" "json.MatchCaseInsensitiveNames(true)" ./handler TestNamesCountOnce
mutant "changed terms in the same round" dispatch/changes.go "d.Round++" "_ = agreed" ./handler TestRandomLifecycles
mutant "assigned at any version" dispatch/changes.go "	case version != d.Version:
		return nil, ErrVersionConflict
	case d.Status == Canceled:" "	case d.Status == Canceled:" ./handler TestRandomLifecycles
mutant "assigned to who is busy" dispatch/changes.go "	if c.Busy {
		return nil, ErrDriverBusy
	}" "" ./handler TestRandomLifecycles
mutant "losers of an assignment ask the database" service/backoffice.go "s.acceptor.markTaken(ctx, id, *d.Claim)" "_ = d" ./service 'Assign'
mutant "an answer made twice" $once "case row.LeaseEnds > micros(now):" "case false:" ./handler TestTwentyAtOnce
mutant "a seed of its own for who does it again" $once "row.Leased, row.LeaseEnds = fresh.Leased, fresh.LeaseEnds" "row = fresh" ./handler TestAfterADeath
mutant "a 503 replayed" handler/idempotency.go "return a.Status < 500" "return true" ./handler TestAnswersThatAreNotKept
mutant "a decline that moves the dispatch" dispatch/offer.go "	e := d.event(EventDeclined" "	d.bumpVersion(now)
	e := d.event(EventDeclined" ./dispatch .
mutant "what is not written yet was never tapped" service/driver_service.go "if !written ||" "if !written && false ||" ./handler TestReceiptWithoutTheLedger
mutant "each instance limits by itself" limit/limit.go "if l.Redis == nil {" "if true {" ./limit 'TestThreeInstances$'
mutant "every request asks Redis" limit/limit.go "	case c.credit > 0:
		c.credit--
		return 0
" "" ./limit 'TestFirstTapsDoNotWait|TestThreeInstances'
mutant "who is disabled stays" firebase/users.go "return !v.gone && !issued.Before(v.validSince)" "return !issued.Before(v.validSince)" ./firebase TestRefusedWithinAMinute
mutant "who signed out everywhere stays" firebase/users.go "return !v.gone && !issued.Before(v.validSince)" "return !v.gone" ./firebase TestSignedOutSince
mutant "who is turned out hears on" handler/stream.go ">= recheckInterval" ">= 1000*recheckInterval" ./handler TestStreamOfARevokedCaller
mutant "another origin's page works in a session" handler/session.go "s.crossOrigin.Check(&change); err != nil" "s.crossOrigin.Check(&change); err != nil && false" ./handler TestCrossSite
mutant "a session without an end" handler/session.go "err != nil || !now.Before(v.until)" "err != nil" ./handler TestSessionEnds
mutant "scripts read the session" handler/session.go "HttpOnly: true" "HttpOnly: false" ./handler 'TestSession$'
mutant "a cookie beats the header" handler/session.go "len(c.Request().Header.Values(echo.HeaderAuthorization)) > 0" "len(c.Cookies()) == 0" ./handler TestHeaderBeatsCookie
mutant "the demo keeps its folder" demo/demo.go "os.RemoveAll(dir)" "error(nil)" ./systemtest 'TestDemo$'
mutant "any role for a change" handler/auth.go "if key.Role < role {" "if false {" ./handler TestMatrix
exit $lived
