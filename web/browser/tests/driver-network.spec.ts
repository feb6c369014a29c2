import { type Service, confirmLink, cut, expect, hold, idle, loseAnswers, ownClock, test } from "../fixtures.ts";
import { accept, card, count, seen, stored, tap } from "../driver.ts";

/** Returns the number of claims of a dispatch: a repeated tap is written, and changes nothing. */
const accepted = async (service: Service, id: string): Promise<number> =>
  (await service.call("GET", `/v1/admin/dispatches/${id}/events`)).items.filter((e: { type: string }) => e.type === "dispatch.accepted").length;

test("a tap without a network is unknown, and is answered after the reconnection", async ({ openOffer, service, region }) => {
  const { page, driver, job } = await openOffer("1 Tunnel");
  await expect(page.getByText("Live")).toBeVisible();
  await expect(accept(page)).toBeVisible();
  await page.context().setOffline(true);
  await expect(page.getByText(/You are offline. This is as of \d\d:\d\d:\d\d/)).toBeVisible();
  await tap(page);
  await expect(card(page, "1 Tunnel")).toContainText("Not known yet: asking again");
  await expect(card(page, "1 Tunnel")).not.toContainText("Yours");
  const other = await service.dispatch(region, { site_address: "2 Meanwhile" });
  await page.context().setOffline(false);
  await expect(card(page, "1 Tunnel")).toContainText("Yours");
  await expect(page.getByText("Live")).toBeVisible();
  await expect(card(page, "2 Meanwhile")).toBeVisible();
  expect((await service.read(job)).accepted_by).toBe(driver.id);
  expect(other.status).toBe("PENDING");
});

test("a tap without a network that came too late is shown as late", async ({ openDriver, service, region }) => {
  const [driver, other] = await service.drivers(2, region);
  const job = await service.dispatch(region, { site_address: "3 Late Lane" });
  const page = await openDriver(driver!.token);
  await expect(accept(page)).toBeVisible();
  await page.context().setOffline(true);
  await expect(page.getByText(/You are offline. This is as of \d\d:\d\d:\d\d/)).toBeVisible();
  await tap(page);
  await expect(card(page, "3 Late Lane")).toContainText("Not known yet");
  await service.accept(job.id, other!.token);
  await page.context().setOffline(false);
  await expect(card(page, "3 Late Lane")).toContainText(/Taken.*ms behind, at place 2/);
  await expect(card(page, "3 Late Lane")).not.toContainText("Yours");
});

test("a lost answer is requested again, and the tap counts once", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("4 Lost Answer");
  const sent = count(page, "/accept");
  await cut(page, "**/v1/me/dispatches?*"); // it would show the result too
  await loseAnswers(page, "**/accept", { times: 1 });
  await tap(page);
  await expect(card(page, "4 Lost Answer")).toContainText("Yours");
  expect(sent()).toBe(2);
  expect(await accepted(service, job.id)).toBe(1);
});

test("a page that is reloaded during a tap finds its result", { tag: "@slow" }, async ({ openOffer }) => {
  const { page } = await openOffer("5 Middle");
  let arrived = () => {};
  const done = new Promise<void>((resolve) => { arrived = resolve; });
  await page.route("**/accept", async (route) => {
    await route.fetch();
    arrived(); // it is never answered
  });
  await cut(page, "**/v1/me/dispatches?*"); // it would show the result earlier
  await tap(page);
  await expect(card(page, "5 Middle")).toContainText("Asking");
  await done;
  await page.unroute("**/accept");
  await page.unroute("**/v1/me/dispatches?*");
  await page.reload();
  await expect(card(page, "5 Middle")).toContainText("Yours");
  await page.reload();
  await expect(card(page, "5 Middle")).toContainText("Yours");
});

test("a win with a lost answer appears among the jobs", async ({ openOffer }) => {
  const { page } = await openOffer("9 By The Way");
  await loseAnswers(page, "**/accept");
  await tap(page);
  await expect(card(page, "9 By The Way")).toContainText("Yours");
  await page.unrouteAll({ behavior: "ignoreErrors" }); // the same tap may be sent once more
});

