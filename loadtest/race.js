// Thirty drivers accept one dispatch at the same moment, round after round. Each round must have exactly one winner.
//
//	k6 run -e ADMIN_KEY=... -e BASE_URLS=http://127.0.0.1:8080,http://127.0.0.1:8081 loadtest/race.js
//
// Settings: ROUNDS, DRIVERS, PACE_MS between rounds, and P95_MS, a limit of a loser's response (by default none).
import exec from 'k6/execution';
import { audit, makeDispatches, makeDrivers, me, setting, summary, tap, thresholds, until, won } from './firsttap.js';

const rounds = setting('ROUNDS', 50, 10);
const vus = setting('DRIVERS', 30);
const pace = setting('PACE_MS', 200);

export const options = {
  scenarios: { race: { executor: 'per-vu-iterations', vus, iterations: rounds } },
  thresholds: thresholds(rounds, '==1', {
    wins: [`count==${rounds}`],
    'answers{result:won}': [`count==${rounds}`],
    'answers{result:lost}': [`count==${rounds * (vus - 1)}`],
  }),
};

export function setup() {
  const drivers = makeDrivers(vus);
  const dispatches = makeDispatches(rounds);
  return { drivers, dispatches, start: Date.now() + 1000 };
}

export default function ({ drivers, dispatches, start }) {
  const { driver, bases } = me(drivers);
  const round = exec.vu.iterationInScenario;
  until(start + round * pace);
  if (tap(bases[0], dispatches[round], driver).result === 'won') won(round, dispatches[round], driver);
}

export const teardown = (data) => audit(data);
export const handleSummary = summary('race', rounds);
