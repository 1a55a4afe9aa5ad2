// Machines: a lane over time for each machine; its height is the share in use.

import { h } from "../vendor/preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import { Chart, Ticks } from "../charts.js";
import { clock, colourOf, FAILED, IN_FLIGHT, OVER, percent, plural, span, timeOfDay, usd, whole } from "../format.js";
import { Choice, Empty, Failure, Link, Loading } from "../parts.js";
import { addressOf, change, knownUntil, now, seq, status, view } from "../store.js";
import { useDocument, useSeries } from "../series.js";

/** @typedef {import("../types.js").Lane} Lane */

const RANGES = /** @type {[string, string][]} */ ([["240", "4 min"], ["3600", "1 h"], ["86400", "24 h"], ["604800", "7 d"]]);
const LEGEND = /** @type {[string, string, boolean][]} */ ([["requesting", "requesting", true], ["booting", "booting", false], ["initializing", "joining", false]]);
/** With this many lanes or more, rows are low and only visible ones are in the page. */
const MANY = 60;
const ROW = { lane: 27, low: 12, group: 34 };
/** A machine that is drained while tasks run on it shows this many pixels of its state above them. */
const EDGE = 4;

export function Slices() {
  const known = status.value, params = view.value.params;
  const range = params.get("range") ?? "3600", sort = params.get("sort") ?? "group", filters = { group: params.get("group") ?? "", state: params.get("state") ?? "", text: (params.get("q") ?? "").toLowerCase() };
  const many = (known?.slices.length ?? 0) >= 500;
  // The window moves in steps, so that the address of the request stays the same for a while.
  const step = Math.max(2, Number(range) / 200), last = knownUntil.value, end = last ?? Math.ceil(now.value / step) * step;
  const [answer, failure] = useDocument("/lanes", { since: end - Number(range), until: last, limit: 5000 }, seq.value, many ? 5000 : 1000);
  const series = useSeries({ since: end - Number(range), points: 300 }, seq.value);
  const lanes = useMemo(() => ordered(answer?.slices ?? [], sort, filters), [answer, sort, filters.group, filters.state, filters.text]);
  if (!known) return null;
  const pick = (/** @type {string} */ name) => (/** @type {Event} */ event) => change({ [name]: /** @type {HTMLInputElement} */ (event.currentTarget).value }, true);
  const until = last ?? Math.max(answer?.until ?? 0, known.at), since = answer ? Math.max(answer.since, Math.min(earliest(answer.slices), until - 60)) : end - Number(range);
  return h("section", { "data-testid": "page-slices" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Machines"),
      h(Choice, { label: "Order", value: sort, onPick: (value) => change({ sort: value }, true), options: [["group", "by group"], ["cost", "by cost"], ["state", "by state"]] }),
      h(Choice, { label: "Time", testid: "range", value: range, onPick: (value) => change({ range: value }, true), options: RANGES }),
      h("input", { class: "field", type: "search", placeholder: "name…", "aria-label": "Name", "data-testid": "filter-text", value: params.get("q") ?? "", onInput: pick("q"), size: 12 }),
      h("select", { class: "field", "aria-label": "Group", "data-testid": "filter-group", value: filters.group, onChange: pick("group") }, h("option", { value: "" }, "every group"), known.groups.map((group) => h("option", { key: group.name, value: group.name }, group.name))),
      h("select", { class: "field", "aria-label": "State", "data-testid": "filter-state", value: filters.state, onChange: pick("state") }, h("option", { value: "" }, "every state"), ["here", "queued", "requesting", "booting", "initializing", "ready", "cordoned", "draining", "terminating", "terminated", "lost", "launch_failed", "launch_timeout", "init_failed", "terminate_failed", "cancelled"].map((name) => h("option", { key: name, value: name }, name === "here" ? "all but ended" : name.replace("_", " ")))),
      h("span", { class: "cap", "data-testid": "lane-count", "data-value": lanes.length }, plural(lanes.length, "machine")),
      h("span", { class: "grow" }), h(Legend, null)),
    h(Failure, { text: failure }),
    !answer ? !failure && h(Loading, null) : h("section", { class: `panel lanes${lanes.length >= MANY ? " many" : ""}`, "data-testid": "lanes", "aria-label": "Machines over time" },
      h("div", { class: "dm", style: { padding: "10px 0 6px" } }, h("span", { class: "cap", style: { paddingLeft: "18px" } }, "tasks waiting"),
        series?.at.length ? h(Waiting, { series, since, until }) : h("span", null), h("span", { class: "cap num", style: { paddingRight: "16px" } }, "cost")),
      lanes.length ? h(Rows, { lanes, since, until, grouped: sort === "group" }) : h(Empty, null, "No machines in this period: they are launched when jobs wait. windlass submit …"),
      h("div", { class: "ax", style: { height: "28px", borderTop: "1px solid var(--line)" } }, h("span", null), h(Ticks, { from: since, to: until }), h("span", null))));
}

