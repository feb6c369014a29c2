import { accessible, expect, ownClock, tabTo, test } from "../fixtures.ts";
import { card, column, counted, soon } from "../board.ts";

test("the columns and the counts follow the events, without reloading", async ({ openConsole, service, region }) => {
  const page = await openConsole(`#/board?region=${region}`, await service.key("viewer"));
  await counted(page, { Scheduled: 0, Pending: 0, Accepted: 0, "In progress": 0, Completed: 0, Canceled: 0, Expired: 0 });
  await ownClock(page);
  await page.evaluate(() => Object.assign(window, { neverReloaded: true }));
  const [driver] = await service.drivers(1, region);

  const other = await service.dispatch(region, { site_address: "1 Other-ro" });
  const d = await service.dispatch(region, { site_address: "2 Now-ro", min_working_height_m: null });
  await expect(card(page, "Pending", "2 Now-ro")).toContainText("₩350,000");
  await counted(page, { Pending: 2 });
  await service.accept(d.id, driver!.token);
  await expect(card(page, "Accepted", "2 Now-ro")).toContainText("Driver 1");
  await counted(page, { Pending: 1, Accepted: 1 });
  await service.call("POST", `/v1/dispatches/${d.id}/start`, undefined, { token: driver!.token });
  await expect(card(page, "In progress", "2 Now-ro")).toContainText("Driver 1");
  await service.call("POST", `/v1/dispatches/${d.id}/complete`, undefined, { token: driver!.token });
  await expect(card(page, "Completed", "2 Now-ro")).toBeVisible();
  await counted(page, { Pending: 1, Accepted: 0, "In progress": 0, Completed: 1 });

  await service.accept(other.id, driver!.token);
  await expect(card(page, "Accepted", "1 Other-ro")).toBeVisible();
  const back = await service.call("POST", `/v1/dispatches/${other.id}/withdraw`, { reason_code: "TOO_FAR" }, { token: driver!.token });
  await expect(card(page, "Pending", "1 Other-ro")).toContainText("round 2");
  await expect(card(page, "Pending", "1 Other-ro")).not.toContainText("Driver 1");
  await service.change(back, "cancel");
  await expect(card(page, "Canceled", "1 Other-ro")).toBeVisible();
  await counted(page, { Pending: 0, Accepted: 0, Canceled: 1 });

  await service.dispatch(region, { site_address: "3 Nobody-ro", opens_at: soon(3600_000), expires_at: soon(7200_000) });
  await expect(card(page, "Scheduled", "3 Nobody-ro")).toContainText(/opens in (5\d:|1:00:)/);
  // A reading of the counts in the moment of a change may count the change twice, or not at all, until the next one.
  await counted(page, { Scheduled: 1, Pending: 0, Completed: 1, Canceled: 1 });
  await page.context().setOffline(true); // from here on only the clock moves it
  await page.clock.fastForward("01:00:00");
  await expect(card(page, "Pending", "3 Nobody-ro")).toBeVisible();
  await counted(page, { Scheduled: 0, Pending: 1 });
  await page.clock.fastForward("01:00:00");
  await expect(card(page, "Expired", "3 Nobody-ro")).toBeVisible();
  await counted(page, { Pending: 0, Completed: 1, Canceled: 1, Expired: 1 });
  expect(await page.evaluate(() => "neverReloaded" in window)).toBe(true);
});

test("changed terms are shown, and a longer window counts down from where it is", async ({ openConsole, service, region }) => {
  const d = await service.dispatch(region, { site_address: "1 Old-ro", expires_at: soon(1200_000) });
  const page = await openConsole(`#/board?region=${region}`);
  const left = card(page, "Pending", "1 Old-ro").locator(".until");
  await expect(left).toHaveText(/^1\d:/);
  const longer = await service.change(d, "extend", { expires_at: soon(3600_000) });
  await expect(left).toHaveText(/^5\d:/);
  await service.patch(longer, { site_address: "2 New-ro", fee: { amount: 999000, currency: "KRW" } });
  await expect(card(page, "Pending", "2 New-ro")).toContainText("₩999,000");
  await expect(card(page, "Pending", "2 New-ro")).toContainText("round 2");
  await expect(column(page, "Pending").getByRole("link")).toHaveCount(1);
});

