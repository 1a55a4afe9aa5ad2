// Decisions: what happened, the newest first; a line opens its pass.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/preact-hooks.js";
import { get } from "../api.js";
import { clock, plural, usd, withoutName } from "../format.js";
import { Code, Empty, eventKey, EventRow, Failure, Why } from "../parts.js";
import { addressOf, at, change, connection, events, go, view } from "../store.js";

const PAGE = 100;
const KINDS = ["launch", "slice", "phase", "waiting", "refused", "trouble", "frozen", "order", "mistake", "settings"];
const CODES = ["APART", "AT_MAX", "BACKOFF", "BOOTING", "BUDGET", "BUSY", "CONSOLIDATE", "DEARER", "DEMAND", "DRAINING", "DRAIN_ABORTED", "ENDING", "FROZEN", "GANG_FORMING", "GANG_HELD", "GANG_RELEASED", "GANG_SHAPE", "GROUP_REMOVED", "IDLE", "INVALID_DEMAND", "LAUNCHING", "LEAKED", "LOST", "LOWER_RANK", "LOW_UTILIZATION", "MANUAL", "MARKED", "MAX_NODES", "MIN", "NOT_IDLE_LONG_ENOUGH", "NOT_TAKEN", "NOT_TOLERATED", "NOT_WORTH_IT", "NO_LABEL_MATCH", "NO_RULE", "NO_SHAPE_FITS", "OVER_MAX", "PLACED", "PREEMPTED", "PROBE", "PROTECTED", "QUOTA", "RATE_LIMITED", "REPLACE_FAILED", "REPLACE_LOST", "REQUEST", "REQUESTED_CAPACITY", "SPARE", "SPREAD", "STOCKOUT", "SURPLUS", "TOGETHER", "TOO_SMALL", "UNHEALTHY", "UNKNOWN_INPUT", "WORSE_SCORE", "YOUNG"];

export function Decisions() {
  const params = view.value.params;
  const filter = { kind: params.get("kind") ?? "", code: params.get("code") ?? "", alarm: params.get("alarm") ?? "", subject: params.get("subject") ?? "", text: params.get("q") ?? "" };
  const [older, setOlder] = useState(/** @type {{rows: any[], previous: number | null}} */ ({ rows: [], previous: null }));
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  const [ready, setReady] = useState(false);
  const moment = at.value, key = JSON.stringify([filter.kind, filter.code, filter.alarm, filter.subject, moment]);
  const asked = { kind: filter.kind, code: filter.code, alarm: filter.alarm, subject: filter.subject, until: moment, limit: PAGE };
  useEffect(() => {
    let over = false;
    setReady(false);
    void get("/events", asked).then((answer) => { if (!over) { setOlder({ rows: answer.events, previous: answer.previous }); setFailure(null); setReady(true); } },
      (error) => { if (!over) { setFailure(error.message); setReady(true); } });
    return () => { over = true; };
  }, [key, failure !== null && connection.value.state === "live"]); // asked again once the server answers
  const more = async () => {
    const answer = await get("/events", { ...asked, before: older.previous });
    setOlder({ rows: [...answer.events, ...older.rows], previous: answer.previous });
  };
  const last = older.rows.at(-1)?.seq ?? 0;
  const fits = (/** @type {import("../types.js").WindlassEvent} */ one) => (!filter.kind || one.kind === filter.kind) && (!filter.code || one.code === filter.code) && (!filter.alarm || one.alarm) && (!filter.subject || one.subjects.includes(filter.subject));
  const fresh = moment === null && ready ? events.value.filter((one) => (one.seq ?? 0) > last && fits(one)) : [];
  const opened = params.get("pass") ?? "";
  const words = filter.text.toLowerCase();
  const rows = [...older.rows, ...fresh].filter((one) => !words || one.text.toLowerCase().includes(words));
  const pick = (/** @type {string} */ name) => (/** @type {Event} */ event) => change({ [name]: /** @type {HTMLInputElement} */ (event.currentTarget).value }, true);
  return h("section", { "data-testid": "page-decisions" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Decisions"),
      h("input", { class: "field", type: "search", placeholder: "text…", "aria-label": "Text", "data-testid": "filter-text", value: filter.text, onInput: pick("q") }),
      h("select", { class: "field", "aria-label": "Kind", "data-testid": "filter-kind", value: filter.kind, onChange: pick("kind") }, h("option", { value: "" }, "every kind"), KINDS.map((name) => h("option", { key: name, value: name }, name))),
      h("select", { class: "field", "aria-label": "Reason", "data-testid": "filter-code", value: filter.code, onChange: pick("code") }, h("option", { value: "" }, "every reason"), CODES.map((name) => h("option", { key: name, value: name }, name))),
      h("label", { class: "check" }, h("input", { type: "checkbox", "data-testid": "filter-alarm", checked: filter.alarm === "true", onChange: (/** @type {Event} */ event) => change({ alarm: /** @type {HTMLInputElement} */ (event.currentTarget).checked ? "true" : null }, true) }), "alarms only"),
      filter.subject && h("button", { type: "button", class: "btn", onClick: () => change({ subject: null }) }, `only ${filter.subject} ×`)),
    h(Failure, { text: failure }),
    h("section", { class: "panel", "data-testid": "events-list" },
      rows.length ? rows.slice().reverse().map((one, index, all) => {
        const open = String(one.seq) === opened;
        return [h(EventRow, { one, wide: true, open, onOpen: () => change({ pass: open ? null : String(one.seq) }, true), key: eventKey(one) }),
          open && all[index + 1]?.seq !== one.seq && h(Pass, { seq: one.seq, at: one.at, key: `pass ${one.seq}` })];
      }) : ready && h(Empty, null, words || filter.kind || filter.code || filter.alarm || filter.subject ? "No event matches the filters." : "No events yet.")),
    older.previous !== null && h("p", null, h("button", { type: "button", class: "btn", "data-testid": "load-older", onClick: more }, "older")));
}

