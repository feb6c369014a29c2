import { readFile } from "node:fs/promises";
import { type Page, accessible, expect, loseAnswers, ownClock, test } from "../fixtures.ts";

const drivers = (page: Page) => page.getByRole("region", { name: "Drivers" }).getByRole("row");

test("drivers are listed by page and filtered", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  await service.drivers(60, region);
  const [off] = await service.drivers(1, region, { name: "Off Duty", on_duty: false });
  const [suspended] = await service.drivers(1, region, { name: "Suspended", vehicle_class: "28m" });
  await service.call("POST", `/v1/admin/drivers/${suspended!.id}/suspend`, {});
  const page = await openConsole("#/drivers");
  await page.getByLabel("Region").fill(region);
  await expect(page.getByText("50 drivers, and there are more.")).toBeVisible();
  await page.getByRole("button", { name: "Show more" }).click();
  await expect(page.getByText("62 drivers.")).toBeVisible();
  await expect(drivers(page)).toHaveCount(63);
  await accessible(page);
  await page.getByRole("combobox", { name: "Duty" }).selectOption("Off duty");
  await expect(page.getByText("1 driver.")).toBeVisible();
  await expect(drivers(page).last()).toContainText("Off Duty");
  await page.reload();
  await expect(page.getByRole("combobox", { name: "Duty" })).toHaveValue("false");
  await expect(drivers(page)).toHaveCount(2);
  await page.getByRole("combobox", { name: "Duty" }).selectOption("Any");
  await page.getByLabel("Suspension").selectOption("Suspended");
  await expect(drivers(page).last()).toContainText("suspended until reinstated");
  await page.getByLabel("Vehicle class").fill("45m");
  await expect(page.getByText("No drivers.")).toBeVisible();
  await page.getByLabel("Suspension").selectOption("Any");
  await page.getByLabel("Search").fill(off!.id);
  await drivers(page).getByRole("link", { name: "Off Duty" }).click();
  await expect(page.getByRole("heading", { name: "Off Duty" })).toBeVisible();
  await page.goBack();
  await expect(page.getByLabel("Search")).toHaveValue(off!.id);
});

test("a driver is shown, with devices and signals", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region, { working_height_m: 45 });
  await service.call("PUT", "/v1/me/devices/installation-1", { platform: "android", push_token: "push", app_version: "4.2.0" }, { token: driver!.token });
  const d = await service.dispatch(region);
  await service.accept(d.id, driver!.token);
  const page = await openConsole(`#/drivers/${driver!.id}`);
  await expect(page.getByRole("heading", { name: driver!.name })).toBeVisible();
  const device = page.getByRole("region", { name: "Devices" }).getByRole("row").last();
  await expect(device).toContainText("android");
  await expect(device).toContainText("4.2.0");
  await expect(device).toContainText("installation-1");
  await expect(page.getByText("never acted on")).toBeVisible();
  await expect(page.getByText("Under 300 ms", { exact: true })).toBeVisible();
  await accessible(page);
  await service.call("PUT", "/v1/me/duty", { on_duty: false }, { token: driver!.token });
  await expect(page.getByText("off duty")).toBeVisible();
});

test("a device is removed", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  for (const phone of ["old/phone+1", "new-phone"]) {
    await service.call("PUT", `/v1/me/devices/${encodeURIComponent(phone)}`, { platform: "android", push_token: `push-${region}-${phone.length}` },
      { token: driver!.token });
  }
  const page = await openConsole(`#/drivers/${driver!.id}`);
  const devices = page.getByRole("region", { name: "Devices" }).getByRole("row");
  await expect(devices).toHaveCount(3);
  const old = devices.filter({ hasText: "old/phone+1" });
  await expect(old).toContainText("good");
  await accessible(page);
  await old.getByRole("button", { name: "Remove" }).click();
  const ask = page.getByRole("dialog", { name: "Remove this device?" });
  await expect(ask).toContainText("old/phone+1");
  await accessible(page);
  await ask.getByRole("button", { name: "Back" }).click();
  await expect(devices).toHaveCount(3);
  await old.getByRole("button", { name: "Remove" }).click();
  await ask.getByRole("button", { name: "Remove" }).click();
  await expect(page.getByText("1 device.")).toBeVisible();
  await expect(devices.last()).toContainText("new-phone");
  const { items } = await service.call("GET", `/v1/admin/audit?target=${driver!.id}`);
  expect(items[0]).toMatchObject({ action: "device.delete", detail: { device_id: expect.stringMatching(/^dev_/), push_token: "changed" } });
});

