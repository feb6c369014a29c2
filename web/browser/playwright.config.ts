import { defineConfig } from "@playwright/test";
import { existsSync } from "node:fs";

const { FIRSTTAP_CHROMIUM, FIRSTTAP_SCREENSHOTS, FIRSTTAP_TEST, FIRSTTAP_TRACE } = process.env;

// FIRSTTAP_CHROMIUM names the browser. The default is Debian's, and its headless shell, which takes half the processor time.
const debians = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];

export default defineConfig({
  testDir: "tests",
  outputDir: process.env.FIRSTTAP_BROWSER_OUT ?? "results",
  fullyParallel: true,
  workers: 4, // on two processors, as about half of them wait for a page
  retries: 0,
  forbidOnly: true,
  grepInvert: FIRSTTAP_TEST === "all" || FIRSTTAP_SCREENSHOTS ? undefined : /@slow/,
  // These end a test that hangs. Both are far longer than a test takes on a machine that has other work.
  timeout: 900_000,
  expect: { timeout: 120_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    headless: true,
    locale: "en-GB",
    timezoneId: "Asia/Seoul",
    trace: FIRSTTAP_TRACE ? "retain-on-failure" : "off",
    launchOptions: {
      executablePath: FIRSTTAP_CHROMIUM ?? debians.find((path) => existsSync(path)),
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    },
  },
});
