import { accessible, expect, idle, tabTo, test as base } from "../fixtures.ts";
import { Fcm } from "../fcm.ts";

const test = base.extend<{ fcm: Fcm; tell: (n: number) => Promise<string> }>({
  fcm: async ({}, use) => {
    const fcm = await new Fcm().start();
    await use(fcm);
    await fcm.close();
  },
  settings: async ({ fcm }, use) => use(fcm.settings()), // own pushes to fcm
  /** Notifies n drivers of a dispatch, on a device each: phone-0, phone-1, ... */
  tell: async ({ own, region }, use) => use(async (n) => {
    const drivers = await own.drivers(n, region);
    for (const [i, { token }] of drivers.entries()) {
      await own.call("PUT", `/v1/me/devices/installation-${i}`, { platform: "android", push_token: `phone-${i}`, app_version: "1.0.0", locale: "ko-KR" }, { token });
    }
    return (await own.dispatch(region)).id;
  }),
});

test("dead pushes are sent again, once the push service accepts them", { tag: "@slow" }, async ({ fcm, own, tell, openConsole }) => {
  await fcm.poison("dispatch.opened");
  const id = await tell(4);
  const page = await openConsole("#/notifications", await own.key("dispatcher"), own);
  const dead = page.getByRole("tab", { name: "Dead" });
  await expect(dead).toHaveText("Dead 4");
  await dead.click();
  const rows = page.getByRole("tabpanel").getByRole("row");
  await expect(rows).toHaveCount(5);
  const first = rows.filter({ hasText: "Driver 1" });
  await expect(first).toContainText("opened");
  await expect(first).toContainText("INVALID_ARGUMENT");
  await expect(first.getByRole("link")).toHaveAttribute("href", `#/dispatches/${id}`);
  await accessible(page);

  await fcm.cure();
  await first.getByRole("button", { name: "Send again: opened to Driver 1" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Back" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(dead).toHaveText("Dead 4");
  await first.getByRole("button", { name: "Send again: opened to Driver 1" }).click();
  await dialog.getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("1 of 1 put back into the backlog.")).toBeVisible();
  await expect(dead).toHaveText("Dead 3");
  await expect(first).toHaveCount(0);

  // Another user sends one of them again before this user confirms: the service refuses that one, and takes the others.
  await page.getByRole("button", { name: "Send all 3 shown again" }).click();
  const [other] = (await own.call("GET", "/v1/admin/notifications?status=DEAD")).items;
  await own.call("POST", `/v1/admin/notifications/${other.id}/redrive`);
  await dialog.getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("2 of 3 put back into the backlog.")).toBeVisible();
  await expect(page.getByRole("listitem").filter({ hasText: other.id })).toBeVisible();
  await expect(dead).toHaveText("Dead 0");
  await expect(page.getByText("No push is dead.")).toBeVisible();

  await page.getByRole("tab", { name: "Sent" }).click();
  await expect(rows).toHaveCount(5);
  await expect(rows.filter({ hasText: "Driver 2" })).toContainText("opened");
  for (const n of [0, 1, 2, 3]) expect((await fcm.device(`phone-${n}`)).received).toBe(1);
});

test("a push that is refused again is dead again, and is sent again by keyboard alone", { tag: "@slow" }, async ({ fcm, own, tell, openConsole }) => {
  await fcm.poison("dispatch.opened");
  await tell(1);
  const page = await openConsole("#/notifications/DEAD", undefined, own);
  const again = page.getByRole("button", { name: "Send again: opened to Driver 1" });
  await again.click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("1 of 1 put back into the backlog.")).toBeVisible();
  await expect.poll(() => fcm.refused()).toBe(2);
  await expect.poll(async () => (await own.call("GET", "/v1/admin/notifications?status=DEAD")).items.length).toBe(1);
  await idle(page); // no list from between is still to come
  await expect(page.getByRole("tab", { name: "Backlog" })).toHaveText("Backlog 0");
  await expect(again).toBeVisible();

  await fcm.cure();
  await page.getByRole("tab", { name: "Dead" }).focus();
  await tabTo(again);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").getByRole("button", { name: "Send again" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByText("No push is dead.")).toBeVisible();
});

test("more than a page is not counted, but shown on demand", { tag: "@slow" }, async ({ fcm, own, tell, openConsole }) => {
  await fcm.poison("dispatch.opened");
  await tell(130);
  const page = await openConsole("#/notifications/DEAD", undefined, own);
  const dead = page.getByRole("tab", { name: "Dead" });
  await expect(dead).toHaveText("Dead 100+");
  const rows = page.getByRole("tabpanel").getByRole("row");
  await expect(rows).toHaveCount(101);
  await page.getByRole("button", { name: "Show 100 more" }).click();
  await expect(rows).toHaveCount(131);
  await expect(dead).toHaveText("Dead 130");
  await fcm.cure();
  await page.getByRole("button", { name: "Send all 130 shown again" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("130 of 130 put back into the backlog.")).toBeVisible();
  await expect(dead).toHaveText("Dead 0");
});

test("the backlog shows pending pushes, also after a lost connection", { tag: "@slow" }, async ({ fcm, own, tell, openConsole }) => {
  await fcm.fail(503);
  const id = await tell(2);
  const page = await openConsole("#/notifications", await own.key("viewer"), own);
  const backlog = page.getByRole("tab", { name: "Backlog" });
  await expect(backlog).toHaveText("Backlog 2");
  await expect(page.getByText("current", { exact: true })).toBeVisible();
  const rows = page.getByRole("tabpanel").getByRole("row");
  await expect(rows.filter({ hasText: "Driver 1" })).toContainText(/in \d+ s|due/);

  await page.context().setOffline(true);
  await expect(page.getByText(/^may be old: read at/)).toBeVisible();
  await expect(rows).toHaveCount(3);
  await own.change(await own.read({ id }), "cancel", { reason_code: "CUSTOMER" });
  const dropped = async () => (await own.call("GET", "/v1/admin/notifications?status=DROPPED")).items.length;
  await expect.poll(dropped).toBe(2); // a push that was read before the cancellation may still be sent
  await fcm.fail(0);
  await page.context().setOffline(false);
  await expect(page.getByText("current", { exact: true })).toBeVisible();
  await expect(backlog).toHaveText("Backlog 0");
  await page.getByRole("tab", { name: "Dropped" }).click();
  await expect(rows.filter({ hasText: "opened" })).toHaveCount(2);
});

test("a viewer sees dead pushes without buttons; keys move the tabs", { tag: "@slow" }, async ({ fcm, own, tell, openConsole }) => {
  await fcm.poison("dispatch.opened");
  await tell(2);
  const page = await openConsole("#/notifications", await own.key("viewer"), own);
  await expect(page.getByRole("tab", { name: "Dead" })).toHaveText("Dead 2");
  await page.getByRole("tab", { name: "Backlog" }).focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByRole("tab", { name: "Dead" })).toBeFocused();
  await expect(page.getByRole("tab", { name: "Dead" })).toHaveAttribute("aria-selected", "true");
  await expect(page.getByRole("tabpanel", { name: "Dead" }).getByRole("row")).toHaveCount(3);
  await expect(page.getByRole("button", { name: "again", exact: false })).toHaveCount(0);
  await page.keyboard.press("Home");
  await expect(page.getByText("Nothing waits to be sent.")).toBeVisible();
  await page.keyboard.press("ArrowLeft");
  await expect(page.getByRole("tab", { name: "Sent" })).toBeFocused();
  await expect(page).toHaveURL(/#\/notifications\/SENT$/);
});
