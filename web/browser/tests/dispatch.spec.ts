import { accessible, expect, hold, idle, tabTo, test } from "../fixtures.ts";
import { button, lookAway, news, section, status } from "../dispatch.ts";

/** Formats a moment as a datetime-local field does, which leaves out zero seconds; the browser is in Seoul. */
const local = (ms: number) => new Date(ms + 9 * 3600_000).toISOString().slice(0, 19).replace(/:00$/, "");

test("cancel, by the keyboard alone", async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch({}, await service.key("dispatcher"));
  const cancel = button(page, "Cancel…");
  await tabTo(cancel);
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Cancel this dispatch?" });
  await expect(dialog).toBeVisible();
  await accessible(page);
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await expect(cancel).toBeFocused();
  expect((await service.read(d)).status).toBe("PENDING");
  await page.keyboard.press("Enter");
  await expect(dialog.getByLabel("Reason (optional)")).toBeFocused();
  await page.keyboard.type("NO_LONGER_NEEDED");
  await page.keyboard.press("Tab");
  await expect(button(dialog, "Cancel the dispatch")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(news(page)).toHaveText("Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  await expect(page.getByRole("group", { name: "Actions" })).toBeFocused();
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText(/canceled.*NO_LONGER_NEEDED.*you/);
  expect((await service.events(d)).filter((e) => e.type === "dispatch.canceled").map((e) => e.reason_code)).toEqual(["NO_LONGER_NEEDED"]);
});

test("a dialog's event close that comes late does not close the next dialog", async ({ openDispatch }) => {
  const { page } = await openDispatch();
  const cancel = button(page, "Cancel…");
  await cancel.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.evaluate((first: any) => first.addEventListener("close", (event: any) => {
    if (!event.isTrusted) return;
    event.stopImmediatePropagation();
    Object.assign(globalThis, { closeLate: () => first.dispatchEvent(new Event("close")) });
  }, true));
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await cancel.press("Enter");
  await dialog.getByLabel("Reason (optional)").fill("LATE");
  await page.waitForFunction(() => "closeLate" in globalThis);
  await page.evaluate(() => (globalThis as any).closeLate());
  await button(dialog, "Cancel the dispatch").click();
  await expect(news(page)).toHaveText("Canceled.");
});

test("the second of two users sees the first one's change, and may still act", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const { page, d } = await openDispatch();
  await button(page, "Cancel…").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason (optional)").fill("MINE");
  await lookAway(page);
  await service.accept(d.id, driver!.token, 1);
  await expect(status(page)).toHaveText("ACCEPTED"); // the page changes; the dialog's dispatch does not
  await button(dialog, "Cancel the dispatch").click();
  await expect(dialog.getByRole("alert").first()).toContainText("Someone else changed it first. It was accepted by Driver 1.");
  await expect(dialog.getByRole("alert").first()).toContainText("Now it is ACCEPTED in round 1.");
  await expect(dialog.getByLabel("Reason (optional)")).toHaveValue("MINE");
  await accessible(page);
  expect((await service.read(d)).status).toBe("ACCEPTED");
  await button(dialog, "Cancel the dispatch").click();
  await expect(news(page)).toHaveText("Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  expect((await service.events(d)).at(-1)).toMatchObject({ type: "dispatch.canceled", reason_code: "MINE" });
});

test("a change that the state no longer allows is refused in words", async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  await button(page, "Extend…").click();
  const dialog = page.getByRole("dialog");
  await service.change(d, "cancel", { reason_code: "THEIRS" });
  await button(dialog, "Extend").click();
  await expect(dialog.getByRole("alert").first()).toContainText("(THEIRS)");
  await button(dialog, "Extend").click();
  await expect(dialog.getByText("That can't be done in its present state: CANCELED.")).toBeVisible();
  await button(dialog, "Back").click();
  await expect(page.getByText("Nothing more can be done to it.")).toBeVisible();
});

test("extend", { tag: "@slow" }, async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  await button(page, "Extend…").click();
  const dialog = page.getByRole("dialog", { name: "Let it stand longer" });
  await accessible(page);
  const end = dialog.getByLabel("New end (your time)");
  await expect(end).toHaveValue(local(Date.parse(d.expires_at) + 600_000));
  await button(dialog, "30 min more").click();
  await expect(end).toHaveValue(local(Date.parse(d.expires_at) + 2400_000));
  await end.fill(local(Date.parse(d.expires_at) - 60_000));
  await button(dialog, "Extend").click();
  await expect(dialog.getByRole("alert").filter({ hasText: "Expires at must be later than it is" })).toBeVisible();
  const until = Date.parse(d.expires_at) + 3600_000;
  await end.fill(local(until));
  await button(dialog, "Extend").click();
  await expect(news(page)).toHaveText("Extended.");
  await expect(page.getByText("expires in 1:0")).toBeVisible();
  const after = await service.read(d);
  expect(Date.parse(after.expires_at)).toBe(Math.floor(until / 1000) * 1000);
  expect(after).toMatchObject({ round: 1, version: 2 });
});

