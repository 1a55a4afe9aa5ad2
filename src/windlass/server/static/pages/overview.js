// Overview: what waits and why, machines and groups, cost, and the last decisions.

import { h } from "../vendor/preact.js";
import { useMemo } from "../vendor/preact-hooks.js";
import { clock, percent, plural, span, usd, whole } from "../format.js";
import { Alarms } from "../alarms.js";
import { Chart, stacked, Ticks } from "../charts.js";
import { Empty, eventKey, EventRow, FamilyRowView, groupEntries, GroupRowView, Link, mostMachines, slicesByGroup, WaitingRow } from "../parts.js";
import { addressOf, events, instant, now, seq, status } from "../store.js";
import { useSeries } from "../series.js";

const MOST_WAITING = 10;
const MOST_EVENTS = 9;

export function Overview() {
  const known = status.value;
  if (!known) return null;
  const waiting = known.demands, mine = slicesByGroup();
  return h("section", { "data-testid": "page-overview" },
    h(Headline, null),
    h(Alarms, null),
    h(Figures, null),
    h("div", { class: "cols" },
      h("div", { class: "stack" },
        h("section", { class: "panel", "data-testid": "waiting-table" },
          h("header", null, h("h2", null, "What waits, and why"), h("span", { class: "cap" }, "each reason comes from the planner; each change that would help was tested by planning again")),
          waiting.length ? waiting.slice(0, MOST_WAITING).map((one) => h(WaitingRow, { one, key: one.id })) : h(Empty, null, "Nothing waits."),
          waiting.length > MOST_WAITING && h("div", { class: "nothing" }, h(Link, { to: addressOf("/demand"), class: "link" }, `all ${whole(waiting.length)} jobs`))),
        h(Charts, null)),
      h("div", { class: "stack" },
        h("section", { class: "panel", "data-testid": "groups-table" },
          h("header", null, h("h2", null, "What there is, and what can be had")),
          known.groups.length ? groupEntries().map(({ family, groups }) => (family
            ? h(FamilyRowView, { family, groups, slices: mine, key: `family ${family.name}` })
            : h(GroupRowView, { group: groups[0], slices: mine.get(groups[0].name) ?? [], key: groups[0].name }))) : h(Empty, null, "No groups are configured.")),
        h("section", { class: "panel", "data-testid": "events-list" },
          h("header", null, h("h2", null, "Decisions"), h(Link, { to: addressOf("/decisions"), class: "cap link" }, "all")),
          events.value.length ? events.value.slice(-MOST_EVENTS).reverse().map((one) => h(EventRow, { one, key: eventKey(one) })) : h(Empty, null, "Nothing was decided yet.")))));
}

function Headline() {
  const text = status.value?.headline ?? "", [first, ...rest] = text.split(/(?<=\.) /);
  return h("h1", { class: "headline", "data-testid": "headline" }, h("b", null, first), rest.length ? ` ${rest.join(" ")}` : "");
}

function Figures() {
  const known = status.value;
  if (!known) return null;
  const { summary, hourly_cost: cost, bill, groups } = known;
  const limit = mostMachines(), most = Math.max(limit, summary.slices, 1);
  const parts = /** @type {[number, string, string][]} */ ([
    [summary.busy, "var(--s-busy)", "busy"], [summary.idle, "var(--s-idle)", "idle"], [summary.coming, "var(--s-booting)", "coming"], [summary.leaving, "var(--s-ending)", "leaving"],
  ]).filter(([count]) => count > 0);
  const boots = groups.map((group) => group.boot_seconds).filter((one) => one !== null).map(Number).sort((a, b) => a - b);
  const usual = boots.length ? `a new one is ready in about ${span(boots[Math.floor(boots.length / 2)])}` : "boot time not known yet";
  const spent = bill.total ? ["work", "booting", "idle", "spare"].filter((name) => (/** @type {any} */ (bill))[name] / bill.total >= 0.01).map((name) => `${percent((/** @type {any} */ (bill))[name] / bill.total)} ${name}`).join(", ") : "";
  return h("div", { class: "figures" },
    h("div", { class: "figure", "data-testid": "figure-waiting", "data-value": summary.waiting_tasks },
      h("div", { class: "k" }, "Waiting"),
      h("div", { class: "v" }, whole(summary.waiting_tasks), h("small", null, summary.waiting_demands ? `${summary.waiting_tasks === 1 ? "task" : "tasks"} of ${plural(summary.waiting_demands, "job")}` : "tasks")),
      h("div", { class: "d" }, summary.oldest_wait_since ? `the oldest since ${clock(summary.oldest_wait_since)}, ${span(instant.value - summary.oldest_wait_since)}` : summary.waiting_tasks ? "start not known" : "nothing waits")),
    h("div", { class: "figure", "data-testid": "figure-machines", "data-value": summary.slices },
      h("div", { class: "k" }, "Machines"),
      h("div", { class: "v" }, whole(summary.slices), h("small", null, `of ${whole(limit)} that the limits allow`)),
      h("div", { class: "bar", "aria-hidden": "true" }, parts.map(([count, colour, name]) => h("i", { key: name, style: { width: `${(count / most) * 100}%`, background: colour } }))),
      h("div", { class: "legend" }, parts.map(([count, colour, name]) => h("span", { key: name }, h("i", { class: "sw", style: { background: colour } }), `${whole(count)} ${name}`)))),
    h("div", { class: "figure", "data-testid": "figure-coming", "data-value": summary.coming },
      h("div", { class: "k" }, "In flight"),
      h("div", { class: "v" }, whole(summary.coming), h("small", null, summary.coming === 1 ? "machine" : "machines")),
      h("div", { class: "d" }, usual)),
    h("div", { class: "figure", "data-testid": "figure-spend", "data-value": cost.now },
      h("div", { class: "k" }, "Cost"),
      h("div", { class: "v" }, usd(cost.now), h("small", null, summary.ceiling === null ? "an hour" : `an hour of ${usd(summary.ceiling)}`)),
      summary.ceiling !== null && h("div", { class: "gauge", "aria-hidden": "true" }, h("i", { style: { width: `${Math.min(100, (cost.now / summary.ceiling) * 100)}%` } })),
      h("div", { class: "d" }, h("b", null, usd(bill.total)), ` so far${spent ? `: ${spent}` : ""}`)));
}

