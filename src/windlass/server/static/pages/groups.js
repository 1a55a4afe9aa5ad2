// Groups: what can be bought, how well its launches went, and the switch that holds a group still.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/preact-hooks.js";
import { get } from "../api.js";
import { plural, span, timeOfDay, usd } from "../format.js";
import { Code, Command, Empty, GroupRowView, slicesByGroup } from "../parts.js";
import { at, events, seq, status } from "../store.js";

export function Groups() {
  const known = status.value;
  const [details, setDetails] = useState(/** @type {Record<string, any>} */ ({}));
  const names = known?.groups.map((group) => group.name).join("\n") ?? "", moment = at.value, version = Math.floor(seq.value / 50);
  useEffect(() => {
    let over = false;
    void (async () => {
      for (const name of names.split("\n").filter(Boolean)) {
        const answer = await get("/why", { name, at: moment }).catch(() => null);
        if (over) return;
        if (answer?.group) setDetails((before) => ({ ...before, [name]: answer.group }));
      }
    })();
    return () => { over = true; };
  }, [names, moment, version]);
  if (!known) return null;
  const mine = slicesByGroup();
  return h("section", { "data-testid": "page-groups" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Groups"), h("span", { class: "cap" }, `${plural(known.groups.length, "kind")} of machines that can be bought`)),
    known.groups.length ? h("div", { class: "cards" }, known.groups.map((group) => h("section", { class: "panel", key: group.name },
      h(GroupRowView, { group, slices: mine.get(group.name) ?? [] }, h(Details, { group, more: details[group.name] }))))) : h(Empty, null, "No groups are configured: add one under groups: in the configuration file."));
}

/** @param {{group: import("../types.js").GroupRow, more: any}} props */
function Details({ group, more }) {
  const last = events.value.findLast((one) => one.subjects.includes(group.name) || one.subjects.some((name) => name.startsWith(`${group.name}-`)));
  const bounds = [group.min ? `at least ${group.min}` : "", group.spare ? `${group.spare} spare` : "", more?.idle_timeout ? `released after ${span(more.idle_timeout)} idle` : ""].filter(Boolean).join(", ");
  return h("dl", { class: "more" },
    h("dt", null, "Price"), h("dd", null, group.price === null ? "not known" : `${usd(group.price)}/h each${group.preemptible ? ", spot" : ""}`),
    bounds ? [h("dt", null, "Limits"), h("dd", null, bounds)] : null,
    h("dt", null, "Health"), h("dd", { "data-testid": "group-health", "data-value": more?.health ?? "" }, more ? `${more.health} of 1${group.boot_seconds === null ? "" : ` · boots in about ${span(group.boot_seconds)}`}` : "…"),
    h("dt", null, "Launches"), h("dd", { "data-testid": "group-launches" }, more?.launches.length ? more.launches.slice(-3).reverse().map((/** @type {any} */ one) => h("div", { key: one.at }, `${timeOfDay(one.at)} ${plural(one.count, "machine")} `, h(Code, { code: one.code }))) : "none yet"),
    h("dt", null, "Refusals"), h("dd", { "data-testid": "group-refusals" }, more?.refusals.length ? more.refusals.slice(-3).reverse().map((/** @type {any} */ one) => h("div", { key: one.at }, `${timeOfDay(one.at)} ${one.why} `, h(Code, { code: one.code }))) : "none"),
    last ? [h("dt", null, "Last"), h("dd", null, `${timeOfDay(last.at)} ${last.text}`)] : null,
    h("dt", null), h("dd", null, group.frozen_by ? h(Command, { what: "resume", subject: group.name }) : h(Command, { what: "freeze", subject: group.name })));
}
