// The alarms of a page: frozen groups, sources that do not answer, lost machines.

import { h } from "./vendor/preact.js";
import { span } from "./format.js";
import { Command, Why } from "./parts.js";
import { at, now, status } from "./store.js";

/** @type {{of: import("./types.js").SliceRow[], found: import("./types.js").SliceRow[]}} */
let searched = { of: [], found: [] };

/** Machines that were lost; searched again only if a machine changed. @param {import("./types.js").SliceRow[]} slices */
function lostOf(slices) {
  if (slices !== searched.of) searched = { of: slices, found: slices.filter((one) => one.code === "LOST" || one.code === "PREEMPTED") };
  return searched.found;
}

/**
 * The list of alarms.
 * @param {{above?: boolean}} props `above`: over the title of a page
 */
export function Alarms({ above }) {
  const known = status.value;
  if (!known) return null;
  /** @type {{subject: string, kind: string, look: string, text: any, action: any}[]} */
  const rows = [];
  for (const [subject, by] of Object.entries(known.frozen)) {
    const name = subject === "*" ? "Everything" : subject;
    rows.push({ subject, kind: "frozen", look: "limit", text: [h("b", null, `${name} is frozen`), ` by ${by}: nothing is launched or released`], action: h(Command, { what: "resume", subject }) });
  }
  for (const [subject, text] of Object.entries(known.troubles)) {
    const source = subject === "workload" || subject.startsWith("provider ");
    const slice = subject.startsWith("slice ") ? subject.slice(6) : null;
    rows.push({ subject, kind: source ? "unknown" : "trouble", look: source ? "unknown" : "alarm", text: [h("b", null, subject), `: ${text}${source ? "; nothing is released while it is unknown" : ""}`], action: slice && h(Why, { name: slice, class: "btn plain" }, "Why") });
  }
  const lost = lostOf(known.slices);
  for (const one of lost.slice(0, 3)) {
    rows.push({ subject: one.id, kind: "lost", look: "alarm", text: [h("b", null, `${one.id} was ${one.code === "LOST" ? "lost" : "preempted"}`), ` ${span((at.value ?? now.value) - one.since)} ago: ${one.why}`], action: h(Why, { name: one.id, class: "btn plain" }, "Why") });
  }
  if (lost.length > 3) rows.push({ subject: "*", kind: "lost", look: "alarm", text: `and ${lost.length - 3} more machines`, action: null });
  return h("div", { class: `notes${above && rows.length ? " above" : ""}`, "data-testid": "alarms", role: "status", "aria-label": "Alarms" }, rows.map((row) => h("div", { class: `note ${row.look}`, key: `${row.kind}${row.subject}`, "data-testid": "alarm", "data-subject": row.subject, "data-kind": row.kind }, h("span", null, row.text), row.action)));
}
