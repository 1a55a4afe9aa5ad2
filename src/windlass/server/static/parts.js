// Components that several pages share.

import { Fragment, h } from "./vendor/preact.js";
import { useState } from "./vendor/preact-hooks.js";
import { arrows, colourOf, FAILED, kindOf, needsText, plural, span, timeOfDay, clock, usd, whole, withoutName, withoutWait } from "./format.js";
import { addressOf, asked, change, go, instant, isOperator, status, toast, view } from "./store.js";

/** @typedef {import("./types.js").GroupRow} GroupRow */
/** @typedef {import("./types.js").SliceRow} SliceRow */
/** @typedef {import("./types.js").DemandRow} DemandRow */
/** @typedef {import("./types.js").WindlassEvent} WindlassEvent */

/** @param {MouseEvent} event */
const isPlain = (event) => event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

/** A link inside the dashboard. @param {{to: string, children?: any, [name: string]: any}} props */
export function Link({ to, children, ...more }) {
  const onClick = (/** @type {MouseEvent} */ event) => {
    if (!isPlain(event)) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  };
  return h("a", { href: to, onClick, ...more }, children);
}

/** A name that opens its why panel. @param {{name: string, children?: any, [name: string]: any}} props */
export function Why({ name, children, ...more }) {
  return h(Link, { to: addressOf(view.value.path, { why: name }), ...more }, children ?? name);
}

/** @param {{code: string | null | undefined, kind?: string, label?: string, [name: string]: any}} props */
export function Code({ code, kind, label, ...more }) {
  if (!code && !label) return null;
  return h("span", { class: `code k-${kind ?? kindOf(code)}`, ...more }, label ?? code);
}

/** @param {{label?: string}} props */
export const Loading = ({ label }) => h("div", { class: "blocks", "data-testid": "loading", role: "status", "aria-label": label ?? "Loading" },
  h("i", { style: { height: "40px", width: "60%" } }), h("i", { style: { height: "96px" } }), h("i", { style: { height: "280px" } }));

/** @param {{children?: any}} props */
export const Empty = ({ children }) => h("div", { class: "nothing", "data-testid": "empty" }, children);

/** @param {{text: string | null}} props */
export const Failure = ({ text }) => (text ? h("div", { class: "error", "data-testid": "error", role: "alert" }, text) : null);

/** @param {{options: [string, string][], value: string, onPick: (value: string) => void, label: string, testid?: string}} props */
export const Choice = ({ options, value, onPick, label, testid }) => h("span", { class: "seg", role: "group", "aria-label": label, "data-testid": testid },
  options.map(([name, text]) => h("button", { type: "button", key: name, "aria-pressed": name === value ? "true" : "false", "data-value": name, onClick: () => onPick(name) }, text)));

const Arrow = () => h("svg", { width: 13, height: 13, viewBox: "0 0 16 16", fill: "none", stroke: "currentColor", "stroke-width": "1.6", "aria-hidden": "true" },
  h("path", { d: "M8 14V3M3.5 7.5 8 3l4.5 4.5" }));

/** Up to this many jobs are named, more are counted. */
const NAMED = 4;

/** An unblock: what to change, what it costs, and which jobs it places. @param {{one: import("./types.js").Unblock, lead?: boolean}} props */
export function Unblock({ one, lead = true }) {
  const tasks = Object.entries(one.for ?? {});
  const many = one.for_demands > NAMED ? `${plural(one.for_tasks, "task")} of ${plural(one.for_demands, "job")}` : tasks.map(([name, count]) => `${plural(count, "task")} of ${name}`).join(", ");
  const others = one.for_demands > 1 ? ` for ${many}` : "";
  return h("div", { class: "help", "data-testid": "unblock", "data-hourly-cost": one.hourly_cost },
    lead && h(Arrow, null),
    h("span", null, lead && "Would help: ", h("b", null, arrows(one.change)), h("span", { class: "for" }, others)),
    h("span", { class: "price" }, `+${usd(one.hourly_cost)}/h`));
}