test("a dispatch expires on the open page, and is reopened", { tag: "@slow" }, async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  await expect(page.getByText("expires in")).toBeVisible();
  service.move(d.id, "expires_at", 0);
  await expect(status(page)).toHaveText("EXPIRED");
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText("expired");
  await expect(button(page, "Extend…")).toBeHidden();
  await button(page, "Reopen…").click();
  const dialog = page.getByRole("dialog", { name: "Open it again" });
  await accessible(page);
  const until = Math.floor(Date.now() / 1000) * 1000 + 1200_000;
  await dialog.getByLabel(/^Until/).fill(local(until));
  await button(dialog, "Reopen").click();
  await expect(news(page)).toContainText("Reopened");
  await expect(status(page)).toHaveText("PENDING");
  expect(await service.read(d)).toMatchObject({ status: "PENDING", round: 2, expires_at: new Date(until).toISOString() });
});

test("assign and unassign", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const [away] = await service.drivers(1, region, { name: `Away ${region}`, on_duty: false });
  const [small] = await service.drivers(1, region, { name: `Small ${region}`, vehicle_class: "28m" });
  const { page, d } = await openDispatch({}, await service.key("dispatcher"));
  await button(page, "Assign…").click();
  const dialog = page.getByRole("dialog", { name: "Give it to a driver" });
  await expect(dialog.getByRole("radio")).toHaveCount(1); // the driver of that region with such a vehicle
  await expect(button(dialog, "Assign")).toBeDisabled();
  await dialog.getByLabel(/^Find a driver/).fill(`small ${region}`);
  await dialog.getByRole("radio", { name: small!.name }).check();
  await accessible(page);
  await button(dialog, `Assign to ${small!.name}`).click();
  await expect(dialog.getByText("This driver can't take it: has another class of vehicle.")).toBeVisible();
  await dialog.getByLabel(/^Find a driver/).fill(away!.id);
  await dialog.getByRole("radio", { name: away!.name }).check();
  await button(dialog, `Assign to ${away!.name}`).click();
  await expect(news(page)).toHaveText(`Assigned to ${away!.name}.`);
  await expect(status(page)).toHaveText("ACCEPTED");
  await expect(page.getByText(`${away!.name} since `)).toBeVisible();
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText(`assigned ${away!.name}`);

  await button(page, "Unassign…").click();
  await page.getByLabel("Reason (optional)").fill("ILL");
  await accessible(page);
  await button(page.getByRole("dialog"), "Unassign").click();
  await expect(news(page)).toContainText("Unassigned");
  await expect(status(page)).toHaveText("PENDING");
  expect(await service.read(d)).toMatchObject({ status: "PENDING", round: 2 });
  expect((await service.events(d)).find((e) => e.type === "dispatch.unassigned").reason_code).toBe("ILL");
});

test("a driver who was busy can be assigned once free", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const other = await service.dispatch(region);
  await service.accept(other.id, driver!.token);
  const { page } = await openDispatch();
  await button(page, "Assign…").click();
  const dialog = page.getByRole("dialog", { name: "Give it to a driver" });
  await dialog.getByRole("radio", { name: driver!.name }).check();
  const assign = button(dialog, `Assign to ${driver!.name}`);
  await assign.click();
  await expect(dialog.getByRole("alert")).toBeVisible();
  await service.change(await service.read(other), "unassign");
  await assign.click();
  await expect(news(page)).toHaveText(`Assigned to ${driver!.name}.`);
});