test("a suspended driver can't accept, and a reinstated one can", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const d = await service.dispatch(region);
  const page = await openConsole(`#/drivers/${driver!.id}`);
  await page.getByRole("button", { name: "Suspend" }).click();
  const ask = page.getByRole("dialog", { name: "Suspend Driver 1?" });
  await ask.getByLabel("a time").check();
  await ask.getByLabel("Until when").fill("2020-01-01T09:00");
  await ask.getByLabel("Reason").fill("NO_SHOW");
  await ask.getByRole("button", { name: "Suspend" }).click();
  await expect(ask.getByLabel("Until when")).toHaveAccessibleDescription(/must be in the future/);
  await expect(ask.getByLabel("Reason")).toHaveValue("NO_SHOW");
  await accessible(page);
  await ask.getByLabel("Until when").fill("2099-12-24T09:00");
  await ask.getByRole("button", { name: "Suspend" }).click();
  await expect(page.getByText("suspended until 2099-12-24 09:00")).toBeVisible();
  await expect(ask).toBeHidden();
  await expect(service.accept(d.id, driver!.token)).rejects.toThrow(/403 .*NOT_ELIGIBLE.*SUSPENDED/);
  const { items } = await service.call("GET", `/v1/admin/audit?target=${driver!.id}`);
  expect(items[0]).toMatchObject({ action: "driver.suspend", detail: { reason_code: "NO_SHOW", until: "2099-12-24T00:00:00.000Z" } });

  await page.getByRole("button", { name: "Reinstate" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Back" }).click();
  await expect(page.getByText("suspended until")).toBeVisible();
  await page.getByRole("button", { name: "Reinstate" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reinstate" }).click();
  await expect(page.getByRole("button", { name: "Suspend" })).toBeVisible();
  expect((await service.accept(d.id, driver!.token)).result).toBe("SUCCESS");
});

test("an edit changes only the edited fields, and shows another user's change", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const path = `/v1/admin/drivers/${driver!.id}`;
  const page = await openConsole(`#/drivers/${driver!.id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  const edit = page.getByRole("dialog", { name: "Edit Driver 1" });
  await edit.getByLabel("Phone").fill("12");
  await edit.getByRole("button", { name: "Save" }).click();
  await expect(edit.getByLabel("Phone")).toHaveAccessibleDescription(/must be a phone number/);
  await expect(edit.getByLabel("Phone")).toBeFocused();
  await accessible(page);
  await edit.getByLabel("Phone").fill("+82 10-9999-8888");
  await edit.getByLabel("Regions").fill(`${region}, incheon`);
  await service.call("PATCH", path, { name: "Kim Min-jun" });
  await edit.getByRole("button", { name: "Save" }).click();
  await expect(edit.getByRole("alert")).toContainText('Somebody else changed this driver meanwhile: Name is now "Kim Min-jun"');
  expect((await service.call("GET", path)).phone).not.toBe("+821099998888");
  await edit.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("heading", { name: "Kim Min-jun" })).toBeVisible();
  expect(await service.call("GET", path)).toMatchObject({ name: "Kim Min-jun", phone: "+821099998888", regions: [region, "incheon"] });
});

test("a driver is exported and erased", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region, { name: "Kim Min-jun" });
  await service.call("PUT", "/v1/me/devices/phone", { platform: "android", push_token: `push-${region}` }, { token: driver!.token });
  const d = await service.dispatch(region);
  await service.accept(d.id, driver!.token);
  const page = await openConsole(`#/drivers/${driver!.id}`);

  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export all data" }).click()]);
  expect(download.suggestedFilename()).toBe(`${driver!.id}.json`);
  const exported = JSON.parse(await readFile(await download.path(), "utf8"));
  expect(exported).toMatchObject({ driver: { name: "Kim Min-jun" }, claims: [{ dispatch_id: d.id }], devices: [{ installation_id: "phone" }], complete: true });

  const ask = page.getByRole("dialog", { name: "Erase Kim Min-jun?" });
  await page.getByRole("button", { name: "Erase" }).click();
  await expect(ask).toContainText("It can't be undone");
  await accessible(page);
  await ask.getByRole("button", { name: "Erase for good" }).click();
  await expect(ask.getByRole("alert")).toContainText("The driver has a job that is not over.");
  await ask.getByRole("button", { name: "Back" }).click();
  await service.call("POST", `/v1/dispatches/${d.id}/start`, {}, { token: driver!.token });
  await service.call("POST", `/v1/dispatches/${d.id}/complete`, {}, { token: driver!.token });
  await page.getByRole("button", { name: "Erase" }).click();
  await ask.getByRole("button", { name: "Erase for good" }).click();
  await expect(page.getByRole("heading", { name: /^Erased / })).toBeVisible();
  await expect(page.getByRole("button", { name: "Erase" })).toBeHidden();
  await expect(page.getByText("Kim Min-jun")).toBeHidden();
  await expect(page.getByRole("link", { name: "Export all data" })).toBeVisible();
  await accessible(page);
  await expect(service.call("GET", "/v1/me", undefined, { token: driver!.token })).rejects.toThrow(/401/);
});

test("a driver's tokens are revoked, and the phone is signed out", { tag: "@slow" }, async ({ openConsole, openDriver, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const path = `/v1/admin/drivers/${driver!.id}/tokens`;
  const phone = await openDriver(driver!.token);
  await expect(phone.getByText("Driver 1")).toBeVisible();
  const page = await openConsole(`#/drivers/${driver!.id}`);
  const ask = page.getByRole("dialog", { name: "End all of Driver 1's tokens?" });
  await page.getByRole("button", { name: "End all tokens" }).click();
  await accessible(page);
  await ask.getByRole("button", { name: "Back" }).click();
  await expect(ask).toBeHidden();
  expect((await service.call("GET", "/v1/me", undefined, { token: driver!.token })).id).toBe(driver!.id);
  await page.getByRole("button", { name: "End all tokens" }).click();
  await ask.getByRole("button", { name: "End all tokens" }).click();
  await expect(ask).toBeHidden();
  await expect(service.call("GET", "/v1/me", undefined, { token: driver!.token })).rejects.toThrow(/401/);
  await phone.reload();
  await expect(phone.getByLabel("Driver token")).toBeVisible();
  const { token } = await service.call("POST", path);
  expect((await service.call("GET", "/v1/me", undefined, { token })).id).toBe(driver!.id);
  const { items } = await service.call("GET", `/v1/admin/audit?target=${driver!.id}`);
  expect(items.map((e: { action: string }) => e.action)).toContain("driver.tokens_revoke");
});

test("a token signs the driver's phone in", async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  const page = await openConsole(`#/drivers/${driver!.id}`);
  await page.getByRole("button", { name: "Issue a token" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Issue" }).click();
  const token = await page.getByLabel("Token", { exact: true }).inputValue();
  expect((await service.call("GET", "/v1/me", undefined, { token })).id).toBe(driver!.id);
  await expect(page.getByRole("link", { name: "Open this driver's phone" })).toHaveAttribute("href", `/driver/#token=${token}`);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Copy" }).click();
  await expect(page.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(token);
  await accessible(page);
  await page.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("dialog")).toHaveCount(0);
  expect(await page.content()).not.toContain(token);
});

test("a new driver is created once, in spite of a lost answer", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const page = await openConsole("#/drivers");
  await page.getByRole("link", { name: "New driver" }).click();
  await page.getByRole("button", { name: "Add driver" }).click();
  await expect(page.getByLabel("Name")).toHaveAccessibleDescription("is required");
  await expect(page.getByLabel("Name")).toBeFocused();
  await accessible(page);
  await page.getByLabel("Name").fill("Lee Seo-yeon");
  await page.getByLabel("Phone").fill("+821087654321");
  await page.getByLabel("Regions").fill(`${region}, incheon`);
  await page.getByLabel("Vehicle class").fill("28m");
  await page.getByLabel("Working height").fill("27.5");
  await loseAnswers(page, "**/v1/admin/drivers", { method: "POST" });
  await page.getByRole("button", { name: "Add driver" }).click();
  await expect(page.getByText("Nobody knows yet whether the last driver was made")).toBeVisible();
  await page.unroute("**/v1/admin/drivers");
  await page.getByRole("button", { name: "Add driver" }).click();
  await expect(page.getByRole("heading", { name: "Lee Seo-yeon" })).toBeVisible();
  const { items } = await service.call("GET", `/v1/admin/drivers?region=${region}`);
  expect(items).toMatchObject([{ regions: [region, "incheon"], vehicle_class: "28m", working_height_m: 27.5, on_duty: false }]);
});

test("a viewer and a dispatcher change no drivers, and the API enforces that", async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region);
  for (const role of ["viewer", "dispatcher"] as const) {
    const key = await service.key(role);
    const page = await openConsole(`#/drivers/${driver!.id}`, key);
    await expect(page.getByText("No devices.")).toBeVisible();
    for (const name of ["Edit", "Suspend", "Reinstate", "Issue a token"]) await expect(page.getByRole("button", { name })).toHaveCount(0);
    await expect(page.getByRole("heading", { name: "Signals" })).toHaveCount(0);
    await page.getByRole("link", { name: "All drivers" }).click();
    await expect(drivers(page).first()).toBeVisible();
    await expect(page.getByRole("link", { name: "New driver" })).toHaveCount(0);
    for (const name of ["API keys", "Audit"]) await expect(page.getByRole("link", { name })).toHaveCount(0);
    await expect(page.getByRole("link", { name: "New dispatch" })).toHaveCount(role === "viewer" ? 0 : 1);
    const status = await page.evaluate((id) => fetch(`/v1/admin/drivers/${id}/suspend`, { method: "POST" }).then((r) => r.status), driver!.id);
    expect(status).toBe(403);
  }
});

test("a list shows that it may be old", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  await service.drivers(2, "seoul");
  const page = await openConsole("#/drivers", undefined, service);
  await ownClock(page);
  await expect(page.getByText("2 drivers.")).toBeVisible();
  await service.stop("SIGKILL");
  await expect(page.getByText("What you see may be old.")).toBeVisible();
  await page.clock.fastForward(15_000);
  await expect(page.getByRole("alert")).toHaveText("The service can't be reached."); // a read failed
  await expect(drivers(page)).toHaveCount(3);
  await service.start();
  await service.drivers(1, "busan");
  await page.clock.fastForward(15_000);
  await expect(page.getByText("3 drivers.", { exact: true })).toBeVisible();
});