/** @param {Lane[]} slices */
const earliest = (slices) => slices.reduce((first, one) => Math.min(first, one.spans[0]?.from ?? Infinity), Infinity);

/** @param {{series: import("../types.js").Series, since: number, until: number}} props */
function Waiting({ series, since, until }) {
  const from = series.at.findIndex((/** @type {number} */ time) => time >= since), start = Math.max(0, from < 0 ? series.at.length - 1 : from - 1);
  const times = [since, ...series.at.slice(start + 1).filter((/** @type {number} */ time) => time < until), until];
  const sum = (/** @type {number} */ index) => Object.values(series.waiting).reduce((/** @type {number} */ total, values) => total + (/** @type {number[]} */ (values)[index] ?? 0), 0);
  const values = [sum(start), ...series.at.slice(start + 1).map((/** @type {number} */ _t, /** @type {number} */ index) => sum(start + 1 + index)).slice(0, times.length - 2), sum(series.at.length - 1)];
  const most = Math.max(1, ...values);
  return h(Chart, { times, height: 34, top: most, label: `Tasks waiting over time, ${most} at the most`, curves: [{ values, stroke: "--ink2", fill: "--ink/0.1" }] });
}

const Legend = () => h("span", { class: "legend", style: { margin: "0px" } },
  LEGEND.map(([state, text, hatch]) => h("span", { key: text }, h("i", { class: `sw${hatch ? " hatch" : ""}`, style: { backgroundColor: colourOf(String(state)) } }), text)),
  h("span", null, h("i", { class: "sw", style: { background: "var(--s-idle)" } }), "ready, idle"), h("span", null, h("i", { class: "sw", style: { background: "var(--s-busy)" } }), "in use (height = share)"),
  h("span", null, h("i", { class: "sw", style: { background: "var(--s-draining)" } }), "draining"), h("span", null, h("i", { class: "sw", style: { background: "var(--s-ending)" } }), "ending"),
  h("span", null, h("i", { class: "sw", style: { background: "var(--s-failed)", borderRadius: "50%" } }), "lost"),
  h("span", null, h("svg", { width: 9, height: 7, "aria-hidden": "true" }, h("path", { d: "M0 0h9L4.5 7z", fill: "var(--c-limit)" })), "by an operator"));

/** @param {Lane} one */
const lastState = (one) => one.spans.at(-1)?.state ?? "";

/** The number at the end of a name, so that machine 2 comes before machine 10. @param {Lane} one */
const numberOf = (one) => Number(/\d+$/.exec(one.id)?.[0] ?? 0);

/** @param {Lane[]} slices @param {string} sort @param {{group: string, state: string, text: string}} filters */
function ordered(slices, sort, filters) {
  const kept = slices.filter((one) => (!filters.group || one.group === filters.group) && (!filters.text || one.id.toLowerCase().includes(filters.text))
    && (!filters.state || (filters.state === "here" ? !OVER.has(lastState(one)) : lastState(one) === filters.state)));
  const numbers = new Map(kept.map((one) => [one.id, numberOf(one)])), places = (/** @type {Lane} */ one) => numbers.get(one.id) ?? 0;
  const by = /** @type {Record<string, (a: Lane, b: Lane) => number>} */ ({
    group: (a, b) => a.group.localeCompare(b.group) || a.spans[0].from - b.spans[0].from || places(a) - places(b), cost: (a, b) => b.cost - a.cost, state: (a, b) => lastState(a).localeCompare(lastState(b)) || a.group.localeCompare(b.group) || places(a) - places(b),
  });
  return kept.sort(by[sort] ?? by.group);
}