test("filters and search narrow the board and stay in the address", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const other = `${region}-2`;
  await service.dispatch(region, { site_address: "1 Alpha-ro" });
  await service.dispatch(region, { site_address: "2 Beta-ro", vehicle_class: "16m", note: "Gate seven" });
  await service.dispatch(other, { site_address: "3 Gamma-ro" });
  const page = await openConsole("#/board");
  await expect(card(page, "Pending", "3 Gamma-ro")).toBeVisible();

  await page.getByLabel("Region").selectOption(region);
  await counted(page, { Pending: 2 });
  await expect(card(page, "Pending", "3 Gamma-ro")).toHaveCount(0);
  await page.getByLabel("Vehicle").selectOption("16m");
  await counted(page, { Pending: "1 of 2" });
  await expect(card(page, "Pending", "1 Alpha-ro")).toHaveCount(0);
  await page.getByLabel("Vehicle").selectOption("All classes");
  await page.getByLabel("Search").fill("GATE sev");
  await counted(page, { Pending: "1 of 2" });
  await expect(card(page, "Pending", "2 Beta-ro")).toBeVisible();
  expect(new URL(page.url()).hash).toBe(`#/board?region=${region}&q=GATE+sev`);

  await service.dispatch(region, { site_address: "4 Delta-ro", note: "gate seventy" });
  await expect(card(page, "Pending", "4 Delta-ro")).toBeVisible();
  await counted(page, { Pending: "2 of 3" });

  await page.reload();
  await expect(page.getByLabel("Search")).toHaveValue("GATE sev");
  await counted(page, { Pending: "2 of 3" });
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(card(page, "Pending", "3 Gamma-ro")).toBeVisible();
  expect(new URL(page.url()).hash).toBe("#/board");
});

test("a search finds dispatches that the board has not read", async ({ openConsole, service, region }) => {
  const first = await service.dispatch(region, { site_address: "1 Needle-ro" });
  await service.change(first, "cancel");
  await Promise.all(Array.from({ length: 25 }, async () => service.change(await service.dispatch(region), "cancel")));
  const page = await openConsole(`#/board?region=${region}`);
  await counted(page, { Canceled: 26 });
  await expect(card(page, "Canceled", "1 Needle-ro")).toHaveCount(0);
  await page.getByLabel("Search").fill("needle");
  await expect(card(page, "Canceled", "1 Needle-ro")).toBeVisible();
  await counted(page, { Canceled: "1 of 26" });
});

test("a search that is refused, or not answered, is repeated, and its requests take turns", async ({ openConsole, service, region }) => {
  const old = { ...await service.dispatch(region), id: "dsp_" + "0".repeat(26), status: "CANCELED", site_address: "2 Needle-ro" };
  const page = await openConsole(`#/board?region=${region}`);
  let asked = 0, open = 0, most = 0;
  await page.route(/\/v1\/admin\/dispatches\?status=.*&q=/, async (route) => {
    most = Math.max(most, ++open);
    const response = await route.fetch();
    open--;
    await route.fulfill({ response });
  });
  await page.route(/\/v1\/admin\/dispatches\?status=CANCELED&.*q=/, (route) => {
    asked++;
    if (asked === 1) return route.fulfill({ status: 429, headers: { "Retry-After": "1" }, json: { code: "RATE_LIMITED" } });
    if (asked === 2) return route.abort();
    return route.fulfill({ json: { items: [old], next_cursor: null, server_time: new Date().toISOString() } });
  });
  await page.getByLabel("Search").fill("needle");
  await expect(card(page, "Canceled", "2 Needle-ro")).toBeVisible();
  await expect(page.getByText("can't be reached")).toHaveCount(0);
  expect(most).toBe(1);
});

