// The state of the page as signals: the address, the status with patches applied, events, and the user.

import { batch, computed, signal } from "./vendor/signals-core.js";
import { Problem, call, get } from "./api.js";

/** @typedef {import("./types.js").Status} Status */
/** @typedef {import("./types.js").WindlassEvent} WindlassEvent */

// -- the address ------------------------------------------------------------------------------------------------

const here = () => ({ path: location.pathname.replace(/(.)\/$/, "$1"), params: new URLSearchParams(location.search) });
export const view = signal(here());
addEventListener("popstate", () => { view.value = here(); });

/** @typedef {Record<string, string | string[] | null | undefined>} Changes */

/** @param {string} path @param {Changes} [changes] */
export function addressOf(path, changes = {}) {
  const kept = new URLSearchParams();
  const at = view.value.params.get("at");
  if (path === view.value.path) for (const [name, value] of view.value.params) kept.append(name, value);
  else if (at) kept.set("at", at);
  for (const [name, value] of Object.entries(changes)) {
    kept.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") kept.append(name, one);
  }
  const query = kept.toString().replaceAll("+", "%20");
  return query ? `${path}?${query}` : path;
}

/** @param {string} address @param {boolean} [silently] replace the address instead of adding to the history */
export function go(address, silently = false) {
  if (silently) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  view.value = here();
}

/** @param {Changes} changes @param {boolean} [silently] */
export const change = (changes, silently = false) => go(addressOf(view.value.path, changes), silently);

/** The time that the page shows; null: now. */
export const at = computed(() => {
  const asked = Number(view.value.params.get("at"));
  return Number.isFinite(asked) && asked > 0 ? asked : null;
});

// -- time -------------------------------------------------------------------------------------------------------

/** The server's clock minus ours, so that a countdown is right even if our clock is wrong. */
let offset = 0;
export const now = signal(Date.now() / 1000);
setInterval(() => { now.value = Date.now() / 1000 + offset; }, 1000);
/** @param {number} server */
export function clockIs(server) {
  offset = server - Date.now() / 1000;
  // Everything that counts seconds is drawn again when this changes, so a message alone does not change it.
  if (Math.abs(server - now.value) >= 1) now.value = server;
}
/** The end of what is known: the time of the page, or when a controller was last seen; null if one runs, so that it is now. */
export const knownUntil = computed(() => at.value ?? (status.value && !status.value.leader.alive ? status.value.as_of : null));
export const instant = computed(() => knownUntil.value ?? now.value);

// -- the user ---------------------------------------------------------------------------------------------------------

export const me = signal(/** @type {{name: string, role: string} | null} */ (null));
export const isOperator = computed(() => me.value?.role === "operator");

// -- status and events -------------------------------------------------------------------------------------------------

export const status = signal(/** @type {Status | null} */ (null));
export const events = signal(/** @type {WindlassEvent[]} */ ([]));
export const problem = signal(/** @type {string | null} */ (null));
export const connection = signal(/** @type {{state: "live" | "reconnecting" | "stale", since: number}} */ ({ state: "live", since: 0 }));
export const liveState = computed(() => {
  if (at.value !== null) return "past";
  if (connection.value.state !== "live") return connection.value.state;
  return status.value && !status.value.leader.alive ? "stale" : "live";
});
export const seq = computed(() => status.value?.seq ?? 0);

const STATES = ["queued", "requesting", "booting", "initializing", "ready", "cordoned", "draining", "terminating"];
/** @param {any} one */
const rank = (one) => { const place = STATES.indexOf(one.state); return place < 0 ? STATES.length : place; };
/** @type {Record<string, (a: any, b: any) => number>} */
const ORDERS = {
  groups: (a, b) => compare(a.name, b.name),
  slices: (a, b) => compare(a.group, b.group) || rank(a) - rank(b) || a.since - b.since || compare(a.id, b.id),
  demands: (a, b) => b.tasks - a.tasks || compare(a.id, b.id),
};
/** @param {string} a @param {string} b */
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
/** @param {any} row @returns {string} */
const nameOf = (row) => row.name ?? row.id;

/**
 * The status with a patch applied.
 * @param {Status} before @param {{set?: Record<string, any>, gone?: Record<string, string[]>}} patch
 * @returns {Status}
 */
