// Two thousand drivers accept newly opened dispatches, at a rate that does not wait for the responses.
//
// Settings: RATE taps a second (reached half-way), SECONDS, DRIVERS, DISPATCHES, and
// P95_MS, a limit of a loser's response (by default none).
import exec from 'k6/execution';
import { audit, makeDispatches, makeDrivers, setting, summary, tap, thresholds, urls, won } from './firsttap.js';

const rate = setting('RATE', 500, 200);
const seconds = setting('SECONDS', 20, 6);
const nDrivers = setting('DRIVERS', 2000, 400);
const nDispatches = setting('DISPATCHES', 500, 100);
const regions = Math.ceil(nDrivers / 100);
const region = (i) => `storm-${i % regions}`;

export const options = {
  setupTimeout: '3m',
  teardownTimeout: '3m',
  scenarios: {
    storm: {
      executor: 'ramping-arrival-rate',
      startRate: Math.ceil(rate / 10),
      timeUnit: '1s',
      preAllocatedVUs: 100,
      maxVUs: 300,
      stages: [
        { target: rate, duration: `${Math.ceil(seconds / 2)}s` },
        { target: rate, duration: `${Math.floor(seconds / 2)}s` },
      ],
    },
  },
  thresholds: thresholds(nDispatches, '<=1', {
    'answers{code:ALREADY_TAKEN}': ['count>0'],
    'answers{code:DRIVER_BUSY}': ['count>=0'],
  }),
};

export function setup() {
  const drivers = makeDrivers(nDrivers, region);
  // A region's dispatches share four hours: a winner is busy for the others of that hour.
  return { drivers, dispatches: makeDispatches(nDispatches, (i) => Math.floor(i / regions) % 4, region) };
}

const pick = (n) => Math.floor(Math.random() * n);

export default function ({ drivers, dispatches }) {
  // Drivers accept the ten newest, so that the storm moves over the dispatches.
  const newest = Math.floor(exec.scenario.progress * dispatches.length);
  const i = Math.min(Math.max(newest - pick(10), 0), dispatches.length - 1);
  const driver = drivers[(i % regions) + regions * pick(Math.floor(drivers.length / regions))];
  const { result } = tap(urls[pick(urls.length)], dispatches[i], driver, { codes: ['ALREADY_TAKEN', 'DRIVER_BUSY'] });
  if (result === 'won') won(i, dispatches[i], driver);
}

// A dispatch may have had no driver, or only busy drivers.
export const teardown = (data) => audit(data, ['PENDING']);
export const handleSummary = summary(
  'storm',
  nDispatches,
  (count) => `, ${count('answers{code:DRIVER_BUSY}')} busy, ${count('dropped_iterations')} dropped`,
);