/** The rows of the list; if there are many, only visible ones are in the page. @param {{lanes: Lane[], since: number, until: number, grouped: boolean}} props */
function Rows({ lanes, since, until, grouped }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [sight, setSight] = useState({ top: 0, height: 900 });
  const many = lanes.length >= MANY;
  const rows = useMemo(() => {
    /** @type {{top: number, height: number, group?: string, lane?: Lane}[]} */
    const found = [];
    let top = 0, group = null;
    for (const lane of lanes) {
      if (grouped && lane.group !== group) { group = lane.group; found.push({ top, height: ROW.group, group }); top += ROW.group; }
      const height = many ? ROW.low : ROW.lane;
      found.push({ top, height, lane });
      top += height;
    }
    return found;
  }, [lanes, grouped, many]);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setSight({ top: element.scrollTop, height: element.clientHeight });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => { element.removeEventListener("scroll", measure); watch.disconnect(); };
  }, [many]);
  const names = useMemo(() => shortNames(lanes.map((one) => one.id)), [lanes]);
  const last = rows.at(-1), total = last ? last.top + last.height : 0;
  const shown = many ? rows.filter((row) => row.top + row.height > sight.top - 200 && row.top < sight.top + sight.height + 200) : rows;
  return h("div", { class: "scroll", ref: box, role: "list", tabIndex: many ? 0 : undefined, "aria-label": "Machines" },
    many && h("div", { style: { height: `${shown[0]?.top ?? 0}px` }, "aria-hidden": "true" }),
    shown.map((row) => (row.lane === undefined ? h(GroupHead, { key: `group:${row.group}`, name: row.group ?? "", lanes }) : h(Lane, { key: row.lane.id, one: row.lane, name: names.get(row.lane.id) ?? row.lane.id, since, until, low: many }))),
    many && h("div", { style: { height: `${Math.max(0, total - ((shown.at(-1)?.top ?? 0) + (shown.at(-1)?.height ?? 0)))}px` }, "aria-hidden": "true" }));
}

/** @param {{name: string, lanes: Lane[]}} props */
function GroupHead({ name, lanes }) {
  const group = status.value?.groups.find((one) => one.name === name);
  // Only machines whose start is in the period: others may have run tasks before it.
  const unused = lanes.filter((one) => one.group === name && IN_FLIGHT.has(one.spans[0]?.state ?? "") && one.spans.some((part) => part.state === "ready") && !one.use.some((part) => part.tasks > 0)).length;
  return h("div", { class: "lg", role: "listitem", "data-testid": "lane-group", "data-group": name },
    h(Link, { class: "id", title: name, to: addressOf(view.value.path, { why: name }) }, name),
    h("span", { class: "m" }, group && `${whole(group.ready)} ready${group.leaving ? `, ${whole(group.leaving)} leaving` : ""}${group.coming ? `, ${whole(group.coming)} coming` : ""} of ${whole(group.max ?? 0)}${group.price === null ? "" : `, ${usd(group.price)}/h each`}`,
      unused > 0 && [" · ", h("span", { class: "warn" }, `${whole(unused)} never ran a task`)], group?.frozen_by && [" · ", h("span", { class: "warn" }, `frozen by ${group.frozen_by}`)]),
    h("span", null));
}

