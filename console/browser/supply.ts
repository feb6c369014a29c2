import type { Service } from "./service.ts";

/** Writes past points as the supply job writes them: [minutes ago, region, on duty, open]. */
export function past(service: Service, points: [number, string, number, number][]): void {
  const minute = Math.floor(Date.now() / 60_000) * 60_000_000;
  service.sql("INSERT OR REPLACE INTO supply (at, region, on_duty, open) VALUES (?, ?, ?, ?)",
    ...points.map(([ago, ...rest]) => [minute - ago * 60_000_000, ...rest]));
}