test("the receipt settles an unanswered tap on an ended offer", { tag: "@slow" }, async ({ openOffer }) => {
  const { page } = await openOffer("6 Short");
  await ownClock(page);
  await expect(accept(page)).toBeVisible();
  await cut(page, /\/v1\/me(\/offers.*|\/dispatches\?.*)?$/); // a list would show the result, and give the page the true time
  await loseAnswers(page, "**/accept");
  const asked = count(page, "/claim");
  await tap(page);
  await expect(card(page, "6 Short")).toContainText("Not known yet");
  expect(asked()).toBe(0);
  await page.clock.fastForward("10:00");
  await expect(card(page, "6 Short")).toContainText("Yours");
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("a tap is repeated after a decision that is not final, and at a busy service", { tag: "@slow" }, async ({ openOffer }) => {
  const { page } = await openOffer("7 Close");
  const answers = [
    { status: 409, json: { code: "ALREADY_TAKEN", status: 409, title: "Conflict", final: false } },
    { status: 503, json: { code: "CLAIM_UNAVAILABLE", status: 503, title: "Service Unavailable" }, headers: { "Retry-After": "1" } },
    { status: 429, json: { code: "RATE_LIMITED", status: 429, title: "Too Many Requests" }, headers: { "Retry-After": "1" } },
  ];
  // What a page shows until the next answer is seen before that answer comes.
  let sawDecided = () => {}, sawUnknown = () => {};
  const decided = new Promise<void>((resolve) => { sawDecided = resolve; });
  const unknown = new Promise<void>((resolve) => { sawUnknown = resolve; });
  const before = [undefined, decided, undefined, unknown];
  await page.route("**/accept", async (route) => {
    const answer = answers.shift();
    await before.shift();
    await (answer ? route.fulfill({ ...answer, contentType: "application/problem+json" }) : route.fallback());
  });
  await tap(page);
  await expect(card(page, "7 Close")).toContainText("Being decided");
  sawDecided();
  await expect(card(page, "7 Close")).toContainText("Not known yet");
  sawUnknown();
  await expect(card(page, "7 Close")).toContainText("Yours");
  expect(answers).toEqual([]);
});

test("an offer is shown once the page knows its driver, so that no tap is lost", async ({ open, service, region }) => {
  const [driver] = await service.drivers(1, region);
  await service.dispatch(region, { site_address: "19 Early Bird" });
  const page = await open("/driver/");
  await page.goto("about:blank");
  const release = await hold(page, "**/v1/me");
  const offers = page.waitForResponse("**/v1/me/offers*");
  await page.goto(`${service.url}/driver/#token=${driver!.token}`);
  await confirmLink(page);
  await (await offers).finished();
  await expect(page.getByText("Reading …")).toBeVisible();
  await expect(accept(page)).toHaveCount(0);
  release();
  await tap(page);
  await expect(card(page, "19 Early Bird")).toContainText("Yours");
});

test("a tap is repeated at a killed and restarted service", async ({ openDriver, own }) => {
  const [driver] = await own.drivers(1, "seoul");
  const job = await own.dispatch("seoul", { site_address: "8 Killed" });
  const page = await openDriver(driver!.token, own);
  await expect(accept(page)).toBeVisible();
  await own.stop("SIGKILL");
  await expect(page.getByText(/Cut off from the service. This is as of \d\d:\d\d:\d\d/)).toBeVisible();
  await tap(page);
  await expect(card(page, "8 Killed")).toContainText("Not known yet");
  await own.start();
  await expect(card(page, "8 Killed")).toContainText("Yours");
  await expect(page.getByText("Live")).toBeVisible();
  await own.stop("SIGKILL"); // at any time before or after the page has read its jobs
  await page.getByRole("link", { name: "To my jobs" }).click();
  await card(page, "8 Killed").getByRole("button", { name: "Start" }).press("Enter"); // a notice that appears moves the button away from a click
  await expect(card(page, "8 Killed")).toContainText("Not known yet");
  await own.start();
  await expect(card(page, "8 Killed")).toContainText("In progress");
  expect(await accepted(own, job.id)).toBe(1);
});

test("a win is a job at once, and its loss is shown, even without a list of jobs", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("10 Short Joy");
  await expect(page.getByText("Live")).toBeVisible();
  await expect(accept(page)).toBeEnabled();
  await cut(page, "**/v1/me/dispatches?*");
  await tap(page);
  await expect(card(page, "10 Short Joy")).toContainText("Yours");
  await page.getByRole("link", { name: "To my jobs" }).click();
  await expect(card(page, "10 Short Joy").getByRole("button", { name: "Start" })).toBeVisible();
  await service.change(await service.read(job), "cancel");
  await page.unroute("**/v1/me/dispatches?*");
  const notice = page.getByRole("alert").getByText("Canceled by the office: 10 Short Joy");
  await expect(notice).toBeVisible();
  await expect(page.getByText("No jobs.")).toBeVisible();
  await page.reload();
  await expect(notice).toBeVisible();
  await page.getByRole("link", { name: /^Offers/ }).click();
  await expect(page.getByText("No offers now.")).toBeVisible();
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.reload();
  await expect(page.getByText("Live")).toBeVisible();
  await expect(notice).toHaveCount(0);
});

test("a job that the office took away is shown when the page opens again", { tag: "@slow" }, async ({ openDriver, service, region }) => {
  const [driver, other] = await service.drivers(2, region);
  const day = (n: number) => ({
    work_starts_at: new Date(Date.now() + n * 24 * 3600_000).toISOString(), work_ends_at: new Date(Date.now() + (n * 24 + 2) * 3600_000).toISOString(),
  });
  const jobs = [];
  for (const [i, site] of ["11 Canceled", "12 Given Away", "13 Done", "14 Kept"].entries()) {
    jobs.push(await service.dispatch(region, { site_address: site, ...day(i + 1) }));
    await service.accept(jobs[i].id, driver!.token);
  }
  const page = await openDriver(driver!.token);
  await page.getByRole("link", { name: /^My jobs/ }).click();
  await expect(page.getByRole("article")).toHaveCount(4);
  await stored(page, "14 Kept");
  await page.goto("about:blank");
  await service.change(await service.read(jobs[0]), "cancel");
  await service.change(await service.read(jobs[1]), "unassign");
  await service.accept(jobs[1].id, other!.token);
  for (const what of ["start", "complete"]) await service.call("POST", `/v1/dispatches/${jobs[2].id}/${what}`, undefined, { token: driver!.token });
  await page.goto(`${service.url}/driver/#jobs`);
  for (const told of ["Canceled by the office: 11 Canceled", "No longer yours, by the office: 12 Given Away"]) {
    await expect(page.getByRole("alert").getByText(told)).toBeVisible();
  }
  await expect(page.getByRole("button", { name: "Dismiss" })).toHaveCount(2);
  await expect(page.getByRole("article")).toHaveCount(2);
  await expect(card(page, "13 Done")).toContainText("Done");
  await expect(card(page, "14 Kept")).toContainText("Accepted");
});

test("an offer's end keeps its reason when an earlier list of offers arrives later", async ({ openDriver, service, region }) => {
  const [me, other] = await service.drivers(2, region);
  const page = await openDriver(me!.token);
  const job = await seen(page, service, region, "16 Old List");
  let read = () => {}, release = () => {};
  const under = new Promise<void>((resolve) => { read = resolve; });
  const released = new Promise<void>((resolve) => { release = resolve; });
  await idle(page);
  await page.route("**/v1/me/offers*", async (route) => {
    const response = await route.fetch();
    read();
    await released;
    await route.fulfill({ response });
  }, { times: 1 });
  await service.dispatch(region, { site_address: "17 Next" });
  await under;
  await service.accept(job.id, other!.token);
  await expect(card(page, "16 Old List")).toContainText("TakenAnother driver has it.");
  release();
  await expect(card(page, "17 Next")).toBeVisible();
  await expect(card(page, "16 Old List")).toContainText("TakenAnother driver has it.");
  await expect(accept(card(page, "16 Old List"))).toHaveCount(0);
});

test("an offer's end gets its reason when its event arrives after the list of offers", async ({ openDriver, service, region }) => {
  const [me, other] = await service.drivers(2, region);
  const page = await openDriver(me!.token);
  await expect(page.getByText("Live")).toBeVisible();
  await seen(page, service, region, "17 Before"); // the stream's first event: a new stream continues after it
  await idle(page);
  const job = await seen(page, service, region, "18 Late News");
  await page.context().setOffline(true);
  await expect(page.getByText(/You are offline/)).toBeVisible();
  await service.accept(job.id, other!.token);
  const release = await hold(page, "**/v1/stream");
  await page.context().setOffline(false);
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange"))); // the page reads again
  await expect(card(page, "18 Late News")).toContainText("No longer offered");
  release();
  await expect(card(page, "18 Late News")).toContainText("TakenAnother driver has it.");
});

test("a page that can read its offers alone shows their time", async ({ open, service, region }) => {
  const [driver] = await service.drivers(1, region);
  await service.dispatch(region, { site_address: "19 Half Known" });
  const page = await open("/driver/");
  await page.route("**/v1/me/dispatches?*", (route) => route.abort());
  await page.goto(`${service.url}/driver/#token=${driver!.token}`);
  await confirmLink(page);
  await expect(accept(card(page, "19 Half Known"))).toBeVisible();
  await expect(page.getByText(/^Cut off from the service. This is as of \d\d:\d\d:\d\d/)).toBeVisible();
});

test("a win that ended during a lost connection is never shown as a win", async ({ openOffer, service }) => {
  const { page, job } = await openOffer("15 Never Heard");
  await expect(page.getByText("Live")).toBeVisible();
  let arrived = () => {};
  const done = new Promise<void>((resolve) => { arrived = resolve; });
  await cut(page, "**/v1/me/dispatches?*");
  await page.route("**/accept", async (route) => {
    await route.fetch();
    await page.context().setOffline(true);
    await route.abort();
    arrived();
  }, { times: 1 });
  await tap(page);
  await done;
  await expect(card(page, "15 Never Heard")).toContainText("Not known yet");
  await service.change(await service.read(job), "cancel");
  await page.evaluate(() => {
    const said = new MutationObserver(() => { if (document.body.innerText.includes("Yours")) document.title = "won"; });
    said.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await page.unroute("**/v1/me/dispatches?*");
  await page.context().setOffline(false);
  await expect(card(page, "15 Never Heard")).toContainText("CanceledThe office canceled it.");
  expect(await page.title()).not.toBe("won");
});
