import base from "../playwright.config.ts";

// Nothing else runs at the same time and nothing is recorded, because that would be measured too.
export default { ...base, testDir: ".", testMatch: "*.bench.ts", outputDir: "../results", workers: 1, timeout: 300_000, use: { ...base.use, trace: "off" as const } };