/** With this many groups or more, blockers are counted by code. */
const COUNTED = 9;
const COUNT_WORDS = /** @type {Record<string, string>} */ ({
  TOO_SMALL: "too small", AT_MAX: "at their max", BUDGET: "over the ceiling", FROZEN: "frozen", MAX_NODES: "over the limit of machines",
  STOCKOUT: "out of stock", QUOTA: "over their quota", BACKOFF: "backing off", NO_LABEL_MATCH: "with other labels", NOT_TOLERATED: "not tolerated",
  RATE_LIMITED: "launching as fast as they may", GANG_SHAPE: "of the wrong shape for the gang",
  APART: "kept apart by a constraint", SPREAD: "held back to spread evenly", TOGETHER: "without the tasks it must be with",
});

/** Blockers by group; a family is one entry if all of its groups have the same code. @param {DemandRow["groups"]} groups */
function byFamily(groups) {
  const family = new Map((status.value?.groups ?? []).map((one) => [one.name, one.family]));
  /** @type {Map<string, Set<string | null>>} */
  const codes = new Map();
  for (const [name, one] of Object.entries(groups)) codes.set(family.get(name) ?? "", (codes.get(family.get(name) ?? "") ?? new Set()).add(one.code));
  const shared = (/** @type {string} */ name) => { const mine = family.get(name); return mine && codes.get(mine)?.size === 1 ? mine : name; };
  return Object.entries(Object.fromEntries(Object.entries(groups).map(([name, one]) => [shared(name), one])));
}

/** @param {{groups: DemandRow["groups"]}} props */
export function Blockers({ groups }) {
  const [open, setOpen] = useState(false);
  const rows = byFamily(groups);
  if (!rows.length) return null;
  if (rows.length >= COUNTED && !open) {
    /** @type {Record<string, number>} */
    const counts = {};
    for (const [, one] of rows) counts[one.code ?? ""] = (counts[one.code ?? ""] ?? 0) + 1;
    const text = Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([code, count]) => `${count} ${COUNT_WORDS[code] ?? code}`).join(", ");
    return h("div", { class: "cells" }, h("button", { type: "button", class: "cell", onClick: () => setOpen(true), "aria-expanded": "false" }, h("span", null, text)));
  }
  return h("div", { class: "cells" }, rows.map(([name, one]) =>
    h(Why, { name, key: name, class: "cell plain", "data-testid": "blocker", "data-group": name, "data-code": one.code, title: one.why },
      h("span", null, name), h(Code, { code: one.code }))));
}

/** @param {{one: DemandRow}} props */
export function WaitingRow({ one }) {
  const main = one.parts[0];
  const each = one.needs?.length ? one.needs.map((bundle) => needsText(bundle.needs)).filter(Boolean).join(" or ") : "";
  return h("article", {
    class: "wait", tabIndex: 0, "data-row": one.id, "data-testid": "waiting-row", "data-demand": one.id, "data-code": main?.code ?? "", "data-tasks": one.tasks,
  },
    h("div", null,
      h(Why, { name: one.id, class: "job" }),
      h("div", { class: "meta" }, `${plural(one.tasks, "task")}${each ? ` of ${each}` : ""}${one.gang ? `, as a gang${one.gang === "any" ? "" : ` (${one.gang})`}` : ""}`),
      one.since !== null && h("div", { class: "meta" }, `waits ${span(instant.value - one.since)}`)),
    h("div", null,
      one.parts.map((part) => h("div", { class: "why" }, h(Code, { code: part.code, kind: part.code ? undefined : "fine", label: part.code ?? "placed" }),
        one.parts.length > 1 ? `${plural(part.tasks, "task")}: ` : "", withoutWait(part.why))),
      h(Blockers, { groups: one.groups ?? {} }),
      (one.unblocks ?? []).slice(0, 2).map((way) => h(Unblock, { one: way, key: way.change })),
      Object.keys(one.groups ?? {}).length > 0 && !one.unblocks?.length && h("div", { class: "help" }, h(Why, { name: one.id, class: "link" }, "What would help?"))));
}

