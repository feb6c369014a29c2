import { execFileSync } from "node:child_process";
import type { Service } from "./service.ts";

/** Writes past points as the supply job writes them: [minutes ago, region, on duty, open]. It restarts the service. */
export async function past(service: Service, points: [number, string, number, number][]): Promise<void> {
  await service.stop();
  const minute = Math.floor(Date.now() / 60_000) * 60_000_000;
  const rows = points.map(([ago, ...rest]) => [minute - ago * 60_000_000, ...rest]);
  execFileSync("python3", ["-c", `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executemany("INSERT OR REPLACE INTO supply (at, region, on_duty, open) VALUES (?, ?, ?, ?)", json.load(sys.stdin))
db.commit()`, service.database], { input: JSON.stringify(rows) });
  await service.start();
}
