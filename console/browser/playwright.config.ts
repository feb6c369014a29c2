import { defineConfig } from "@playwright/test";

// FIRSTTAP_CHROMIUM names the browser. The default is Debian's.
export default defineConfig({
  testDir: "tests",
  outputDir: process.env.FIRSTTAP_BROWSER_OUT ?? "results",
  fullyParallel: true,
  workers: 2,
  retries: 0,
  forbidOnly: true,
  timeout: 60_000,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    headless: true,
    locale: "en-GB",
    timezoneId: "Asia/Seoul",
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env.FIRSTTAP_CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    },
  },
});