/** Dollars beside a chart: without cents from 1,000 on, to fit. @param {number} amount */
const narrow = (amount) => (amount < 1000 ? usd(amount) : `$${whole(Math.round(amount))}`);

function Charts() {
  const minute = Math.floor(now.value / 60); // a quiet cluster has no passes, but its charts end now
  const series = useSeries({ since: null, points: 400 }, seq.value + minute);
  return useMemo(() => drawn(series), [series]); // not with every message: drawing is the most expensive part of a page
}

/** @param {import("../types.js").Series | null} series */
function drawn(series) {
  if (!series || !series.at.length) return h("section", { class: "panel" }, h("header", null, h("h2", null, "Over time")), series ? h(Empty, null, "Charts appear after the second pass.") : h("div", { class: "blocks" }, h("i", { style: { height: "180px" } })));
  const times = series.at, waits = times.map((_, index) => Object.values(series.waiting).reduce((sum, values) => sum + values[index], 0));
  const sum = (/** @type {string[]} */ states) => times.map((_, index) => states.reduce((total, state) => total + (series.slices[state]?.[index] ?? 0), 0));
  const ready = sum(["ready"]), idle = ready.map((count, index) => Math.max(0, count - series.busy[index]));
  const coming = sum(["queued", "requesting", "booting", "initializing"]);
  const leaving = sum(Object.keys(series.slices).filter((state) => !["ready", "queued", "requesting", "booting", "initializing"].includes(state)));
  const most = Math.max(0, ...waits), machines = times.map((_, index) => ready[index] + coming[index] + leaving[index]);
  const ceiling = series.ceiling.at(-1) ?? null, dear = Math.max(ceiling ?? 0, ...series.hourly_cost) * 1.08;
  const last = (/** @type {number[]} */ values) => values.at(-1) ?? 0;
  return h("section", { class: "panel" },
    h("header", null, h("h2", null, `Since ${clock(times[0]).replace(/:\d\d$/, "")}`), h("span", { class: "cap" }, "click to go back: the whole page then shows that time")),
    h("div", { class: "charts" },
      h("div", { class: "row", "data-testid": "chart-demand" }, h("div", { class: "lab" }, h("b", null, "Tasks waiting"), `${whole(most)} at the most`),
        h(Chart, { times, height: 44, top: most, label: `Tasks waiting over time, ${most} at the most`, curves: [{ values: waits, stroke: "--ink2", fill: "--ink/0.1" }] }), h("div", { class: "end" }, whole(last(waits)))),
      h("div", { class: "row", "data-testid": "chart-capacity" }, h("div", { class: "lab" }, h("b", null, "Machines"), "by what they do"),
        h(Chart, { times, height: 78, top: Math.max(...machines) * 1.05, label: `Machines by what they do over time, ${last(machines)} now`, curves: stacked([[series.busy, "--s-busy"], [idle, "--s-idle"], [coming, "--s-booting"], [leaving, "--s-ending"]]) }), h("div", { class: "end" }, whole(last(machines)))),
      h("div", { class: "row", "data-testid": "chart-cost" }, h("div", { class: "lab" }, h("b", null, "Dollars an hour"), ceiling === null ? "" : h("span", { class: "warn" }, `ceiling ${usd(ceiling)}`)),
        h(Chart, { times, height: 44, top: dear, label: `Dollars an hour over time${ceiling === null ? "" : `, the ceiling is ${usd(ceiling)}`}`, curves: [{ values: series.hourly_cost, stroke: "--ink2", fill: "--ink/0.1" }, ...(ceiling === null ? [] : [{ values: series.ceiling, stroke: "--c-limit", dash: [4, 4] }])] }), h("div", { class: "end" }, narrow(last(series.hourly_cost)))),
      h("div", { class: "row" }, h("span", null), h(Ticks, { from: times[0], to: times.at(-1) ?? times[0] }), h("span", null))));
}
