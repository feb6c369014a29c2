import { accessible, expect, test } from "../fixtures.ts";
import { holdSupply } from "../supply.ts";

test("the jobs, their schedules in words, and their runs live", { tag: "@slow" }, async ({ openConsole, service }) => {
  const page = await openConsole("#/jobs", await service.key("viewer"));
  const row = (name: string) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
  await expect(row("expire-offers")).toContainText("every 5 seconds");
  await expect(row("nightly")).toContainText("every day at 04:00");
  await expect(row("nightly")).toContainText("Asia/Seoul, on the leader");
  await expect(row("nightly")).toContainText(/held/);
  await expect(row("retention")).toContainText("5 min after its last run");
  await expect(row("remind")).toContainText("every minute");
  await expect(row("expire-offers")).toContainText("SUCCEEDED");
  await expect(row("expire-offers")).toContainText(/[0-9]+ offers ended/); // it ends those of other tests, too
  await expect(page.getByRole("button", { name: /^Runs of / })).toHaveCount(5);
  await expect(page.getByRole("button", { name: /^Run now/ })).toHaveCount(0);

  await page.getByRole("button", { name: "Runs of expire-offers" }).focus();
  await page.keyboard.press("Enter");
  const runs = page.getByRole("table", { name: "Last runs of expire-offers" }).getByRole("row");
  await expect(runs.nth(1)).toContainText("SUCCEEDED");
  const newest = await runs.nth(1).textContent();
  await service.call("POST", "/v1/admin/jobs/expire-offers/run");
  await expect(runs.nth(1)).not.toHaveText(newest!); // the run appears without a reload
  await accessible(page);
});

test("an admin requests a run of a job, and follows it", async ({ openConsole, service }) => {
  const page = await openConsole("#/jobs");
  await page.getByRole("button", { name: "Run now: retention" }).click();
  const dialog = page.getByRole("dialog", { name: "Run retention now?" });
  await dialog.getByRole("button", { name: "Back" }).click();
  await expect(dialog).toHaveCount(0);
  const before = (await service.call("GET", "/v1/admin/jobs/retention/runs")).items.filter((r: any) => r.requested_by !== null);
  // The dialog has the focus in the same turn of the page: it gets the next key, even on a busy page.
  expect(await page.getByRole("button", { name: "Run now: retention" }).evaluate(async (button: HTMLButtonElement) => {
    button.click();
    for (let n = 0; n < 10; n++) await null; // the promises queued after the click, and no frame
    return document.activeElement!.closest("dialog") !== null;
  })).toBe(true);
  await page.keyboard.press("Enter");
  const watched = page.getByRole("status").filter({ hasText: "retention" });
  await expect(watched).toContainText(/SUCCEEDED.*rows deleted, in .* on /);
  const asked = page.getByRole("table", { name: "Last runs of retention" }).getByRole("row").filter({ hasText: "key_" });
  await expect(asked).toHaveCount(before.length + 1);
  await expect(asked.first()).toContainText("SUCCEEDED");
});

test("a run that waits for its lock is queued until it is free", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  await holdSupply(service);
  const page = await openConsole("#/jobs", undefined, service);
  await page.getByRole("button", { name: "Run now: supply" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
  await expect(page.getByRole("status").filter({ hasText: "supply" })).toContainText("QUEUED");
  const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "supply" }) });
  await expect(row).toContainText("asked for");
  await expect(row).toContainText(/held\s*(2\d|30):\d\d/);
  await page.context().setOffline(true);
  await expect(page.getByText(/^may be old: read at/).first()).toBeVisible();
  const still = row.getByText(/^(2\d|30):\d\d$/);
  await expect(still).not.toHaveText((await still.textContent())!); // it counts down without a reload
});

test("a lost connection and its return", { tag: "@slow" }, async ({ openConsole }) => {
  const page = await openConsole("#/jobs");
  const table = page.getByRole("region", { name: "Jobs" });
  await expect(table).toBeVisible();
  await page.context().setOffline(true);
  await expect(page.getByText(/^may be old: read at/)).toBeVisible();
  await expect(table).toBeVisible();
  await page.getByRole("button", { name: "Run now: retention" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Run now" }).click();
  await expect(dialog.getByRole("alert")).toContainText("can't be reached");
  await page.context().setOffline(false);
  await dialog.getByRole("button", { name: "Run now" }).click();
  await expect(page.getByRole("status").filter({ hasText: "retention" })).toContainText("SUCCEEDED");
  await expect(page.getByText("current", { exact: true })).toBeVisible();
  await expect(page.getByText(/^may be old/)).toHaveCount(0);
});

test.describe("with settings", () => {
  test.use({ settings: { FIRSTTAP_JOBS: "supply=off; retention=@every 90s" } });
  test("a job that is off is shown as such, and runs by hand", { tag: "@slow" }, async ({ openConsole, own: service }) => {
    const page = await openConsole("#/jobs", undefined, service);
    const row = (name: string) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
    await expect(row("retention")).toContainText("every 1 min 30 s");
    await expect(row("supply")).toContainText("lock for 50 s to 55 s");
    await expect(row("supply")).toContainText("runs by hand only");
    await expect(row("supply")).toContainText("never");
    await page.getByRole("button", { name: "Run now: supply" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
    await expect(page.getByRole("status").filter({ hasText: "supply" })).toContainText("SUCCEEDED");
    await accessible(page);
  });
});