/** @param {{one: Lane, name: string, since: number, until: number, low: boolean}} props */
function Lane({ one, name, since, until, low }) {
  const length = until - since, state = lastState(one), gone = OVER.has(state), high = low ? 9 : 17;
  const left = (/** @type {number} */ time) => `${((Math.min(until, Math.max(since, time)) - since) / length) * 100}%`;
  const width = (/** @type {number} */ from, /** @type {number} */ to) => `${Math.max(0.25, ((Math.min(until, to) - Math.max(since, from)) / length) * 100)}%`;
  const inSight = one.spans.filter((part) => !OVER.has(part.state) && (part.to ?? until) >= since && part.from <= until);
  const busy = (one.use.at(-1)?.tasks ?? 0) > 0;
  const dot = gone ? { background: "transparent", boxShadow: "inset 0 0 0 1.5px var(--line)" } : { background: state === "ready" ? (busy ? "var(--s-busy)" : "var(--s-idle)") : colourOf(state) };
  const open = () => change({ why: one.id }), [head, tail] = parted(name);
  return h("div", {
    class: `lane${gone ? " gone" : ""}${view.value.params.get("why") === one.id ? " on" : ""}`, role: "listitem", tabIndex: 0, "aria-label": `${one.id}, ${state}`, "data-row": one.id, onClick: open,
    "data-testid": "lane", "data-slice": one.id, "data-group": one.group, "data-state": state,
  },
    h("span", { class: "id", title: one.id }, h("i", { class: "dot", style: dot }), h("span", { class: tail.startsWith("…") ? "head clip" : "head" }, head), h("span", { class: "tail" }, tail)),
    h("div", { class: "track" },
      inSight.filter((part) => !FAILED.has(part.state)).map((part, /** @type {number} */ index, /** @type {any[]} */ all) => h("i", {
        key: `${part.state}${part.from}`, "data-testid": "lane-span", "data-state": part.state,
        class: `${part.state === "requesting" || part.state === "queued" ? "hatch" : ""}${index === 0 ? " first" : ""}${index === all.length - 1 ? " last" : ""}`,
        title: `${part.state} from ${clock(part.from)}, ${span((part.to ?? until) - part.from)}: ${part.why}`, style: { left: left(part.from), width: width(part.from, part.to ?? until), backgroundColor: colourOf(part.state) },
      })),
      used(one, since, until).map((part) => h("i", { key: part.from, class: "f", title: `${plural(part.tasks, "task")}, ${percent(part.share)} used`, style: { left: left(part.from), width: width(part.from, part.to), height: `${Math.max(2, part.share * (part.ending ? high - EDGE : high))}px` } })),
      inSight.filter((part) => FAILED.has(part.state)).map((part) => h("span", { key: part.from, class: "xx", "data-testid": "lane-span", "data-state": part.state, style: { left: left(part.from) }, title: `${part.state} at ${timeOfDay(part.from)}: ${part.why}` }, "×")),
      inSight.filter((part) => part.by).slice(0, 1).map((part) => h("span", { key: "by", class: "op", style: { left: left(part.from) }, title: `by ${part.by}: ${part.why}` }))),
    h("span", { class: "c" }, usd(one.cost)));
}

/**
 * Names without the stamp in the middle, which is the same for all machines of a run; a name that would not be unique is not shortened.
 * @param {string[]} ids
 */
function shortNames(ids) {
  const short = (/** @type {string} */ id) => id.replace(/-[0-9a-z]{6,}-(\d+)$/, "…-$1");
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const id of ids) counts.set(short(id), (counts.get(short(id)) ?? 0) + 1);
  return new Map(ids.map((id) => [id, counts.get(short(id)) === 1 ? short(id) : id]));
}

/** A name in two parts: if it does not fit, the first is truncated, so that the distinct end stays visible. @param {string} name */
function parted(name) {
  const cut = name.lastIndexOf("…"), from = cut > 0 ? cut : Math.max(name.lastIndexOf("-"), name.lastIndexOf("."));
  const place = from > 0 && name.length - from <= 8 ? from : Math.max(0, name.length - 6);
  return [name.slice(0, place), name.slice(place)];
}

/** @param {Lane} one @param {number} since @param {number} until */
function used(one, since, until) {
  /** @type {{from: number, to: number, tasks: number, share: number, ending: boolean}[]} */
  const found = [];
  const cordoned = one.spans.filter((part) => part.state === "cordoned" || part.state === "draining").map((part) => ({ from: part.from, to: part.to ?? until }));
  const over = one.spans.find((part) => !["queued", "requesting", "booting", "initializing", "ready", "cordoned", "draining"].includes(part.state))?.from ?? until;
  one.use.forEach((part, /** @type {number} */ index) => {
    const from = Math.max(since, part.at), to = Math.min(until, over, one.use[index + 1]?.at ?? until);
    if (part.tasks <= 0 || to <= from) return;
    // Cut where the machine is cordoned or recalled, so that its state stays visible over the tasks that it still runs.
    const cuts = [from, ...cordoned.flatMap((at) => [at.from, at.to]).filter((at) => at > from && at < to).sort((a, b) => a - b), to];
    cuts.slice(1).forEach((end, place) => found.push({ from: cuts[place], to: end, tasks: part.tasks, share: part.share, ending: cordoned.some((at) => at.from <= cuts[place] && cuts[place] < at.to) }));
  });
  return found;
}
