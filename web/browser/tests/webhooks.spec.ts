import { Webhook } from "standardwebhooks";
import { type Page, accessible, expect, test as base } from "../fixtures.ts";
import { Receiver } from "../receiver.ts";
import type { Json, Service } from "../service.ts";

const webhooks = "/v1/admin/webhooks";

const test = base.extend<{ receiver: Receiver }>({
  receiver: async ({}, use) => {
    const receiver = await new Receiver().start();
    await use(receiver);
    await receiver.close();
  },
  settings: { FIRSTTAP_WEBHOOK_ALLOW_PRIVATE: "true" },
});

const log = (page: Page) => page.getByRole("region", { name: "Deliveries" }).getByRole("table").first();
const rows = (page: Page) => log(page).locator("> tbody > tr:has(th[scope=row])"); // without those of the details
const made = (own: Service, url: string, more: Json = {}) => own.call("POST", webhooks, { url, events: ["*"], ...more });

test("a webhook is made, its secret is shown once, and it gets a test", { tag: "@slow" }, async ({ openConsole, own, receiver }) => {
  const page = await openConsole("#/webhooks", undefined, own);
  await expect(page.getByText("No webhooks.")).toBeVisible();
  await page.getByRole("button", { name: "Make webhook" }).click();
  await expect(page.getByLabel("Address")).toHaveAccessibleDescription(/is required/);
  await expect(page.getByLabel("Address")).toBeFocused();
  await page.getByLabel("Address").fill("example.com");
  await page.getByLabel("Only some").check();
  await page.getByRole("button", { name: "Make webhook" }).click();
  await expect(page.getByLabel("Address")).toHaveAccessibleDescription(/must be an address like https:\/\/example.com\/webhooks/);
  await expect(page.getByText("2 fields are not right.")).toBeVisible();
  await page.getByLabel("Address").fill(receiver.url);
  await page.getByRole("button", { name: "Make webhook" }).click();
  await expect(page.getByLabel("created", { exact: true })).toHaveAccessibleDescription(/must be at least 1/);
  await accessible(page);
  await page.getByLabel("accepted", { exact: true }).check();
  await page.getByLabel("completed", { exact: true }).check();
  await page.getByLabel("Description").fill("Billing");
  await page.getByRole("button", { name: "Make webhook" }).click();

  const dialog = page.getByRole("dialog", { name: "The webhook's secret" });
  const secret = await dialog.getByLabel("Secret").inputValue();
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  await accessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByText(secret)).toHaveCount(0);
  const row = page.getByRole("region", { name: "Webhooks" }).getByRole("row", { name: receiver.url });
  await expect(row).toContainText("accepted, completed");
  await expect(row).toContainText("Billing");
  await expect(row).toContainText("active");
  await expect(page.getByLabel("Address")).toHaveValue("");
  await accessible(page);

  await row.getByRole("link").click();
  await expect(page.getByRole("heading", { level: 1, name: receiver.url })).toBeVisible();
  await page.getByRole("button", { name: "Send a test" }).click();
  await expect(page.getByText("A test is on its way: it is in the list below.")).toBeVisible();
  await expect(rows(page)).toHaveCount(1);
  await expect(rows(page).first()).toContainText(/test.*delivered\s*1\s*204/);
  await accessible(page);
  expect(receiver.got).toHaveLength(1);
  const { headers, body } = receiver.got[0]!;
  expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toMatchObject({ type: "webhook.test" });
});

