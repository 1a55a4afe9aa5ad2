// Types of the documents that the pages read; the API's own schemas are in /api/v1/openapi.json.

/** @typedef {{code: string, why: string}} ReasonOf */
/** @typedef {{change: string, set: {path: string[], value: any}[], hourly_cost: number, buys: Record<string, number>, for: Record<string, number>}} Unblock */
/** @typedef {{tasks: number, code: string | null, why: string, slices: string[], starts_in: number | null}} Part */
/**
 * @typedef {{id: string, tasks: number, since: number | null, parts: Part[], needs: {count: number, needs: Record<string, string | number>}[],
 *   gang: string | null, groups: Record<string, ReasonOf>, unblocks: Unblock[]}} DemandRow
 */
/**
 * @typedef {{name: string, ready: number, coming: number, leaving: number, busy: number, max: number | null, min: number | null, spare: number | null,
 *   hosts: number, resources: Record<string, string | number>, labels: Record<string, string>, price: number | null, preemptible: boolean, hourly_cost: number,
 *   availability: {state: string, until: number | null, why: string}, frozen_by: string | null, boot_seconds: number | null,
 *   next: {code: string | null, why: string} | null}} GroupRow
 */
/**
 * @typedef {{id: string, group: string, provider: string, state: string, since: number, tasks: number, code: string | null, why: string, ready_in: number | null,
 *   hourly_cost: number, until: number | null, then: string | null, use: number, cost: number, zone: string | null, hosts: number}} SliceRow
 */
/**
 * @typedef {{seq: number, at: number, as_of: number, version: string, headline: string,
 *   leader: {holder: string | null, epoch: number, alive: boolean, seen_at: number | null},
 *   summary: {waiting_tasks: number, waiting_demands: number, impossible_demands: number, oldest_wait_since: number | null, slices: number, busy: number, idle: number,
 *     coming: number, leaving: number, ceiling: number | null, unknown_sources: string[]},
 *   troubles: Record<string, string>, frozen: Record<string, string>, groups: GroupRow[], slices: SliceRow[], demands: DemandRow[],
 *   hourly_cost: {now: number, planned: number}, bill: {total: number, work: number, booting: number, idle: number, spare: number, draining: number, ending: number},
 *   spent_since: number | null}} Status
 */
/** @typedef {{at: number, kind: string, code: string | null, text: string, subjects: string[], alarm: boolean, seq: number, epoch: number}} WindlassEvent */

export {};
