// Formats numbers, times and reason codes for people.

/** Reason codes by kind; a kind has one colour everywhere. */
const KINDS = {
  coming: ["LAUNCHING", "BOOTING", "GANG_FORMING"],
  limit: ["AT_MAX", "MAX_NODES", "BUDGET", "FROZEN", "RATE_LIMITED", "APART", "SPREAD", "TOGETHER", "NOT_TAKEN"],
  market: ["STOCKOUT", "QUOTA", "BACKOFF"],
  never: ["NO_SHAPE_FITS", "NO_LABEL_MATCH", "NOT_TOLERATED", "GANG_SHAPE", "TOO_SMALL", "INVALID_DEMAND", "WORSE_SCORE", "DEARER", "LOWER_RANK"],
  unknown: ["UNKNOWN_INPUT"],
  alarm: ["LOST", "PREEMPTED", "UNHEALTHY", "LEAKED"],
};
/** @type {Map<string, string>} */
const KIND_OF = new Map(Object.entries(KINDS).flatMap(([kind, codes]) => codes.map((code) => /** @type {[string, string]} */ ([code, kind]))));

/** @param {string | null | undefined} code */
export const kindOf = (code) => KIND_OF.get(code ?? "") ?? "plain";

const STATE_COLOURS = /** @type {Record<string, string>} */ ({
  queued: "--s-queued", requesting: "--s-requesting", booting: "--s-booting", initializing: "--s-initializing",
  ready: "--s-idle", cordoned: "--s-cordoned", draining: "--s-draining", terminating: "--s-ending",
  terminated: "--s-ending", cancelled: "--s-ending", lost: "--s-failed", terminate_failed: "--s-failed",
  launch_failed: "--s-failed", launch_timeout: "--s-failed", init_failed: "--s-failed",
});
/** @param {string} state */
export const colourOf = (state) => `var(${STATE_COLOURS[state] ?? "--s-ending"})`;

export const FAILED = new Set(["lost", "terminate_failed", "launch_failed", "launch_timeout", "init_failed"]);
export const IN_FLIGHT = new Set(["queued", "requesting", "booting", "initializing"]);
/** States in which the machine is gone, or was never there. */
export const OVER = new Set(["terminated", "launch_failed", "cancelled"]);

/** @param {number} at seconds since 1970 */
export function clock(at) {
  const there = new Date(at * 1000), time = there.toTimeString().slice(0, 8);
  return there.toDateString() === new Date().toDateString() ? time : `${day(there)} ${time}`;
}
/** @param {number} at */
export const timeOfDay = (at) => new Date(at * 1000).toTimeString().slice(0, 8);
/** @param {number} at */
export const minuteOfDay = (at) => new Date(at * 1000).toTimeString().slice(0, 5);
/** @param {Date} date */
const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
/** @param {number} number */
const two = (number) => String(number).padStart(2, "0");

/** @param {number} seconds */
export function span(seconds) {
  const whole = seconds > 0 ? Math.max(1, Math.round(seconds)) : 0;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${(whole / 86400).toFixed(1)} days`;
}

/** The duration of a setting: "5 min", not "5 min 00 s". @param {number} seconds */
export const lasting = (seconds) => span(seconds).replace(/ 00 (s|min)$/, "");

// Formats are made once: making one takes longer than applying a whole patch.
const CENTS = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }), WHOLE = new Intl.NumberFormat("en-US");

/** @param {number} amount */
export function usd(amount) {
  if (amount === 0) return "$0.00";
  return Math.abs(amount) < 0.01 ? `$${amount.toFixed(4)}` : `$${CENTS.format(amount)}`;
}

/** A count with separators: "5,000". @param {number} count */
export const whole = (count) => WHOLE.format(count);

/** @param {number} count @param {string} one */
export const plural = (count, one) => `${whole(count)} ${one}${count === 1 ? "" : "s"}`;

/** @param {number} share 0 to 1 */
export const percent = (share) => (share > 0 && share < 0.005 ? "under 1 %" : `${Math.round(share * 100)} %`);

/** "12 cpu, 1 gpu, 85Gi"  @param {Record<string, string | number> | null | undefined} needs */
export const needsText = (needs) =>
  Object.entries(needs ?? {}).map(([name, amount]) => (name === "memory" ? String(amount) : `${amount} ${name}`)).join(", ");

/** A reason without the time waited, which the page counts itself. @param {string} why */
export const withoutWait = (why) => why.replace(/^waits(?: [^:]*)?: /, "");

/** A reason without the name of its group, for places that show the name already. @param {string} why @param {string} group */
export const withoutName = (why, group) => [`${group}: `, `${group} is `].reduce((text, start) => (text.startsWith(start) ? text.slice(start.length) : text), why);

/** @param {string} change */
export const arrows = (change) => change.replaceAll("->", "→");

/** From this length on the group in the name of a machine may have been cut: names have at most 63 letters. */
const LONG_NAME = 60;

/** A group's name as it stands in the names of its machines. @param {string} group */
const inNames = (group) => group.replace(/[^A-Za-z0-9._-]+/g, "-");

/**
 * The group of a machine or group by its name: machines are named GROUP-STAMP-NUMBER.
 * @param {string} name @param {string[]} groups
 */
export function groupOf(name, groups) {
  if (groups.includes(name)) return name;
  const start = name.replace(/-[0-9a-z]+-\d+$/, "");
  return groups.find((one) => inNames(one) === start) ?? (name.length >= LONG_NAME ? groups.find((one) => inNames(one).startsWith(start)) : undefined);
}