/** @param {{one: SliceRow}} props */
function Slot({ one }) {
  const failed = FAILED.has(one.state) || one.code === "LOST";
  const title = `${one.id}: ${one.state}, ${one.why}`;
  const style = { backgroundColor: failed ? "var(--s-failed)" : colourOf(one.state) };
  const hatch = one.state === "queued" || one.state === "requesting" ? " hatch" : "";
  return h(Why, { name: one.id, class: `slot plain${failed ? " x" : hatch}`, title, style, "aria-label": title },
    failed ? "×" : one.state === "ready" && h("b", { style: { height: `${Math.round((one.use ?? 0) * 100)}%` } }));
}

/** A group with more slots than this is drawn as a bar. */
const SLOTS = 40;

/** @param {{group: GroupRow, slices: SliceRow[]}} props */
export function Slots({ group, slices }) {
  const most = Math.max(group.max ?? 0, slices.length);
  if (most > SLOTS) {
    const parts = /** @type {[number, string][]} */ ([
      [Math.min(group.busy, group.ready), "var(--s-busy)"], [group.ready - Math.min(group.busy, group.ready), "var(--s-idle)"],
      [group.coming, "var(--s-booting)"], [group.leaving, "var(--s-ending)"],
    ]);
    const label = `${group.busy} busy, ${group.ready - group.busy} idle, ${group.coming} coming, ${group.leaving} leaving of ${most}`;
    return h("div", { class: "bar", role: "img", "aria-label": label, title: label },
      parts.filter(([count]) => count > 0).map(([count, colour]) => h("i", { style: { width: `${(count / most) * 100}%`, background: colour } })));
  }
  const free = Math.max(0, most - slices.length);
  return h("div", { class: "slots" }, slices.map((one) => h(Slot, { one, key: one.id })), Array.from({ length: free }, (_, index) => h("span", { class: "slot none", key: index })));
}

/** Whether one more machine can be launched now, in one line. @param {{group: GroupRow}} props */
export function Next({ group }) {
  if (group.max === null) return h("div", { class: "a" }, h(Code, { code: "GROUP_REMOVED" }), h("span", { class: "dim" }, "no longer in the settings: what is left is drained"));
  const next = group.next;
  if (next?.code) return h("div", { class: "a" }, h(Code, { code: next.code }), h("span", { class: next.code === "FROZEN" ? "" : "dim" }, next.code === "FROZEN" && group.frozen_by ? `by ${group.frozen_by}` : withoutName(next.why, group.name)));
  const boots = group.boot_seconds === null ? "" : `, ready in about ${span(group.boot_seconds)}`;
  const more = group.max - group.ready - group.coming - group.leaving;
  return h("div", { class: "a" }, h(Code, { code: null, kind: "fine", label: "can be had" }), h("span", { class: "dim" }, `${more} more${boots}`));
}

/** @param {GroupRow} group */
export const shapeText = (group) => [needsText(group.resources), group.hosts > 1 && `${group.hosts} hosts`, group.preemptible && "spot"].filter(Boolean).join(", ");

/** @param {{group: GroupRow, slices: SliceRow[], label?: string, children?: any}} props */
export function GroupRowView({ group, slices, label, children }) {
  return h("article", {
    class: "grp", tabIndex: 0, "data-row": group.name, "data-testid": "group-row", "data-group": group.name, "data-ready": group.ready, "data-coming": group.coming,
    "data-leaving": group.leaving, "data-max": group.max ?? "", "data-availability": group.availability.state, "data-next": group.next?.code ?? "", "data-frozen": group.frozen_by ?? "",
  },
    h("div", null, h(Why, { name: group.name, class: "n" }, label ?? group.name), " ", h("span", { class: "r" }, shapeText(group))),
    group.price === null && !group.hourly_cost ? h("div", { class: "num dim" }, "no price") : h("div", { class: "num" }, usd(group.hourly_cost), h("span", { class: "dim" }, "/h")),
    label === undefined || slices.length > 0 ? h(Slots, { group, slices }) : h("span", null),
    h("div", { class: "num cap" }, `${whole(slices.length)} of ${whole(group.max ?? 0)}`),
    h(Next, { group }),
    children);
}

