import { accessible, confirmLink, expect, hold, idle, test } from "../fixtures.ts";

test("a key opens the console, and no script can read it", async ({ open, service }) => {
  const page = await open("/console/");
  await page.getByLabel("API key").fill("not a key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("No such key");
  await page.getByLabel("API key").fill(service.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Sign out" })).toBeVisible();
  expect(await page.evaluate(() => document.cookie)).toBe("");
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  expect(decodeURIComponent(cookie!.value)).not.toContain(service.adminKey);
});

test("an unreachable service signs no user in or out, and the page shows that", { tag: "@slow" }, async ({ open, own: service }) => {
  const page = await open("/console/", service);
  await expect(page.getByLabel("API key")).toBeVisible(); // the texts are loaded after the modules
  await service.stop("SIGKILL");
  await page.getByLabel("API key").fill(service.adminKey);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toHaveText("The service can't be reached.");
  await service.start();
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByLabel("Search").fill("gate"); // with an empty address, the board is at its beginning
  await expect(page).toHaveURL(`${service.url}/console/#/?q=gate`);
  await page.reload();
  await expect(page.getByLabel("Search")).toHaveValue("gate");
  await service.stop("SIGKILL");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByRole("alert").filter({ hasText: "may still be signed in" })).toBeVisible();
  await service.start();
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("API key")).toBeVisible();
});

test("a sign-out in one tab signs every tab out, and deletes the input", { tag: "@slow" }, async ({ openConsole, service }) => {
  const page = await openConsole("#/new");
  await page.getByLabel("Address").fill("12 Secret-ro");
  const other = await page.context().newPage();
  await other.goto(page.url());
  await expect(other.getByRole("heading", { name: "New dispatch" })).toBeVisible();
  await idle(other); // a request that comes after the sign-out is refused, and the tab would say that its session is over
  await other.getByLabel("Address").fill("34 Secret-ro");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("API key")).toBeVisible();
  await expect(other.getByRole("alert")).toContainText("signed out in another tab");
  for (const tab of [page, other]) { // the next user of the same key
    expect(await tab.evaluate(() => sessionStorage.length)).toBe(0);
    await tab.getByLabel("API key").fill(service.adminKey);
    await tab.getByRole("button", { name: "Sign in" }).click();
    await expect(tab.getByLabel("Address")).toHaveValue("");
  }
});

test("the next request notices that the session is over", async ({ openConsole }) => {
  const page = await openConsole("#/drivers");
  await expect(page.getByRole("heading", { name: "Drivers" })).toBeVisible();
  await page.context().clearCookies();
  await page.evaluate(() => { location.hash = "#/jobs"; });
  await expect(page.getByRole("alert")).toContainText("Your session is over");
  await expect(page.getByLabel("API key")).toBeVisible();
});

test("an unknown address shows an error, and the focus follows the page", async ({ openConsole, service }) => {
  const page = await openConsole("#/drivers/%E0%A4%A");
  await expect(page.getByRole("navigation", { name: "Pages" })).toBeVisible();
  await expect(page.getByText(/no such driver|not a driver/i).first()).toBeVisible();
  await page.evaluate(() => { location.hash = "#/nowhere"; });
  await expect(page.getByRole("alert").filter({ hasText: "There is no such page" })).toBeVisible();
  const viewer = await openConsole("#/keys", await service.key("viewer"));
  await expect(viewer.getByRole("alert").filter({ hasText: "your key may not see it" })).toBeVisible();
  await viewer.getByRole("link", { name: "Supply" }).click();
  await expect(viewer.locator("#main")).toBeFocused();
});

test("a link that is opened while an earlier one is checked is asked about", async ({ openConsole, service }) => {
  const viewer = await service.key("viewer");
  const page = await openConsole("#/drivers");
  const release = await hold(page, "**/v1/session", { times: 1 });
  const checked = page.waitForRequest("**/v1/session"); // the page reads the address later than goto returns: a second link would replace the first
  await page.goto(`${service.url}/console/#key=${service.adminKey}`);
  await checked;
  await page.goto(`${service.url}/console/#key=${viewer}`);
  const signedIn = page.waitForResponse((r) => r.url().endsWith("/v1/session") && r.request().method() === "POST");
  release();
  await signedIn;
  await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve); }));
  await expect(page.getByRole("dialog", { name: "Sign in with another key?" })).toContainText("(viewer)");
});

test("a link that is opened while the page appears signs in", { tag: "@slow" }, async ({ open, service }) => {
  const page = await open("/console/");
  await page.addInitScript((key) => {
    new MutationObserver((_, watch) => {
      if (!document.querySelector("#app *")) return;
      watch.disconnect();
      location.hash = `key=${key}`;
    }).observe(document, { childList: true, subtree: true });
  }, service.adminKey);
  await page.reload();
  await confirmLink(page);
  await expect(page.getByText("FIRSTTAP_ADMIN_KEY (admin)")).toBeVisible();
});

test("a link signs nobody in without confirmation, and says whose key it has", async ({ open, service }) => {
  const viewer = await service.key("viewer");
  const page = await open(`/console/#key=${viewer}`);
  const ask = page.getByRole("dialog", { name: "Sign in with this link?" });
  await expect(ask).toContainText("signs in as A viewer (viewer)");
  expect(page.url()).not.toContain(viewer);
  await accessible(page);
  await ask.getByRole("button", { name: "Back" }).click();
  await expect(page.getByLabel("API key")).toBeVisible();
  expect(await page.context().cookies()).toEqual([]);
  await page.goto(`${service.url}/console/#key=${viewer}`);
  await confirmLink(page);
  await expect(page.getByText("A viewer (viewer)")).toBeVisible();
});

test("a foreign link replaces no session without confirmation", { tag: "@slow" }, async ({ openConsole, service }) => {
  const viewer = await service.key("viewer");
  const page = await openConsole("#/drivers");
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  const link = `${service.url}/console/#key=${viewer}`;
  const ask = page.getByRole("dialog", { name: "Sign in with another key?" });
  const mine = page.getByText("FIRSTTAP_ADMIN_KEY (admin)");
  for (const from of ["", "about:blank"]) { // in the open page, and in a new one
    if (from) await page.goto(from);
    await page.goto(link);
    await expect(ask).toContainText("signed in as FIRSTTAP_ADMIN_KEY (admin)");
    await expect(ask).toContainText("(viewer)");
    expect(page.url()).not.toContain(viewer);
    await accessible(page);
    await ask.getByRole("button", { name: "Back" }).click();
    await expect(ask).toBeHidden();
    await expect(mine).toBeVisible();
    await page.reload();
    await expect(mine).toBeVisible();
  }
  await page.goto(`${service.url}/console/#key=${service.adminKey}`); // the session's own link, once more
  await expect(page).toHaveURL(`${service.url}/console/#/board`);
  await expect(page.getByRole("heading", { name: "Board" })).toBeVisible();
  await expect(page.getByRole("dialog")).toHaveCount(0);

  await page.goto(`${service.url}/console/#key=not-a-key`);
  await expect(ask).toContainText("a key that is not good now");
  await ask.getByRole("button", { name: "Sign in with the link" }).click();
  await expect(ask.getByRole("alert")).not.toBeEmpty();
  await ask.getByRole("button", { name: "Back" }).click();
  await expect(mine).toBeVisible();

  await page.goto(link);
  await ask.getByRole("button", { name: "Sign in with the link" }).click();
  await expect(ask).toBeHidden();
  await expect(page.getByText("(viewer)")).toBeVisible();
  await expect(tab.getByRole("alert")).toContainText("Another key signed in in another tab");
});