test("an event that the receiver refuses is shown with the answer, and is delivered when it is sent again", { tag: "@slow" }, async ({ openConsole, own, receiver, region }) => {
  receiver.status = 503;
  receiver.answer = "try later";
  const { id, secret } = await made(own, receiver.url);
  const d = await own.dispatch(region);
  const page = await openConsole(`#/webhooks/${id}`, undefined, own);
  await expect(rows(page)).toHaveCount(1);
  await expect(rows(page)).toContainText(/created.*waiting\s*\d\s*503/);
  await expect(page.getByText(/^failing since/)).toBeVisible();
  await page.getByRole("button", { name: "Details: created" }).click();
  const attempt = page.getByRole("table", { name: "Attempts" }).locator("tbody > tr").first();
  await expect(attempt).toContainText("the endpoint answered 503");
  await expect(attempt).toContainText("try later");
  await accessible(page);
  receiver.status = 200;
  receiver.answer = "ok";
  await page.getByRole("button", { name: "Send again: created" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
  await expect(rows(page)).toContainText(/delivered\s*\d\s*200/);
  await expect(page.getByText(/^failing since/)).toHaveCount(0);
  const { headers, body } = receiver.got.at(-1)!;
  const event = new Webhook(secret).verify(body, headers as Record<string, string>) as Json;
  expect(event).toMatchObject({ type: "dispatch.created", data: { dispatch_id: d.id, region, dispatch: { id: d.id, status: "PENDING" } } });
  expect(new Set(receiver.got.map((g) => g.headers["webhook-id"]))).toEqual(new Set([event.data.event_id]));
  await expect(page.getByRole("link", { name: `…${d.id.slice(-8)}` })).toHaveAttribute("href", `#/dispatches/${d.id}`);
});

test("what an address is refused for is said", { tag: "@slow" }, async ({ openConsole, own }) => {
  own.settings = { ...own.settings, FIRSTTAP_WEBHOOK_ALLOW_PRIVATE: "false" };
  await own.stop();
  await own.start();
  const page = await openConsole("#/webhooks", undefined, own);
  await page.getByLabel("Address").fill("https://127.0.0.1/webhooks");
  await page.getByRole("button", { name: "Make webhook" }).click();
  await expect(page.getByRole("alert").filter({ hasText: "Nothing is sent to this address" })).toBeVisible();
  await page.reload();
  await expect(page.getByLabel("Address")).toHaveValue("https://127.0.0.1/webhooks"); // what was typed is still there
  expect((await own.call("GET", webhooks)).items).toEqual([]);
});

test("a webhook is edited, paused, activated, given a new secret and deleted", { tag: "@slow" }, async ({ openConsole, own, receiver }) => {
  const { id, secret } = await made(own, receiver.url, { description: "Billing" });
  const read = () => own.call("GET", `${webhooks}/${id}`);
  const page = await openConsole(`#/webhooks/${id}`, undefined, own);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Edit" }).click();
  await dialog.getByLabel("Only some").check();
  await dialog.getByLabel("expired", { exact: true }).check();
  await dialog.getByLabel("Description").clear();
  await accessible(page);
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  expect(await read()).toMatchObject({ events: ["dispatch.expired"], description: null, url: receiver.url, version: 2 });

  // Another admin is faster: nothing of theirs is lost.
  await page.getByRole("button", { name: "Edit" }).click();
  await own.call("PATCH", `${webhooks}/${id}`, { description: "Theirs" });
  await dialog.getByLabel("Description").fill("Mine");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog.getByRole("alert")).toHaveText("Somebody else changed it first. Read it again.");
  await dialog.getByRole("button", { name: "Back" }).click();
  expect((await read()).description).toBe("Theirs");

  await page.getByRole("button", { name: "Pause" }).click();
  await dialog.getByRole("button", { name: "Pause" }).click();
  await expect(page.getByText("by an admin")).toBeVisible();
  await expect(page.getByRole("button", { name: "Send a test" })).toHaveCount(0);
  expect(await read()).toMatchObject({ status: "PAUSED", pause_reason: "ADMIN" });
  await page.getByRole("button", { name: "Activate" }).click();
  await dialog.getByRole("button", { name: "Activate" }).click();
  await expect(page.getByText("active", { exact: true })).toBeVisible();
  expect(await read()).toMatchObject({ status: "ACTIVE", pause_reason: null });

  await page.getByRole("button", { name: "New secret" }).click();
  await dialog.getByRole("button", { name: "New secret" }).click();
  const next = await dialog.getByLabel("Secret").inputValue();
  expect(next).toMatch(/^whsec_/);
  expect(next).not.toBe(secret);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(dialog).toHaveCount(0);

  await page.getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Back" }).click();
  expect((await read()).id).toBe(id);
  await page.getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("No webhooks.")).toBeVisible();
  await expect(read()).rejects.toThrow("404");
});

test("why a webhook is paused, and since when one fails", { tag: "@slow" }, async ({ openConsole, own }) => {
  const gone = await made(own, "https://gone.example.com"), failing = await made(own, "https://failing.example.com"), late = await made(own, "https://late.example.com");
  own.sql("UPDATE webhooks SET status = 'PAUSED', pause_reason = ? WHERE id = ?", ["GONE", gone.id], ["FAILING", failing.id]);
  own.sql("UPDATE webhooks SET failing_since = ? WHERE id = ?", [(Date.now() - 3600_000) * 1000, late.id]);
  const page = await openConsole("#/webhooks", undefined, own);
  await expect(page.getByRole("row", { name: gone.url })).toContainText("the receiver says that it is gone");
  await expect(page.getByRole("row", { name: failing.url })).toContainText("nothing was delivered for three days");
  await expect(page.getByRole("row", { name: late.url })).toContainText(/active failing since \d{4}-\d\d-\d\d/);
  await accessible(page);
});

