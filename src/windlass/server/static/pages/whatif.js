// What if: the recorded time replayed under other settings.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/preact-hooks.js";
import { call, get } from "../api.js";
import { percent, span, usd } from "../format.js";
import { Failure } from "../parts.js";
import { change, now, status, view } from "../store.js";

const RANGES = [["", "all that is recorded"], ["3600", "the last hour"], ["21600", "the last 6 hours"], ["86400", "the last day"]];
/** @type {[string, string, (value: number) => string][]} */
const MEASURES = [
  ["dollars", "dollars", usd], ["wait_p50", "wait, median", span], ["wait_p95", "wait, 95 of 100", span], ["wait_max", "wait, longest", span],
  ["utilization", "utilization", percent], ["node_hours", "machine hours", (value) => value.toFixed(2)], ["launches", "launches", String], ["stops", "stops", String],
];

/** A change that fits this cluster: one machine more of its first group. */
function example() {
  const group = status.value?.groups.find((one) => one.max !== null);
  return group ? `${group.name}.max=${(group.max ?? 0) + 1}` : "cluster.max_hourly_cost=20";
}

export function WhatIf() {
  const params = view.value.params;
  const [rows, setRows] = useState(() => { const kept = params.getAll("set"); return kept.length ? kept : [""]; });
  const [since, setSince] = useState(params.get("since") ?? "");
  const [job, setJob] = useState(/** @type {any} */ (null));
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  const id = job?.id, over = job && (job.state === "done" || job.state === "failed");
  useEffect(() => {
    if (!id || over) return undefined;
    const timer = setInterval(() => { void get(`/what-if/${id}`).then(setJob, (error) => setFailure(error.message)); }, 400);
    return () => clearInterval(timer);
  }, [id, over]);
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setFailure(null);
    const set = rows.map((row) => row.trim()).filter(Boolean);
    try {
      const { id: made } = await call("POST", "/what-if", { body: { set, since: since ? now.value - Number(since) : null } });
      setJob({ id: made, state: "waiting", progress: 0 });
      change({ set, since: since || null }, true);
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error));
    }
  };
  const put = (/** @type {number} */ index) => (/** @type {Event} */ event) => setRows(rows.map((row, place) => (place === index ? /** @type {HTMLInputElement} */ (event.currentTarget).value : row)));
  return h("section", { "data-testid": "page-whatif" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "What if"), h("span", { class: "cap" }, "the recorded work replayed under other settings")),
    h("datalist", { id: "whatif-keys" }, settable().map((key) => h("option", { key, value: `${key}=` }))),
    h("section", { class: "panel" }, h("form", { onSubmit: run, class: "nothing" },
      rows.map((row, index) => h("div", { class: "bar-of-filters", key: index },
        h("label", { class: "check" }, index ? "and" : "What if", h("input", { class: "field mono", size: 34, "data-testid": "whatif-set", list: "whatif-keys", "aria-label": "Setting and value", placeholder: example(), value: row, onInput: put(index) })))),
      h("div", { class: "bar-of-filters", style: { marginBottom: "0px" } },
        h("button", { type: "button", class: "btn", "data-testid": "whatif-add", onClick: () => setRows([...rows, ""]) }, "add a change"),
        h("label", { class: "check" }, "over", h("select", { class: "field", "data-testid": "whatif-since", value: since, onChange: (/** @type {Event} */ event) => setSince(/** @type {HTMLSelectElement} */ (event.currentTarget).value) }, RANGES.map(([value, text]) => h("option", { key: value, value }, text)))),
        h("button", { type: "submit", class: "btn primary", "data-testid": "whatif-run", disabled: job && !over }, "Replay"),
        job && h("span", { class: "cap", "data-testid": "whatif-state", "data-state": job.state, role: "status" }, job.state === "running" ? `running, ${percent(job.progress ?? 0)}` : job.state)))),
    h(Failure, { text: failure ?? (job?.state === "failed" ? job.problem ?? "The replay failed." : null) }),
    !job && h("p", { class: "cap" }, "The recorded work is run again in a simulated cloud, once with the old settings and once with the change, to compare cost, waits and utilization. Nothing is launched, and the settings do not change."),
    job?.state === "done" && h(Answer, { answer: job.answer }));
}

/** Settings that are often changed. */
const settable = () => ["cluster.max_hourly_cost", ...(status.value?.groups ?? []).flatMap((group) => [`${group.name}.max`, `${group.name}.min`, `${group.name}.spare`, `${group.name}.price`])].slice(0, 200);

/** @param {{answer: any}} props */
function Answer({ answer }) {
  const { recorded, model_as_recorded: model, model_as_changed: changed } = answer.what_if ?? answer;
  return h("div", { class: "stack", style: { marginTop: "20px" } }, h("section", { class: "panel" }, h("div", { class: "scrollx", tabIndex: 0, role: "region", "aria-label": "Comparison" }, h("table", null,
    h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "hidden" }, "measure")), h("th", { scope: "col", class: "num" }, "recorded"), h("th", { scope: "col", class: "num" }, "the model says"), h("th", { scope: "col", class: "num" }, "with the change"))),
    h("tbody", null, MEASURES.filter(([key]) => model?.[key] !== undefined).map(([key, label, text]) => {
      const shown = (/** @type {any} */ side) => (side?.[key] === undefined || side[key] === null ? "–" : text(side[key]));
      const base = model[key], after = changed?.[key], more = base && after !== undefined && after !== base ? ` (${after > base ? "+" : "−"}${Math.abs(Math.round((after / base - 1) * 100))} %)` : "";
      return h("tr", { key, "data-testid": "whatif-row", "data-measure": key, "data-recorded": recorded?.[key] ?? "", "data-model": base, "data-changed": after ?? "" },
        h("th", { scope: "row" }, label), h("td", { class: "num" }, shown(recorded)), h("td", { class: "num" }, shown(model)), h("td", { class: "num" }, shown(changed) + more));
    }))))),
  h("details", { "data-testid": "whatif-assumptions" }, h("summary", null, "How good the model is, and what it assumes"), h("ul", null, (answer.what_if?.assumptions ?? []).map((/** @type {string} */ text) => h("li", { key: text }, text)))));
}