export function patched(before, patch) {
  const after = /** @type {any} */ ({ ...before, ...patch.set });
  for (const table of ["groups", "slices", "demands"]) {
    const changed = patch.set?.[table], gone = patch.gone?.[table] ?? [], rows = /** @type {any} */ (before)[table];
    after[table] = !changed && !gone.length ? rows : merged(rows, new Map(Object.entries(changed ?? {})), new Set(gone), ORDERS[table]);
  }
  return after;
}

/**
 * Rows in order after changes. Rows that keep their position stay; only the others are sorted and merged in.
 * @param {any[]} rows @param {Map<string, any>} changed @param {Set<string>} gone @param {(a: any, b: any) => number} order
 */
function merged(rows, changed, gone, order) {
  /** @type {any[]} */
  const kept = [];
  /** @type {any[]} */
  const moved = [];
  for (const row of rows) {
    const name = nameOf(row), next = changed.get(name);
    if (next === undefined) { if (!gone.has(name)) kept.push(row); continue; }
    changed.delete(name);
    (order(row, next) === 0 ? kept : moved).push(next);
  }
  moved.push(...changed.values());
  if (!moved.length) return kept;
  moved.sort(order);
  /** @type {any[]} */
  const found = [];
  let place = 0;
  for (const row of kept) {
    while (place < moved.length && order(moved[place], row) < 0) { found.push(moved[place]); place += 1; }
    found.push(row);
  }
  return found.concat(moved.slice(place));
}

export const KEPT = 300;
/** @param {{seq: number, at: number, status?: any, events?: WindlassEvent[]}} message */
export function laidOver(message) {
  const before = status.value;
  // A message with the same number is about changes by time alone, such as an expired lease.
  if (!before || message.seq < before.seq) return;
  batch(() => {
    clockIs(message.at);
    status.value = { ...patched(before, message.status ?? {}), seq: message.seq, at: message.at };
    if (message.events?.length) events.value = [...events.value, ...message.events].slice(-KEPT);
  });
}

/** The number of the newest load; answers of older ones are dropped. */
let loading = 0;

/** Loads the whole status, of now or of the time in the address; returns whether it succeeded. */
export async function load() {
  const mine = ++loading, instant = at.value;
  try {
    const [document, listed] = await Promise.all([
      get("/status", { at: instant }),
      get("/events", { limit: 60, ...(instant === null ? {} : { until: instant }) }),
    ]);
    if (mine !== loading) return true;
    batch(() => {
      if (instant === null) clockIs(document.at);
      status.value = document;
      events.value = listed.events;
      problem.value = null;
    });
    return true;
  } catch (error) {
    if (mine !== loading) return true;
    if (error instanceof Problem && error.status === 401) { toLogin(); return true; }
    problem.value = error instanceof Error ? error.message : String(error);
    return false;
  }
}

export function toLogin() {
  if (location.pathname === "/login") return;
  me.value = null;
  go(`/login?to=${encodeURIComponent(location.pathname + location.search)}`, true);
}

// -- toasts and orders -------------------------------------------------------------------------------------------

export const toasts = signal(/** @type {{id: number, text: string}[]} */ ([]));
let lastToast = 0;
/** @param {string} text */
export function toast(text) {
  const id = ++lastToast;
  toasts.value = [...toasts.value, { id, text }];
  setTimeout(() => { toasts.value = toasts.value.filter((one) => one.id !== id); }, 5000);
}

/** The question before an order; null if there is none. */
export const asked = signal(/** @type {{what: string, subject: string, text: string} | null} */ (null));
export const outcome = signal(/** @type {{what: string, subject: string, heard: boolean | null, text: string} | null} */ (null));

/** @param {string} what @param {string} subject */
export async function order(what, subject) {
  try {
    const given = await call("POST", "/orders", { body: { what, subject }, headers: { "Idempotency-Key": crypto.randomUUID() } });
    outcome.value = { what, subject, heard: given.heard, text: given.outcome };
    for (let tries = 0; tries < 20 && !outcome.value.heard; tries += 1) {
      await new Promise((done) => { setTimeout(done, 250); });
      const became = await get(`/orders/${given.seq}`);
      outcome.value = { what, subject, heard: became.heard, text: became.outcome };
    }
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    outcome.value = { what, subject, heard: false, text };
    toast(text);
  }
}