test("a search goes on where a page is short, and says if it has not searched all", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const d = await service.dispatch(region, { site_address: "1 Needle-ro" });
  const old = { ...d, id: "dsp_" + "0".repeat(26), status: "CANCELED", site_address: "2 Needle-ro" };
  const page = await openConsole(`#/board?region=${region}`);
  let endless = 0;
  await page.route(/\/v1\/admin\/dispatches\?status=CANCELED&.*q=/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const found = query.get("q") === "needle" && query.has("cursor");
    if (query.get("q") === "endless") endless++;
    return route.fulfill({ json: { items: found ? [old] : [], next_cursor: found ? null : "more", server_time: new Date().toISOString() } });
  });
  await page.getByLabel("Search").fill("needle");
  await expect(card(page, "Canceled", "2 Needle-ro")).toBeVisible();
  const partial = page.getByText("Older ended dispatches were not searched.");
  await expect(partial).toHaveCount(0);
  await page.getByLabel("Search").fill("endless");
  await expect(partial).toBeVisible();
  expect(endless).toBe(10);
  await page.getByLabel("Search").fill("needle");
  await expect(partial).toHaveCount(0);
});

test("a full column shows the number of hidden cards", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const d = await service.dispatch(region, { site_address: "1 Many-ro" });
  const page = await openConsole();
  let n = 0;
  await page.route("**/v1/admin/dispatches?status=PENDING*", (route) => route.fulfill({ json: {
    items: Array.from({ length: 200 }, () => ({ ...d, id: `dsp_${String(n++).padStart(26, "0")}` })), next_cursor: "more",
    server_time: new Date().toISOString(),
  } }));
  await page.route("**/v1/admin/board?*", async (route) => {
    const response = await route.fetch();
    const board = await response.json();
    await route.fulfill({ response, json: { ...board, counts: { ...board.counts, PENDING: 700 } } });
  });
  await page.evaluate((r) => { location.hash = `#/board?region=${r}`; }, region);
  await counted(page, { Pending: 700 });
  await expect(column(page, "Pending").getByText("100 more are not shown. Narrow the board to see them.")).toBeVisible();
  await expect(column(page, "Pending").getByRole("link")).toHaveCount(600);
});

test("a text is searched once, a quarter of a second after the last letter", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  await service.dispatch(region, { site_address: "1 Needle-ro" });
  const page = await openConsole(`#/board?region=${region}`);
  await ownClock(page);
  await expect(card(page, "Pending", "1 Needle-ro")).toBeVisible();
  await page.clock.pauseAt(Date.now() + 60_000); // it has to be in the future, however slow the machine is
  const searched = new Set<string>();
  page.on("request", (r) => {
    const q = new URL(r.url()).searchParams.get("q");
    if (q) searched.add(q);
  });
  const search = page.getByLabel("Search");
  for (const letter of "needle-ro") {
    const before = await search.inputValue();
    await search.press(letter);
    await expect(page).toHaveURL(new RegExp(`q=${before}${letter}$`));
    await page.clock.runFor(220); // the page begins its pause up to a frame of 16 ms after the letter
  }
  expect([...searched]).toEqual([]);
  const answered = page.waitForResponse((r) => r.url().includes("q=needle-ro"));
  await page.clock.runFor(1000);
  await answered;
  expect([...searched]).toEqual(["needle-ro"]);
});

test("the board shows a lost connection, and after it the missed changes", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const taken = await service.dispatch(region, { site_address: "1 Taken-ro" });
  await service.change(await service.dispatch(region, { site_address: "2 Gone-ro" }), "cancel");
  await service.dispatch(region, { opens_at: soon(600_000), expires_at: soon(900_000) });
  const page = await openConsole(`#/board?region=${region}`);
  await expect(card(page, "Pending", "1 Taken-ro")).toBeVisible();
  await expect(page.getByText(/^Cut off since/)).toHaveCount(0);
  await accessible(page);

  await page.context().setOffline(true);
  await expect(page.getByRole("alert").filter({ hasText: /Cut off since \d\d:\d\d:\d\d/ })).toBeVisible();
  await expect(page.getByRole("status").filter({ hasText: "cut off: what you see may be old" })).toBeVisible();
  await accessible(page);
  await service.accept(taken.id, driver!.token);
  await service.dispatch(region, { site_address: "3 Fresh-ro" });
  await expect(card(page, "Pending", "1 Taken-ro")).toBeVisible();
  await page.context().setOffline(false);
  await expect(card(page, "Accepted", "1 Taken-ro")).toContainText("Driver 1");
  await expect(card(page, "Pending", "3 Fresh-ro")).toBeVisible();
  await expect(page.getByText(/^Cut off since/)).toHaveCount(0);
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  await counted(page, { Scheduled: 1, Pending: 1, Accepted: 1, Canceled: 1 });
  await accessible(page);
});