/** @typedef {import("./types.js").Status["families"][number]} FamilyRow */

/**
 * Groups as they are shown: a family once, in the place of its first group, with its groups inside.
 * @returns {{family: FamilyRow | null, groups: GroupRow[]}[]}
 */
export function groupEntries() {
  const families = new Map((status.value?.families ?? []).map((one) => [one.name, one]));
  /** @type {Map<string, {family: FamilyRow | null, groups: GroupRow[]}>} */
  const found = new Map();
  for (const group of status.value?.groups ?? []) {
    const family = families.get(group.family ?? "") ?? null, key = family ? `family ${family.name}` : `group ${group.name}`;
    const mine = found.get(key);
    if (mine) mine.groups.push(group);
    else found.set(key, { family, groups: [group] });
  }
  return [...found.values()];
}

/** Machines that the limits of groups and families allow. */
export const mostMachines = () => groupEntries().reduce((sum, { family, groups }) => {
  const each = groups.reduce((total, group) => total + (group.max ?? 0), 0);
  return sum + (family ? Math.min(family.max, each) : each);
}, 0);

/** A family of groups as one row; the rows of its groups open below. @param {{family: FamilyRow, groups: GroupRow[], slices: Map<string, SliceRow[]>, children?: any}} props */
export function FamilyRowView({ family, groups, slices, children }) {
  const mine = groups.flatMap((group) => slices.get(group.name) ?? []);
  const prices = groups.map((group) => group.price).filter((price) => price !== null).map(Number);
  const least = Math.min(...prices), most = Math.max(...prices);
  const cost = prices.length ? `, ${least === most ? usd(least) : `${usd(least)} to ${usd(most)}`}/h each` : "";
  const used = groups.filter((group) => group.ready + group.coming + group.leaving > 0).map((group) => `${short(group.name, family.name)} ${group.ready + group.coming + group.leaving}`).join(", ");
  const together = { ...groups[0], ...family, name: family.name, max: family.max };
  const can = groups.filter((group) => !group.next?.code).length;
  return h("article", {
    class: "grp fam", tabIndex: 0, "data-row": family.name, "data-testid": "family-row", "data-family": family.name, "data-ready": family.ready, "data-coming": family.coming,
    "data-leaving": family.leaving, "data-max": family.max, "data-next": family.next?.code ?? "", "data-frozen": family.frozen_by ?? "", "data-groups": groups.length,
  },
    h("div", null, h(Why, { name: family.name, class: "n" }), " ", h("span", { class: "r" }, `${plural(groups.length, "offer")}${cost}`)),
    h("div", { class: "num" }, usd(family.hourly_cost), h("span", { class: "dim" }, "/h")),
    h(Slots, { group: together, slices: mine }),
    h("div", { class: "num cap" }, `${whole(mine.length)} of ${whole(family.max)}`),
    h("div", { class: "a" }, family.next?.code ? [h(Code, { code: family.next.code }), h("span", { class: "dim" }, family.next.code === "FROZEN" && family.frozen_by ? `by ${family.frozen_by}` : withoutName(family.next.why, family.name))]
      : [h(Code, { code: null, kind: "fine", label: "can be had" }), h("span", { class: "dim" }, `${can} of ${plural(groups.length, "offer")}${used ? `; there are ${used}` : ""}`)]),
    h("details", { class: "offers" }, h("summary", null, plural(groups.length, "offer")),
      groups.map((group) => h(GroupRowView, { group, label: short(group.name, family.name), slices: slices.get(group.name) ?? [], key: group.name }))),
    children);
}

/** The name of an offer inside its family. @param {string} name @param {string} family */
const short = (name, family) => (name.startsWith(`${family}/`) ? name.slice(family.length + 1) : name);

/** @type {{of: SliceRow[] | undefined, found: Map<string, SliceRow[]>}} */
let grouped = { of: undefined, found: new Map() };

