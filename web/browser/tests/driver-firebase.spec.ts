import { expect, test as base } from "../fixtures.ts";
import { Firebase, noFirebase } from "../firebase.ts";
import { card, tap } from "../driver.ts";

const test = base.extend<{ firebase: Firebase }>({
  firebase: async ({}, use) => {
    const firebase = await new Firebase().start();
    await use(firebase);
    await firebase.close("SIGTERM");
  },
  settings: async ({ firebase }, use) => use(firebase.settings),
});
test.skip(noFirebase !== "", noFirebase);
test.slow(); // the emulator starts slowly

test("a driver signs in with Firebase, stays signed in when the token ends, and not when the account does", { tag: "@slow" }, async ({ open, own, firebase }) => {
  const uid = await firebase.user("kim@example.com", "a-password");
  await firebase.user("nobody@example.com", "a-password");
  await own.drivers(1, "seoul", { firebase_uid: uid });
  await own.dispatch("seoul", { site_address: "1 Fire Street" });
  const page = await open("/driver/", own);
  const signIn = async (email: string, password: string) => {
    await page.getByLabel("E-mail").fill(email);
    await page.getByLabel("Password").fill(password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
  };
  await signIn("kim@example.com", "wrong");
  await expect(page.getByRole("alert")).toHaveText("The e-mail address or the password is wrong.");
  await signIn("nobody@example.com", "a-password");
  await expect(page.getByRole("alert")).toContainText("no driver belongs to this account");
  await signIn("kim@example.com", "a-password");
  await expect(page.getByText("Driver 1")).toBeVisible();

  // The token is renewed before its end,
  const refreshes: string[] = [];
  page.on("request", (r) => { if (r.url().includes("/securetoken.googleapis.com/v1/token")) refreshes.push(r.url()); });
  const reopen = async (change: string) => {
    await page.goto(`${own.url}/livez`); // the page itself would overwrite this with its own session
    await page.evaluate((c) => {
      const kept = JSON.parse(sessionStorage.getItem("firsttap.driver")!);
      if (c === "ends soon") kept.firebase.ends = Date.now() + 30_000;
      else kept.token = "no.longer.good";
      sessionStorage.setItem("firsttap.driver", JSON.stringify(kept));
    }, change);
    await page.goto(`${own.url}/driver/`);
  };
  await reopen("ends soon");
  await expect(page.getByText("Live")).toBeVisible();
  await expect.poll(() => refreshes.length).toBe(1);
  // and after the service refuses it, once for all concurrent requests.
  await reopen("is refused");
  await expect(page.getByText("Live")).toBeVisible();
  await tap(page);
  await expect(card(page, "1 Fire Street")).toContainText("Yours");
  expect(refreshes).toHaveLength(2);

  await firebase.remove(uid);
  await reopen("is refused");
  await expect(page.getByRole("alert")).toHaveText("Your sign-in has ended, or was revoked. Sign in again.");
});