/**
 * One pass: what was known, what was done, and the verdict on every group.
 * @param {{seq: number, at: number}} props
 */
function Pass({ seq, at: moment }) {
  const [known, setKnown] = useState(/** @type {{status: import("../types.js").Status, events: import("../types.js").WindlassEvent[]} | null} */ (null));
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  useEffect(() => {
    let over = false;
    Promise.all([get("/status", { at: moment }), get("/events", { before: seq + 1, limit: 1 })]).then(
      ([status, listed]) => { if (!over) setKnown({ status, events: listed.events }); }, (error) => { if (!over) setFailure(error.message); });
    return () => { over = true; };
  }, [seq, moment]);
  if (failure) return h("div", { class: "opened" }, h(Failure, { text: failure }));
  if (!known) return h("div", { class: "opened", "aria-busy": "true" }, "…");
  const { status, events: done } = known, cost = status.hourly_cost, { summary } = status;
  const subjects = [...new Set(done.flatMap((one) => one.subjects))].filter((name) => name !== "*");
  return h("section", { class: "opened", "data-testid": "pass", "data-seq": seq, "aria-label": `Pass of ${clock(moment)}` },
    h("h3", null, "What was known"),
    h("p", null, `${status.headline} `, h("span", { class: "dim" }, `${plural(summary.slices, "machine")}: ${summary.busy} busy, ${summary.idle} idle, ${summary.coming} coming, ${summary.leaving} leaving. ${plural(summary.waiting_tasks, "task")} of ${plural(summary.waiting_demands, "job")} waited.`)),
    h("h3", null, "What was done"),
    h("ul", null, done.map((one, index) => h("li", { key: index, class: one.alarm ? "al" : "" }, one.text, " ", h(Code, { code: one.code })))),
    h("h3", null, "The verdict on every group"),
    h("div", { class: "verdicts" }, status.groups.map((group) => [
      h(Why, { name: group.name, key: group.name }), h("span", { class: "num", key: `${group.name} count` }, `${group.ready + group.coming} of ${group.max ?? 0}`),
      h(Code, { key: `${group.name} code`, code: group.next?.code ?? null, kind: group.next?.code ? undefined : "fine", label: group.next?.code ?? "can be had" }),
      h("span", { class: "dim", key: `${group.name} why` }, withoutName(group.next?.why ?? "", group.name))])),
    h("h3", null, "What it cost"),
    h("p", null, `${usd(cost.now)} an hour${cost.planned === cost.now ? "" : `, ${usd(cost.planned)} with what was planned`}${summary.ceiling === null ? "" : `, of at most ${usd(summary.ceiling)}`}.`),
    h("div", { class: "actions" }, subjects.slice(0, 4).map((name) => h(Why, { key: name, name, class: "btn plain" }, `Why ${name}`)),
      h("button", { type: "button", class: "btn", onClick: () => go(addressOf("/", { at: String(moment) })) }, "Overview at this time")));
}
