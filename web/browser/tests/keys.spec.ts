import { type Page, accessible, confirmLink, expect, ownClock, test } from "../fixtures.ts";

const row = (page: Page, name: string) => page.getByRole("region", { name: "API keys" }).getByRole("row", { name });

test("a key is shown once, opens the console, and is invalid once revoked", { tag: "@slow" }, async ({ openConsole, open, service, region }) => {
  const page = await openConsole("#/keys");
  await page.getByRole("button", { name: "Make key" }).click();
  await expect(page.getByLabel("Name")).toHaveAccessibleDescription(/is required/);
  await page.getByLabel("Name").fill(region);
  await page.getByLabel("Role").selectOption("viewer");
  await page.getByRole("button", { name: "Make key" }).click();
  const dialog = page.getByRole("dialog", { name: `The key of ${region}` });
  const key = await dialog.getByLabel("Key").inputValue();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await dialog.getByRole("button", { name: "Copy" }).click();
  await expect(dialog.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(key);
  await accessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(row(page, region)).toContainText("viewer");
  expect(await page.content()).not.toContain(key);
  expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage }))).not.toContain(key);
  await accessible(page);

  const theirs = await open(`/console/#key=${key}`);
  await confirmLink(theirs);
  await expect(theirs.getByText(`${region} (viewer)`)).toBeVisible();
  await ownClock(theirs);
  await expect(theirs.getByText(`${region} (viewer)`)).toBeVisible();
  await page.getByRole("button", { name: `Revoke ${region}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Back" }).click();
  await expect(row(page, region)).not.toContainText("revoked");
  await page.getByRole("button", { name: `Revoke ${region}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await expect(row(page, region)).toContainText("revoked");
  await expect(row(page, region).getByRole("button")).toHaveCount(0);
  await theirs.clock.fastForward(10_000);
  await expect(theirs.getByText("Your session is over. Sign in again.")).toBeVisible();
  await expect(service.call("GET", "/v1/admin/board", undefined, { token: key })).rejects.toThrow("401");
});

test("the first key can't be revoked", { tag: "@slow" }, async ({ openConsole, service }) => {
  const page = await openConsole("#/keys");
  const first = row(page, "FIRSTTAP_ADMIN_KEY").first();
  await expect(first).toContainText("it is replaced in FIRSTTAP_ADMIN_KEY");
  await expect(first).toContainText("yours");
  await expect(first.getByRole("button")).toHaveCount(0);
  await expect(service.call("DELETE", "/v1/admin/api-keys/key_first")).rejects.toThrow("409");
});

test("the audit shows the changes and their authors, the newest first", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver, other] = await service.drivers(2, region);
  const path = `/v1/admin/drivers/${driver!.id}`;
  await service.call("PATCH", path, { name: "Kim Min-jun" });
  const { id, key } = await service.call("POST", "/v1/admin/api-keys", { name: `key of ${region}`, role: "admin" });
  await service.call("POST", path + "/suspend", { reason_code: "NO_SHOW" }, { token: key });
  await service.call("POST", `/v1/admin/drivers/${other!.id}/suspend`, {}, { token: key });
  const page = await openConsole(`#/drivers/${driver!.id}`);
  await page.getByRole("link", { name: "What admins changed" }).click();
  const entries = page.getByRole("region", { name: "Audit" }).locator("tbody").getByRole("row");
  await expect(entries).toHaveCount(2);
  await expect(entries.nth(0)).toContainText("driver.suspend");
  await expect(entries.nth(0)).toContainText(`key of ${region}`);
  await expect(entries.nth(0)).toContainText("NO_SHOW");
  await expect(entries.nth(1)).toContainText("driver.update");
  await expect(entries.nth(1)).toContainText("Name changed");
  await expect(page.getByLabel("What was changed")).toHaveValue(driver!.id);
  await accessible(page);
  await page.getByLabel("What was changed").clear();
  await page.getByLabel("Who").fill(id);
  await expect(entries).toHaveCount(2);
  await expect(entries.nth(0)).toContainText(other!.id);
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(entries.filter({ hasText: "key.create" }).first()).toBeVisible();
});
