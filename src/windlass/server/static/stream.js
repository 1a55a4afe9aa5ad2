// The stream of passes: it continues after the last message, and reports when the connection is lost.

import { effect } from "./vendor/signals-core.js";
import { address, get, Problem } from "./api.js";
import { at, clockIs, connection, laidOver, load, me, status, toLogin } from "./store.js";

/** A lost connection is not shown for this many milliseconds. */
const QUIET = 2000;
/** After this many milliseconds without a connection the page is marked as stale. */
const STALE = 30000;
const LONGEST_PAUSE = 3000;

/** @type {EventSource | null} */
let source = null;
let failures = 0;
let brokenAt = 0;
let retry = 0;

/** @param {MessageEvent} event */
const dataOf = (event) => JSON.parse(event.data);

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function open() {
  close();
  const mine = new EventSource(address("/stream", { topics: "status,events", after: status.value?.seq ?? 0 }));
  source = mine;
  mine.addEventListener("hello", (event) => {
    failures = 0;
    brokenAt = 0;
    connection.value = { state: "live", since: Date.now() / 1000 };
    clockIs(dataOf(event).at);
  });
  mine.addEventListener("pass", (event) => laidOver(dataOf(event)));
  mine.addEventListener("resync", async () => {
    close();
    if (await load()) open();
    else broken();
  });
  mine.onerror = () => { if (source === mine) broken(); };
}

function broken() {
  close();
  brokenAt ||= Date.now();
  failures += 1;
  setTimeout(tell, QUIET + 20);
  retry = setTimeout(again, Math.min(LONGEST_PAUSE, 250 * 2 ** Math.min(failures, 6)));
}

function tell() {
  if (!brokenAt) return;
  const lasted = Date.now() - brokenAt;
  if (lasted < QUIET) return;
  connection.value = { state: lasted > STALE ? "stale" : "reconnecting", since: brokenAt / 1000 };
}

async function again() {
  if (at.value !== null || !me.value) return;
  tell();
  try {
    await get("/whoami");
    if (status.value || await load()) open();
    else broken();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) toLogin();
    else broken();
  }
}

/**
 * Follows the address: live pages have a stream, pages of the past have none.
 * @param {Promise<boolean> | null} begun the load of the first address, which has started already
 */
export function follow(begun) {
  let first = true;
  effect(() => {
    const past = at.value, who = me.value;
    close();
    brokenAt = 0;
    if (!who) return;
    const keep = first;
    first = false;
    void (async () => {
      if (!keep) status.value = null;
      await (keep && begun ? begun : load());
      if (past === null && at.value === null) {
        if (status.value) open();
        else broken();
      }
    })();
  });
}
