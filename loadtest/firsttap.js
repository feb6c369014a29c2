// The code that the load tests share: it creates the drivers, parses the responses, and checks the stored result.
import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';

export const urls = (__ENV.BASE_URLS || 'http://127.0.0.1:8080').split(',').map((u) => u.trim().replace(/\/$/, ''));
const adminKey = __ENV.ADMIN_KEY;
if (!adminKey) throw new Error('ADMIN_KEY is not set: the load tests make their drivers and dispatches themselves');

/** setting reads a number from the environment. SHORT=1 selects the short run for CI. */
export const setting = (name, normal, short = normal) => Number(__ENV[name] || (__ENV.SHORT ? short : normal));

// k6 tags a request before its response, and only the response has the result: so the tests have their own trend.
const tapMs = new Trend('tap_ms', true);
const answers = new Counter('answers'); // by result: won, replayed, lost, unanswered, unexpected
const wins = new Counter('wins'); // by dispatch: drivers who received SUCCESS
const unannounced = new Counter('unannounced'); // claims in the database minus received wins
const faults = new Counter('faults'); // violations of what the test checks
const serverErrors = new Counter('server_errors');

/** fault records a violation, and the run fails. */
export function fault(message) {
  faults.add(1);
  console.error(message);
}

/**
 * thresholds returns the thresholds of every test. `count` (==1, <=1) is the number of winners each dispatch may have. The losers' time
 * has a limit only if P95_MS sets one: it depends on the machine.
 */
export function thresholds(dispatches, count, more = {}) {
  const all = {
    'tap_ms{result:lost}': [__ENV.P95_MS ? `p(95)<${setting('P95_MS')}` : 'p(95)>=0'], // the summary reads this sub-metric
    'http_reqs{name:accept}': ['count>0'],
    server_errors: ['count==0'],
    faults: ['count==0'],
    unannounced: ['count==0'],
  };
  for (const result of ['won', 'replayed', 'lost', 'unanswered', 'unexpected']) {
    all[`answers{result:${result}}`] = ['count>=0']; // k6 only reports the sub-metrics that a threshold names
  }
  for (let i = 0; i < dispatches; i++) all[`wins{dispatch:${i}}`] = [`count${count}`];
  return { ...all, ...more };
}

function call(method, url, token, body) {
  const res = http.request(method, url, body && JSON.stringify(body), {
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    tags: { name: method.toLowerCase() },
  });
  if (res.status >= 500) serverErrors.add(1);
  if (res.status < 200 || res.status > 299) {
    const message = `${method} ${url}: ${res.status} ${res.error || res.body}`;
    fault(message); // k6 ends the iteration on an exception, but lets the run pass
    throw new Error(message);
  }
  return res.json();
}

const admin = (method, path, body) => call(method, `${urls[0]}/v1/admin${path}`, adminKey, body);

/** makeDrivers creates n drivers on duty, with their tokens. */
export function makeDrivers(n, region = () => 'seoul') {
  const run = Date.now();
  const drivers = [];
  while (drivers.length < n) {
    const some = []; // 300 fit into a body's 64 KiB
    for (let i = drivers.length; i < n && some.length < 300; i++) {
      some.push({
        name: `Load ${i}`,
        phone: `+8210${String(run + i).slice(-11)}`, // unique in all runs
        regions: [region(i)],
        vehicle_class: '45m',
        working_height_m: 45,
        on_duty: true,
      });
    }
    for (const { id, token, on_duty } of admin('POST', '/drivers/bulk', { drivers: some, issue_tokens: true }).items) {
      if (!on_duty) call('PUT', `${urls[0]}/v1/me/duty`, token, { on_duty: true });
      drivers.push({ id, token });
    }
  }
  return drivers;
}

/** makeDispatches opens n dispatches. Work in different hours does not overlap, so a driver may win several. */
export function makeDispatches(n, hour = (i) => i, region = () => 'seoul') {
  const tomorrow = Date.now() + 24 * 3600e3;
  const at = (ms) => new Date(ms).toISOString();
  const dispatches = [];
  for (let i = 0; i < n; i++) {
    const starts = tomorrow + hour(i) * 3600e3;
    const { id } = admin('POST', '/dispatches', {
      region: region(i),
      vehicle_class: '45m',
      min_working_height_m: 40,
      site_address: `Load test ${i}`,
      work_starts_at: at(starts),
      work_ends_at: at(starts + 50 * 60e3),
      fee: { amount: 350000, currency: 'KRW' },
      expires_at: at(Date.now() + 3600e3),
    });
    dispatches.push(id);
  }
  return dispatches;
}

/** accept returns the request of one tap, for http.request or http.batch. */
export function accept(base, dispatch, driver, timeout = '10s') {
  return {
    method: 'POST',
    url: `${base}/v1/dispatches/${dispatch}/accept`,
    body: '{"round":1}',
    params: {
      headers: { Authorization: `Bearer ${driver.token}`, 'Content-Type': 'application/json' },
      tags: { name: 'accept' },
      timeout,
    },
  };
}

