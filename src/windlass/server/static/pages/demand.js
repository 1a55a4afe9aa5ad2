// Jobs: a matrix of what blocks each waiting job in each group, then each job in full.

import { h } from "../vendor/preact.js";
import { plural, span, whole } from "../format.js";
import { Code, Empty, groupEntries, WaitingRow, Why } from "../parts.js";
import { instant, status } from "../store.js";

const MOST = 200;
/** A matrix with more rows scrolls on its own. */
const TALL = 20;

export function Demands() {
  const known = status.value;
  if (!known) return null;
  const rows = known.demands.slice(0, MOST);
  const columns = groupEntries().map(({ family, groups }) => ({ name: family?.name ?? groups[0].name, groups: groups.map((group) => group.name) }));
  const coming = rows.flatMap((one) => one.parts.filter((part) => part.slices.length > 0 && part.code).map((part) => ({ id: one.id, part })));
  return h("section", { "data-testid": "page-demand" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Jobs"), rows.length > 0 && h("span", { class: "cap" }, `${plural(known.summary.waiting_tasks, "task")} of ${plural(known.summary.waiting_demands, "job")} ${known.summary.waiting_tasks === 1 ? "waits" : "wait"}`)),
    !rows.length ? h("section", { class: "panel" }, h(Empty, null, "Nothing waits. Jobs come from the workload, or from: windlass submit …")) : h("div", { class: "stack" },
      h("section", { class: "panel" },
        h("header", null, h("h2", null, "What blocks each job, group by group")),
        h("div", { class: `scrollx${rows.length > TALL ? " tall" : ""}`, tabIndex: 0, role: "region", "aria-label": "Jobs and groups" },
          h("table", { "data-testid": "demand-matrix" },
            h("thead", null, h("tr", null, h("th", { scope: "col" }, "job"), h("th", { scope: "col", class: "num" }, "tasks"), h("th", { scope: "col", class: "num" }, "waits"), columns.map(({ name }) => h("th", { scope: "col", key: name }, h(Why, { name, title: name }))))),
            h("tbody", null, rows.map((one) => h("tr", { key: one.id, "data-demand": one.id },
              h("th", { scope: "row" }, h(Why, { name: one.id, title: one.id })), h("td", { class: "num" }, one.tasks), h("td", { class: "num" }, one.since === null ? "–" : span(instant.value - one.since)),
              columns.map(({ name, groups }) => h(Cell, { key: name, name, reasons: groups.map((group) => one.groups?.[group]).filter((reason) => reason !== undefined) })))))))),
      coming.length > 0 && h("section", { class: "panel" }, h("header", null, h("h2", null, "Coming")),
        coming.map(({ id, part }) => h("div", { class: "ev", key: `${id}${part.why}` }, h(Why, { name: id }), h("span", null, `${plural(part.tasks, "task")}: ${part.why}`), h(Code, { code: part.code })))),
      h("section", { class: "panel", "data-testid": "waiting-table" }, h("header", null, h("h2", null, "What waits, and why")), rows.map((one) => h(WaitingRow, { one, key: one.id }))),
      known.demands.length > MOST && h("div", { class: "cap" }, `and ${whole(known.demands.length - MOST)} more: windlass status --all`)));
}

/**
 * What blocks a job in a group, or in the groups of a family: the most frequent code, and how many groups have another.
 * @param {{name: string, reasons: {code: string | null, why: string}[]}} props
 */
function Cell({ name, reasons }) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { code } of reasons) counts.set(code ?? "", (counts.get(code ?? "") ?? 0) + 1);
  const [code, count] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  const others = reasons.length - count, title = [...new Set(reasons.map((reason) => reason.why))].slice(0, 5).join("\n");
  return h("td", { "data-group": name, "data-code": code, title }, code ? [h(Code, { code }), others > 0 && h("span", { class: "cap" }, ` and ${others} other`)] : "–");
}
