// Jobs: the matrix of what waits and what hinders it in each group, and each job in full.

import { h } from "../vendor/preact.js";
import { plural, span } from "../format.js";
import { Code, Empty, WaitingRow, Why } from "../parts.js";
import { instant, status } from "../store.js";

const MOST = 200;

export function Demands() {
  const known = status.value;
  if (!known) return null;
  const rows = known.demands.slice(0, MOST), names = known.groups.map((group) => group.name);
  const coming = rows.flatMap((one) => one.parts.filter((part) => part.slices.length > 0 && part.code).map((part) => ({ id: one.id, part })));
  return h("section", { "data-testid": "page-demand" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Jobs"), h("span", { class: "cap" }, `${plural(known.summary.waiting_tasks, "task")} of ${plural(known.summary.waiting_demands, "job")} wait`)),
    !rows.length ? h("section", { class: "panel" }, h(Empty, null, "Nothing waits. Work comes from the workload, or by hand: windlass submit …")) : h("div", { class: "stack" },
      h("section", { class: "panel" },
        h("header", null, h("h2", null, "What hinders each job, group by group")),
        h("div", { class: "scrollx", tabIndex: 0, role: "region", "aria-label": "Jobs and groups" },
          h("table", { "data-testid": "demand-matrix" },
            h("thead", null, h("tr", null, h("th", { scope: "col" }, "job"), h("th", { scope: "col", class: "num" }, "tasks"), h("th", { scope: "col", class: "num" }, "waits"), names.map((name) => h("th", { scope: "col", key: name }, h(Why, { name }))))),
            h("tbody", null, rows.map((one) => h("tr", { key: one.id, "data-demand": one.id },
              h("th", { scope: "row" }, h(Why, { name: one.id })), h("td", { class: "num" }, one.tasks), h("td", { class: "num" }, one.since === null ? "–" : span(instant.value - one.since)),
              names.map((name) => { const reason = one.groups?.[name]; return h("td", { key: name, "data-group": name, "data-code": reason?.code ?? "", title: reason?.why }, reason ? h(Code, { code: reason.code }) : "–"); }))))))),
      coming.length > 0 && h("section", { class: "panel" }, h("header", null, h("h2", null, "Coming")),
        coming.map(({ id, part }) => h("div", { class: "ev", key: `${id}${part.why}` }, h(Why, { name: id }), h("span", null, `${plural(part.tasks, "task")}: ${part.why}`), h(Code, { code: part.code })))),
      h("section", { class: "panel", "data-testid": "waiting-table" }, h("header", null, h("h2", null, "What waits, and why")), rows.map((one) => h(WaitingRow, { one, key: one.id }))),
      known.demands.length > MOST && h("div", { class: "cap" }, `and ${known.demands.length - MOST} more: windlass status --all`)));
}