test("webhooks are for admins", { tag: "@slow" }, async ({ openConsole, own }) => {
  const page = await openConsole("#/webhooks", await own.key("dispatcher"), own);
  await expect(page.getByText("There is no such page, or your key may not see it.")).toBeVisible();
  await expect(page.getByRole("link", { name: "Webhooks" })).toHaveCount(0);
});

/** Writes deliveries of a paused webhook, which nobody sends: one of each state, the newest first. Returns their events. */
function delivered(own: Service, webhook: string): string[] {
  const at = (Date.now() - 60_000) * 1000;
  const attempt = (more: Json, n = 0) => ({ at: new Date(at / 1000 + n * 5_000).toISOString(), took: 41_200_000, ...more });
  const refused = { http_status: 503, error: "the endpoint answered 503 Service Unavailable", answer: "try <b>later</b>" };
  const events = ["c", "b", "a"].map((c) => `evt_${"0".repeat(25)}${c}`);
  const rows = [
    ["PENDING", []],
    ["FAILED", [attempt(refused), attempt({ error: "no answer within 10s" }, 1)]],
    ["DELIVERED", [attempt({ http_status: 200, answer: "ok" })]],
  ] as const;
  own.sql(`INSERT INTO webhook_deliveries (dispatch_id, webhook_id, event_id, type, status, body, attempts, attempt, created_at, next_at)
    VALUES (?, ?, ?, ?, ?, CAST(? AS BLOB), ?, ?, ?, ?)`, ...rows.map(([status, attempts], i) =>
    [`dsp_${"0".repeat(26)}`, webhook, events[i], "dispatch.accepted", status, `{"n": ${i}}`, JSON.stringify(attempts), attempts.length, at, at]));
  return events;
}

test("each delivery is shown with its attempts, by state, and is sent again", async ({ openConsole, own }) => {
  const { id } = await made(own, "https://example.com/webhooks");
  await own.call("PATCH", `${webhooks}/${id}`, { status: "PAUSED" });
  const [, failed] = delivered(own, id);
  const page = await openConsole(`#/webhooks/${id}`, undefined, own);
  await expect(rows(page)).toHaveCount(3);
  await expect(rows(page).nth(0)).toContainText("waiting");
  await expect(rows(page).nth(1)).toContainText(/failed\s*2\s*no answer/);
  await expect(rows(page).nth(2)).toContainText(/delivered\s*1\s*200/);
  await page.getByLabel("State").selectOption("failed");
  await expect(rows(page)).toHaveCount(1);
  await expect(page.getByText("1 delivery.")).toBeVisible();

  await page.getByRole("button", { name: "Details: accepted" }).click();
  const attempts = page.getByRole("table", { name: "Attempts" }).locator("tbody > tr");
  await expect(attempts).toHaveCount(2);
  await expect(attempts.nth(0)).toContainText(/503\s*41 ms\s*the endpoint answered 503 Service Unavailable\s*try <b>later<\/b>/);
  await expect(attempts.nth(1)).toContainText("no answer within 10s");
  await expect(page.getByText('{"n": 1}', { exact: true })).toBeVisible();
  await expect(page.getByText(failed!, { exact: true })).toBeVisible();
  await accessible(page);

  await page.getByRole("button", { name: "Send again: accepted" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("No deliveries.")).toBeVisible();
  await page.getByLabel("State").selectOption("waiting");
  await expect(rows(page)).toHaveCount(2);
  const { items } = await own.call("GET", `${webhooks}/${id}/deliveries?status=PENDING`);
  expect(items.map((d: Json) => d.event_id)).toContain(failed);
});

test("events since a time are sent again", { tag: "@slow" }, async ({ openConsole, own }) => {
  const { id } = await made(own, "https://example.com/webhooks");
  const page = await openConsole(`#/webhooks/${id}`, undefined, own);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Send again since a time" }).click();
  await dialog.getByRole("button", { name: "Send again since a time" }).click();
  await expect(dialog.getByRole("alert")).toHaveText("Since when?");
  await dialog.getByLabel("Since").fill("2090-01-01T00:00");
  await dialog.getByRole("button", { name: "Send again since a time" }).click();
  await expect(dialog.getByRole("alert")).toHaveText("Since must be in the past");
  await dialog.getByLabel("Since").fill("2026-01-01T00:00");
  await accessible(page);
  await dialog.getByRole("button", { name: "Send again since a time" }).click();
  await expect(page.getByText("The events are being sent again, by and by.")).toBeVisible();
  const audited = await own.call("GET", `/v1/admin/audit?target=${id}`);
  expect(audited.items[0]).toMatchObject({ action: "webhook.replay", detail: { since: "2025-12-31T15:00:00.000Z" } }); // midnight in Seoul, where the browsers are
});