test("other terms begin a new round, and only the changed fields are sent", { tag: "@slow" }, async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch({ note: "Gate 1", site_lat: 37.4979, site_lng: 127.0276 });
  await button(page, "Edit terms…").click();
  const dialog = page.getByRole("dialog", { name: "Edit the terms" });
  await expect(dialog.getByText("Changed terms are a new round.")).toBeVisible();
  await expect(button(dialog, "Change the terms")).toBeDisabled();
  await accessible(page);
  await dialog.getByLabel("Fee", { exact: true }).fill("399999.5");
  await button(dialog, "Change the terms").click();
  await expect(dialog.getByLabel("Fee", { exact: true })).toHaveAccessibleDescription("must be a whole number like 350000"); // it is not rounded
  await dialog.getByLabel("Fee", { exact: true }).fill("400000");
  await service.patch(d, { note: "Gate 2" });
  await button(dialog, "Change the terms").click();
  await expect(dialog.getByRole("alert").first()).toContainText("It has changed meanwhile, by your own key. It was changed by you.");
  await expect(dialog.getByLabel("Fee", { exact: true })).toHaveValue("400000");
  await button(dialog, "Change the terms").click();
  await expect(news(page)).toContainText("it is a new round");
  expect(await service.read(d)).toMatchObject({ round: 3, note: "Gate 2", fee: { amount: 400000, currency: "KRW" } });
  await expect(page.getByText("₩400,000")).toBeVisible();
});

test("a viewer sees the dispatch, and no buttons", async ({ openDispatch, service }) => {
  const { page } = await openDispatch({}, await service.key("viewer"));
  await expect(status(page)).toHaveText("PENDING");
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  for (const name of ["Cancel…", "Extend…", "Assign…", "Edit terms…"]) await expect(button(page, name)).toHaveCount(0);
});

test("an unknown outcome is shown as unknown, and is then found", { tag: "@slow" }, async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  await button(page, "Cancel…").click();
  const dialog = page.getByRole("dialog");
  await page.context().setOffline(true);
  await button(dialog, "Cancel the dispatch").click();
  await expect(dialog.getByText("It is not known whether this was done")).toBeVisible();
  await expect(page.getByText("cut off: what you see may be old")).toBeAttached();
  await page.context().setOffline(false);
  await expect(dialog.getByText("Your change is not made so far")).toBeVisible();
  await button(dialog, "Cancel the dispatch").click();
  await expect(news(page)).toHaveText("Canceled.");
  expect((await service.events(d)).filter((e) => e.type === "dispatch.canceled")).toHaveLength(1);
});

test("the page shows that it waits for a slow answer", { tag: "@slow" }, async ({ openDispatch }) => {
  const { page } = await openDispatch();
  const release = await hold(page, "**/cancel");
  await button(page, "Cancel…").click();
  await button(page.getByRole("dialog"), "Cancel the dispatch").click();
  await expect(page.getByRole("dialog").getByText("No answer yet")).toBeVisible();
  release();
  await expect(news(page)).toHaveText("Canceled.");
});

test("a change with a lost answer is found, and is made once", async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  let sent = 0;
  await page.route("**/cancel", async (route) => { // the request arrives, its answer does not
    sent++;
    await route.fetch();
    await page.context().setOffline(true);
    await route.abort("connectionreset");
  });
  await button(page, "Cancel…").click();
  await button(page.getByRole("dialog"), "Cancel the dispatch").click();
  await expect(page.getByRole("dialog").getByText("It is not known whether this was done")).toBeVisible();
  await button(page.getByRole("dialog"), "Back").click();
  await expect(news(page)).toContainText("It is not known whether your change was made");
  await page.context().setOffline(false);
  await expect(news(page)).toHaveText("The service can be reached again: Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  expect(sent).toBeGreaterThan(0);
  expect((await service.events(d)).filter((e) => e.type === "dispatch.canceled")).toHaveLength(1);
});

test("the page shows that a dispatch does not exist", { tag: "@slow" }, async ({ openConsole }) => {
  for (const id of ["dsp_00000000000000000000000000", "nonsense"]) {
    const page = await openConsole(`#/dispatches/${id}`);
    await expect(page.getByRole("heading", { name: "No such dispatch" })).toBeVisible();
    await expect(page.getByText(id)).toBeVisible();
    await accessible(page);
  }
});

test("a lost connection is shown once, and the old data stays", async ({ openDispatch, service }) => {
  const { page, d } = await openDispatch();
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  await idle(page); // a section without data says by itself that it can't be read
  await page.context().setOffline(true);
  await expect(page.getByText("cut off: what you see may be old")).toBeVisible();
  await expect(page.getByText("The service can't be reached. What you see may be old.")).toBeVisible();
  await expect(page.getByText(/can't be reached/)).toHaveCount(1);
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  await service.change(d, "cancel");
  await page.context().setOffline(false);
  await expect(status(page)).toHaveText("CANCELED");
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  await expect(page.getByText(/can't be reached/)).toHaveCount(0);
});
