// Cost: the accounts of a span of time, by group, by job or by account; they add up to the bill.

import { h } from "../vendor/preact.js";
import { clock, percent, usd } from "../format.js";
import { Choice, Empty, Failure, Loading, Why } from "../parts.js";
import { at, change, now, seq, status, view } from "../store.js";
import { useDocument } from "../series.js";

const ACCOUNTS = /** @type {const} */ (["work", "booting", "idle", "spare", "draining", "ending"]);
const COLOURS = /** @type {Record<string, string>} */ ({ work: "var(--s-busy)", booting: "var(--s-booting)", idle: "var(--s-idle)", spare: "var(--s-cordoned)", draining: "var(--s-draining)", ending: "var(--s-ending)" });
const RANGES = /** @type {[string, string][]} */ ([["3600", "1 h"], ["86400", "24 h"], ["604800", "7 d"], ["all", "all"]]);

/** @param {number} amount */
const exact = (amount) => (amount === 0 ? "0" : Math.abs(amount) < 100 ? amount.toFixed(4) : amount.toFixed(2));

export function Cost() {
  const params = view.value.params, by = params.get("by") ?? "group", range = params.get("range") ?? "86400";
  const end = at.value ?? Math.floor(now.value / 60) * 60;
  const [answer, failure] = useDocument("/accounts", { by, since: range === "all" ? null : end - Number(range), until: at.value }, seq.value);
  const choices = h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Cost"),
    h("span", { class: "cap" }, "by"), h(Choice, { label: "Rows", testid: "cost-by", value: by, onPick: (value) => change({ by: value }), options: [["group", "group"], ["job", "job"], ["account", "account"]] }),
    h("span", { class: "cap" }, "since"), h(Choice, { label: "Since", value: range, onPick: (value) => change({ range: value }), options: RANGES }));
  if (!answer) return h("section", { "data-testid": "page-cost" }, choices, failure ? h(Failure, { text: failure }) : h(Loading, null));
  const total = answer.total.total, columns = by === "account" ? [] : ACCOUNTS;
  return h("section", { "data-testid": "page-cost" }, choices, h(Failure, { text: failure }),
    h("div", { class: "figures", style: { gridTemplateColumns: "1fr", marginTop: "0px", marginBottom: "20px" } }, h("div", { class: "figure", "data-testid": "cost-total", "data-value": total },
      h("div", { class: "k" }, `Spent since ${clock(Math.max(answer.since, status.value?.spent_since ?? 0))}`), h("div", { class: "v" }, usd(total)),
      total > 0 && h("div", { class: "bar", "aria-hidden": "true" }, ACCOUNTS.filter((name) => answer.total[name] > 0).map((name) => h("i", { key: name, style: { width: `${(answer.total[name] / total) * 100}%`, background: COLOURS[name] } }))),
      h("div", { class: "legend" }, ACCOUNTS.filter((name) => answer.total[name] > 0).map((name) => h("span", { key: name }, h("i", { class: "sw", style: { background: COLOURS[name] } }), `${name} ${percent(answer.total[name] / total)}`))))),
    h("section", { class: "panel" }, answer.rows.length > 0 && h("header", null, h("h2", null, by === "account" ? "Accounts" : `Accounts by ${by}`), h("span", { class: "cap" }, "in dollars")), answer.rows.length ? h("div", { class: "scrollx", tabIndex: 0, role: "region", "aria-label": "Accounts" }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, by), columns.map((name) => h("th", { scope: "col", class: "num", key: name }, name)), h("th", { scope: "col", class: "num" }, "total"))),
      h("tbody", null, answer.rows.map((row) => h("tr", { key: row.name, "data-testid": "cost-row", "data-name": row.name },
        h("th", { scope: "row" }, by === "account" || row.name.startsWith("(") ? row.name : h(Why, { name: row.name, title: row.name })),
        columns.map((name) => h("td", { class: "num", key: name, "data-testid": "cost-cell", "data-account": name, "data-value": row[name] }, exact(row[name]))),
        h("td", { class: "num", "data-testid": "cost-cell", "data-account": "total", "data-value": row.total }, exact(row.total))))),
      h("tfoot", null, h("tr", null, h("th", { scope: "row" }, "sum"), columns.map((name) => h("td", { class: "num", key: name }, exact(answer.total[name]))), h("td", { class: "num" }, exact(total))))))
      : h(Empty, null, "Nothing was spent: no machine ran in this time.")),
    h("p", { class: "cap", "data-testid": "cost-check", "data-difference": answer.difference }, answer.difference === 0 ? "The rows add up to the bill exactly." : `The rows differ from the bill by ${usd(answer.difference)}: please report it.`));
}
