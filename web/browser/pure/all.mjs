// Runs all tests in one process, as loading Playwright's expect takes longer than most of them.
import { readdirSync } from "node:fs";

const here = new URL(".", import.meta.url);
for (const name of readdirSync(here).filter((name) => name.endsWith(".test.mjs"))) await import(new URL(name, here).href);