/** read classifies the answer to a tap. codes are the allowed 409s; lossy allows a missing answer too. */
export function read(res, { codes = ['ALREADY_TAKEN'], lossy = false } = {}) {
  let body = {};
  try {
    body = res.json() || {};
  } catch (_) {
    // not JSON, so not FirstTap's response
  }
  let result = 'unexpected';
  if (res.status === 0 || res.error_code === 1050) result = lossy ? 'unanswered' : result; // 1050: the client's timeout
  else if (res.status === 200 && body.result === 'SUCCESS') result = body.replayed ? 'replayed' : 'won';
  else if (res.status === 409 && codes.includes(body.code)) result = 'lost';

  if (res.status >= 500) serverErrors.add(1);
  if (result === 'unexpected') fault(`accept: ${res.status} ${res.error || res.body}`);
  answers.add(1, { result, code: body.code || '' });
  tapMs.add(res.timings.duration, { result });
  return { result, mine: result === 'won' || result === 'replayed', final: body.final, claim: body.claim && body.claim.id };
}

/** tap sends one tap, and returns its answer. */
export function tap(base, dispatch, driver, fine) {
  const { method, url, body, params } = accept(base, dispatch, driver);
  return read(http.request(method, url, body, params), fine);
}

/** won counts a driver's win of dispatch number i, and compares it with the database. */
export function won(i, dispatch, driver) {
  wins.add(1, { dispatch: String(i) });
  unannounced.add(-1);
  const { accepted_by } = admin('GET', `/dispatches/${dispatch}`);
  if (accepted_by !== driver.id) fault(`${dispatch}: ${driver.id} received SUCCESS, but the database has ${accepted_by}`);
}

/** receipt reads the driver's receipt of a dispatch. */
export const receipt = (base, dispatch, driver) => call('GET', `${base}/v1/me/dispatches/${dispatch}/claim`, driver.token);

/** audit compares the database with the receipts: a claim has an owner, and the owner's receipt says WON. */
export function audit({ dispatches, drivers }, open = []) {
  const byId = Object.fromEntries(drivers.map((d) => [d.id, d]));
  dispatches.forEach((dispatch, i) => {
    const { status, accepted_by } = admin('GET', `/dispatches/${dispatch}`);
    if (open.includes(status)) return;
    if (status !== 'ACCEPTED' || !byId[accepted_by]) {
      fault(`${dispatch}: ${status}, accepted by ${accepted_by || 'nobody'}`);
      return;
    }
    unannounced.add(1);
    const { outcome } = receipt(urls[i % urls.length], dispatch, byId[accepted_by]);
    if (outcome !== 'WON') fault(`${dispatch}: the receipt of its owner ${accepted_by} says ${outcome}`);
  });
}

/** me returns this VU's driver, and the instances it taps on: its own first. */
export function me(drivers) {
  const n = exec.vu.idInTest - 1;
  const bases = urls.map((_, i) => urls[(n + i) % urls.length]);
  if (exec.vu.iterationInInstance === 0) {
    // The first round must not include the connections' setup.
    for (const base of bases) call('GET', `${base}/v1/me`, drivers[n].token);
  }
  return { driver: drivers[n], bases };
}

/** until sleeps to the moment at which all drivers tap together. */
export function until(time) {
  const ms = time - Date.now();
  if (ms > 0) sleep(ms / 1000);
}

/** summary makes handleSummary, which prints one line: the results, and whether they add up. */
export function summary(name, dispatches, more = () => '') {
  return ({ metrics }) => {
    const count = (metric) => (metrics[metric] ? metrics[metric].values.count : 0);
    const result = (r) => count(`answers{result:${r}}`);
    const lost = metrics['tap_ms{result:lost}'].values;
    const taps = count('http_reqs{name:accept}');
    const read = ['won', 'replayed', 'lost', 'unanswered', 'unexpected'].map(result);
    const sum = read.reduce((a, b) => a + b, 0);
    const ok = taps > 0 && sum === taps && count('unannounced') === 0;
    const ms = (v) => (v || 0).toFixed(1);
    return {
      stdout:
        `${name}: ${dispatches} dispatches, ${count('wins')} wins, ${result('lost')} losers ` +
        `(p50 ${ms(lost.med)} ms, p95 ${ms(lost['p(95)'])} ms), ${count('server_errors')} 5xx, ${count('faults')} faults` +
        `${more(count)}; ${taps} taps = ${read.join(' + ')} ` +
        `(won, replayed, lost, unanswered, unexpected): ${ok ? 'adds up' : 'DOES NOT ADD UP'}\n`,
    };
  };
}