test("the board follows a killed and restarted service again", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  const [driver] = await service.drivers(1, "seoul");
  const d = await service.dispatch("seoul", { site_address: "1 Taken-ro" });
  const page = await openConsole("#/board", undefined, service);
  await expect(card(page, "Pending", "1 Taken-ro")).toBeVisible();
  await service.stop("SIGKILL");
  await expect(page.getByText(/^Cut off since/)).toBeVisible();
  await service.start();
  await service.accept(d.id, driver!.token);
  await expect(card(page, "Accepted", "1 Taken-ro")).toBeVisible();
  await expect(page.getByText(/^Cut off since/)).toHaveCount(0);
  await counted(page, { Pending: 0, Accepted: 1 });
  await service.dispatch("seoul", { site_address: "2 After-ro" });
  await expect(card(page, "Pending", "2 After-ro")).toBeVisible();
  await expect(page.getByText("can't be reached")).toHaveCount(0);
});

test("a card is reached and opened with the keyboard", async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  await service.dispatch(region, { site_address: "1 First-ro", expires_at: soon(300_000) });
  await service.dispatch(region, { site_address: "2 Second-ro", expires_at: soon(400_000) });
  const taken = await service.dispatch(region, { site_address: "3 Third-ro" });
  await service.accept(taken.id, driver!.token);
  const page = await openConsole(`#/board?region=${region}`);
  await expect(card(page, "Accepted", "3 Third-ro")).toBeVisible();
  await page.getByLabel("Search").focus();
  await tabTo(card(page, "Pending", "1 First-ro"));
  await expect(card(page, "Pending", "1 First-ro")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(card(page, "Pending", "2 Second-ro")).toBeFocused();
  await page.keyboard.press("ArrowRight");
  await expect(card(page, "Accepted", "3 Third-ro")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`#/dispatches/${taken.id}$`));
  await page.goBack();
  await expect(page.getByLabel("Region")).toHaveValue(region);
});

// No event announces it, and a minute is too long for a test: the test says in the answer to each poll which offers are unseen.
test("the poll of the counts finds an unseen offer, which stands out, in words", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const page = await openConsole(`#/board?region=${region}`);
  const unseen: string[] = [];
  await page.route("**/v1/admin/board*", async (route) => {
    const response = await route.fetch(), board = await response.json();
    expect(board.unseen_ids).toBeInstanceOf(Array);
    await route.fulfill({ response, json: { ...board, unseen: unseen.length, unseen_ids: unseen } });
  });
  await ownClock(page);
  const [driver] = await service.drivers(1, region);
  await service.dispatch(region, { site_address: "1 Seen-ro" });
  const d = await service.dispatch(region, { site_address: "2 Unseen-ro", expires_at: soon(1200_000) });
  await counted(page, { Pending: 2 });
  await expect(column(page, "Pending").getByText("not seen")).toHaveCount(0);
  unseen.push(d.id);
  await page.clock.fastForward(10_000);
  await expect(column(page, "Pending").getByRole("status")).toHaveText("▲ 1 not seen for 60 s");
  await expect(card(page, "Pending", "2 Unseen-ro")).toContainText("not seen for 60 s");
  await expect(column(page, "Pending").getByRole("link").first()).toContainText("2 Unseen-ro");
  await expect(card(page, "Pending", "1 Seen-ro")).not.toContainText("not seen");
  await accessible(page);
  await service.accept(d.id, driver!.token);
  await expect(card(page, "Accepted", "2 Unseen-ro")).not.toContainText("not seen");
});
