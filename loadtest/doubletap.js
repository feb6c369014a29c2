// Double taps and bad networks: every driver accepts twice at once, at two instances, and again after the race.
// In every other round the phone hangs up after a few milliseconds, so that responses are lost, some wins among them.
// A retry gets the same result: the winner 200 with the same claim, a loser 409; the receipt agrees.
//
// Settings: ROUNDS, DRIVERS, PACE_MS between rounds, and P95_MS, a limit of a loser's response (by default none).
import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter } from 'k6/metrics';
import {
  accept, audit, fault, makeDispatches, makeDrivers, me, read, receipt, setting, summary, tap, thresholds, until, won,
} from './firsttap.js';

const rounds = setting('ROUNDS', 40, 10);
const vus = setting('DRIVERS', 30);
const pace = setting('PACE_MS', 500);

const lostWins = new Counter('lost_wins'); // claims whose SUCCESS never reached the driver

export const options = {
  scenarios: { doubletap: { executor: 'per-vu-iterations', vus, iterations: rounds } },
  thresholds: thresholds(rounds, '==1', {
    wins: [`count==${rounds}`],
    'answers{result:unanswered}': ['count>0'], // without lost responses the test proves nothing
  }),
};

export function setup() {
  const drivers = makeDrivers(vus);
  const dispatches = makeDispatches(rounds);
  return { drivers, dispatches, start: Date.now() + 1000 };
}

/** poll repeats ask until the answer is settled, for five seconds at most. */
function poll(ask, settled) {
  let answer = ask();
  for (let i = 0; i < 100 && !settled(answer); i++) {
    sleep(0.05);
    answer = ask();
  }
  return answer;
}

export default function ({ drivers, dispatches, start }) {
  const { driver, bases } = me(drivers);
  const [here, there] = [bases[0], bases[1] || bases[0]];
  const round = exec.vu.iterationInScenario;
  const dispatch = dispatches[round];
  const lossy = round % 2 === 1;
  const timeout = lossy ? `${1 + ((exec.vu.idInTest + round) % 8)}ms` : '10s';
  const check = (ok, what) => ok || fault(`${dispatch}, ${driver.id}: ${what}`);

  until(start + round * pace);
  const first = http
    .batch([accept(here, dispatch, driver, timeout), accept(there, dispatch, driver, timeout)])
    .map((res) => read(res, { lossy }));
  const settled = poll(() => tap(there, dispatch, driver), (a) => a.mine || a.final);
  const again = tap(here, dispatch, driver);

  const all = [...first, settled, again];
  const fresh = all.filter((a) => a.result === 'won').length;
  if (settled.mine) {
    won(round, dispatch, driver);
    check(again.result === 'replayed', `the winner's retry was ${again.result}`);
    check(new Set(all.filter((a) => a.mine).map((a) => a.claim)).size === 1, 'more than one claim id');
    check(!all.some((a) => a.result === 'lost' && a.final), 'the winner was told that it lost, finally');
    check(fresh === 1 || (fresh === 0 && lossy), `the winner was told SUCCESS for the first time ${fresh} times`);
    if (fresh === 0) lostWins.add(1);
  } else {
    check(!all.some((a) => a.mine), 'a loser was told SUCCESS');
    check(again.result === 'lost', `a loser's retry was ${again.result}`);
    // An instance that does not know of the commit yet answers "not final" while another driver's claim is under way.
    check(poll(() => tap(here, dispatch, driver), (a) => a.final).final, 'a loser never heard that it is final');
  }

  // The service may write the losers' taps a moment later.
  const { outcome } = poll(() => receipt(there, dispatch, driver), (r) => !['PENDING', 'NO_ATTEMPT'].includes(r.outcome));
  check(outcome === (settled.mine ? 'WON' : 'LOST'), `the receipt says ${outcome}`);
}

export const teardown = (data) => audit(data);
export const handleSummary = summary(
  'doubletap',
  rounds,
  (count) => `, ${count('answers{result:unanswered}')} answers lost (the winner's, and found by asking again: ${count('lost_wins')})`,
);
