import { expect } from "@playwright/test";
import type { Service } from "./service.ts";

/** Writes past points as the supply job writes them: [minutes ago, region, on duty, open]. */
export function past(service: Service, points: [number, string, number, number][]): void {
  const minute = Math.floor(Date.now() / 60_000) * 60_000_000;
  service.sql("INSERT OR REPLACE INTO supply (at, region, on_duty, open) VALUES (?, ?, ?, ?)",
    ...points.map(([ago, ...rest]) => [minute - ago * 60_000_000, ...rest]));
}

/**
 * Runs the supply job, and gives its lock to another holder for half an hour. The run may still be under way: its release, which
 * shortens a lock of its own, does not touch another's.
 */
export async function holdSupply(service: Service): Promise<void> {
  await service.call("POST", "/v1/admin/jobs/supply/run");
  await expect.poll(async () => (await service.call("GET", "/v1/admin/locks")).items.map((l: { name: string }) => l.name)).toContain("supply");
  service.sql("UPDATE shedlock SET lock_until = ?, locked_by = 'another' WHERE name LIKE '%supply'", [new Date(Date.now() + 1800_000).toISOString()]);
}