/** Slices by group; the same lists as long as no slice changes. @returns {Map<string, SliceRow[]>} */
export function slicesByGroup() {
  const rows = status.value?.slices;
  if (rows === grouped.of) return grouped.found;
  /** @type {Map<string, SliceRow[]>} */
  const found = new Map();
  for (const one of rows ?? []) {
    const mine = found.get(one.group);
    if (mine) mine.push(one);
    else found.set(one.group, [one]);
  }
  grouped = { of: rows, found };
  return found;
}

/** @type {WeakMap<WindlassEvent, number>} */
const eventKeys = new WeakMap();
let lastEventKey = 0;

/** A key that an event keeps, so that its line is moved and not made again. @param {WindlassEvent} one */
export function eventKey(one) {
  const known = eventKeys.get(one) ?? (lastEventKey += 1);
  eventKeys.set(one, known);
  return known;
}

/**
 * A line of an event. A click opens the pass with `onOpen`, or why its subject is as it is.
 * @param {{one: WindlassEvent, wide?: boolean, open?: boolean, onOpen?: () => void}} props
 */
export function EventRow({ one, wide, open, onOpen }) {
  const subject = one.subjects[0];
  const why = () => { if (subject && subject !== "*") change({ why: subject }); };
  return h("button", {
    type: "button", class: `ev${one.alarm ? " al" : ""}${wide ? " wide" : ""}${open ? " on" : ""}`, onClick: onOpen ?? why, "aria-expanded": onOpen ? String(open === true) : undefined, "data-row": subject ?? "", "data-testid": "event-row",
    "data-seq": one.seq ?? "", "data-kind": one.kind, "data-code": one.code ?? "", "data-alarm": String(one.alarm),
  }, h("time", null, wide ? clock(one.at) : timeOfDay(one.at)), h("span", { class: "t" }, one.text), h(Code, { code: one.code }));
}

/** The question before an order. @param {string} what @param {string} subject */
function question(what, subject) {
  const known = status.value, slice = known?.slices.find((one) => one.id === subject), group = known?.groups.find((one) => one.name === (slice?.group ?? subject)) ?? known?.families.find((one) => one.name === subject);
  if (what === "drain" && slice && group) {
    const work = slice.tasks ? `${plural(slice.tasks, "task")} ${slice.tasks === 1 ? "runs there and is" : "run there and are"} waited for` : "nothing runs there";
    return `Drain ${subject}? ${work[0].toUpperCase()}${work.slice(1)}; ${group.name} then has ${Math.max(0, group.ready - 1)} of ${group.max ?? 0}.`;
  }
  if (what === "undrain") return `Undrain ${subject}? It takes work again.`;
  if (what === "freeze" && group) return `Freeze ${subject}? No machine of it is launched or released until it is resumed; its ${plural(group.ready, "machine")} ${group.ready === 1 ? "keeps" : "keep"} running.`;
  if (what === "resume" && subject === "*") return `Resume everything? It is frozen by ${known?.frozen["*"] ?? "an operator"}; after that machines of every group are launched and released again.`;
  if (what === "resume" && group) return `Resume ${subject}? It is frozen by ${group.frozen_by ?? "an operator"}; after that its machines are launched and released again.`;
  return `${what} ${subject}?`;
}

const LABELS = /** @type {Record<string, string>} */ ({ drain: "Drain", undrain: "Undrain", freeze: "Freeze", resume: "Resume" });

/** A button that gives an order, for operators. @param {{what: string, subject: string, primary?: boolean, disabled?: boolean}} props */
export function Command({ what, subject, primary, disabled }) {
  if (!isOperator.value || view.value.params.get("at")) return null;
  return h("button", {
    type: "button", class: `btn${primary ? " primary" : ""}`, disabled, "data-testid": `command-${what}`,
    onClick: (/** @type {Event} */ event) => { event.stopPropagation(); asked.value = { what, subject, text: question(what, subject) }; },
  }, LABELS[what] ?? what);
}

/** @param {{line: string}} props */
export function CopyCommand({ line }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      toast(`Copied: ${line}`);
    } catch {
      toast(line);
    }
  };
  return h("button", { type: "button", class: "btn", "data-testid": "copy-command", "data-command": line, title: line, onClick: copy }, "Copy command");
}

export { Fragment };
