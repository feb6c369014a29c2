// Drivers accept newly opened dispatches while the instances behind one address are replaced one after the other. No request
// may fail. rolling.sh replaces the instances, and compares the database with the responses afterwards.
//
// Settings: RATE taps a second, SECONDS, DRIVERS, DISPATCHES, and
// P95_MS, a limit of a loser's response (by default none).
import exec from 'k6/execution';
import { audit, makeDispatches, makeDrivers, setting, summary, tap, thresholds, urls, won } from './firsttap.js';

const rate = setting('RATE', 200, 100);
const seconds = setting('SECONDS', 60, 45);
const nDrivers = setting('DRIVERS', 300, 100);
const nDispatches = setting('DISPATCHES', 600, 300);

export const options = {
  setupTimeout: '3m',
  teardownTimeout: '3m',
  scenarios: {
    rolling: {
      executor: 'constant-arrival-rate',
      rate,
      timeUnit: '1s',
      duration: `${seconds}s`,
      preAllocatedVUs: 50,
      maxVUs: 200,
    },
  },
  thresholds: thresholds(nDispatches, '<=1', {
    'answers{code:ALREADY_TAKEN}': ['count>0'],
    wins: [`count>${Math.floor(nDispatches / 2)}`],
    dropped_iterations: ['count==0'],
  }),
};

export function setup() {
  return { drivers: makeDrivers(nDrivers), dispatches: makeDispatches(nDispatches) };
}

const pick = (n) => Math.floor(Math.random() * n);

export default function ({ drivers, dispatches }) {
  // Drivers accept the newest few, so that there is always a race during a replacement.
  const newest = Math.floor(exec.scenario.progress * dispatches.length);
  const i = Math.min(Math.max(newest - pick(3), 0), dispatches.length - 1);
  const driver = drivers[pick(drivers.length)];
  if (tap(urls[0], dispatches[i], driver).result === 'won') won(i, dispatches[i], driver);
}

export const teardown = (data) => audit(data, ['PENDING']);

const said = summary('rolling', nDispatches);
export const handleSummary = (data) => ({
  ...said(data),
  [__ENV.TAPS_FILE]: String(data.metrics['http_reqs{name:accept}'].values.count),
});
