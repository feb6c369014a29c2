import base from "../playwright.config.ts";

// Nothing else runs beside it, and nothing is recorded: that would be measured too.
export default { ...base, testDir: ".", testMatch: "*.bench.ts", outputDir: "../results", workers: 1, timeout: 300_000, use: { ...base.use, trace: "off" as const } };
