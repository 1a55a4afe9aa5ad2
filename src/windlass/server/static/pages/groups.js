// Groups: limits, health, launches and refusals of each group; freeze and resume.

import { h } from "../vendor/preact.js";
import { useEffect, useMemo, useState } from "../vendor/preact-hooks.js";
import { get } from "../api.js";
import { groupOf, lasting, plural, span, timeOfDay, usd } from "../format.js";
import { Code, Command, Empty, FamilyRowView, groupEntries, GroupRowView, slicesByGroup } from "../parts.js";
import { at, events, now, seq, status } from "../store.js";
import { useDocument } from "../series.js";

export function Groups() {
  const known = status.value;
  const [details, setDetails] = useState(/** @type {Record<string, import("../types.js").GroupWhy>} */ ({}));
  const names = known?.groups.filter((group) => !group.family).map((group) => group.name).join("\n") ?? "", moment = at.value, version = Math.floor(seq.value / 50);
  useEffect(() => {
    let over = false;
    void (async () => {
      for (const name of names.split("\n").filter(Boolean)) {
        const answer = await get("/why", { name, at: moment }).catch(() => null);
        if (over) return;
        if (answer?.group) { const { group } = answer; setDetails((before) => ({ ...before, [name]: group })); };
      }
    })();
    return () => { over = true; };
  }, [names, moment, version]);
  const day = useDay(moment);
  if (!known) return null;
  const mine = slicesByGroup();
  return h("section", { "data-testid": "page-groups" },
    h("div", { class: "bar-of-filters" }, h("h1", { class: "title" }, "Groups"), h("span", { class: "cap" }, `${plural(known.groups.length, "kind")} of machines that can be bought${known.families.length ? `, ${known.families.length} ${known.families.length === 1 ? "family" : "families"}` : ""}`)),
    known.groups.length ? h("div", { class: "cards" }, groupEntries().map(({ family, groups }) => (family
      ? h("section", { class: "panel", key: `family ${family.name}` }, h(FamilyRowView, { family, groups, slices: mine }, h(FamilyDetails, { family, groups, day })))
      : groups.map((group) => h("section", { class: "panel", key: group.name },
        h(GroupRowView, { group, slices: mine.get(group.name) ?? [] }, h(Details, { group, more: details[group.name], day: day?.get(group.name) }))))))) : h(Empty, null, "No groups are configured: add one under groups: in the configuration file."));
}

const DAY = 86400;

/** @typedef {{since: number, launches: number[], refusals: number[]}} Day */

/** When machines of each group were launched and refused in the last 24 hours. @param {number | null} moment @returns {Map<string, Day> | null} */
function useDay(moment) {
  const until = moment ?? Math.floor(now.value / 60) * 60;
  const asked = { since: until - DAY, until: moment, limit: 5000 };
  const [launched] = useDocument("/events", { ...asked, kind: "launch" }, seq.value, 10000), [refused] = useDocument("/events", { ...asked, kind: "refused" }, seq.value, 10000);
  const names = status.value?.groups.map((group) => group.name).join("\n") ?? "";
  return useMemo(() => {
    if (!launched || !refused) return null;
    const groups = names.split("\n");
    const found = new Map(groups.map((name) => /** @type {[string, Day]} */ ([name, { since: until - DAY, launches: [], refusals: [] }])));
    for (const [key, listed] of /** @type {const} */ ([["launches", launched], ["refusals", refused]])) {
      for (const one of listed.events) {
        const group = one.subjects.map((name) => groupOf(name, groups)).find(Boolean);
        if (group) found.get(group)?.[key].push(one.at);
      }
    }
    return found;
  }, [launched, refused, names]);
}

/** @param {{day: Day}} props */
function Strip({ day }) {
  const label = `${plural(day.launches.length, "launch").replace("launchs", "launches")} and ${plural(day.refusals.length, "refusal")} in 24 hours`;
  const mark = (/** @type {string} */ colour) => (/** @type {number} */ time, /** @type {number} */ index) => h("rect", { key: `${colour}${index}`, x: `${(Math.max(0, time - day.since) / DAY) * 99.4}%`, y: 2, width: "0.6%", height: 10, fill: colour });
  return h("svg", { class: "strip", role: "img", "aria-label": label }, h("title", null, label), day.launches.map(mark("var(--s-busy)")), day.refusals.map(mark("var(--s-failed)")));
}

/** @param {{family: import("../parts.js").FamilyRow, groups: import("../types.js").GroupRow[], day: Map<string, Day> | null}} props */
function FamilyDetails({ family, groups, day }) {
  const days = groups.map((group) => day?.get(group.name)).filter((one) => one !== undefined).map((one) => /** @type {Day} */ (one));
  const whole = days.length ? { since: days[0].since, launches: days.flatMap((one) => one.launches), refusals: days.flatMap((one) => one.refusals) } : null;
  const bounds = [`at most ${family.max}`, family.min ? `at least ${family.min}` : "", family.spare ? `${family.spare} spare` : ""].filter(Boolean).join(", ");
  return h("dl", { class: "more" },
    h("dt", null, "Limits"), h("dd", null, `${bounds}, over all of its offers together`),
    whole ? [h("dt", null, "24 hours"), h("dd", null, h(Strip, { day: whole }))] : null,
    h("dt", null), h("dd", null, family.frozen_by ? h(Command, { what: "resume", subject: family.name }) : h(Command, { what: "freeze", subject: family.name })));
}

/** @param {{group: import("../types.js").GroupRow, more: import("../types.js").GroupWhy | undefined, day: Day | undefined}} props */
function Details({ group, more, day }) {
  const groups = status.value?.groups.map((one) => one.name) ?? [];
  const last = events.value.findLast((one) => one.subjects.some((name) => groupOf(name, groups) === group.name));
  const bounds = [group.min ? `at least ${group.min}` : "", group.spare ? `${group.spare} spare` : "", more?.idle_timeout ? `released after ${lasting(more.idle_timeout)} idle` : ""].filter(Boolean).join(", ");
  return h("dl", { class: "more" },
    h("dt", null, "Price"), h("dd", null, group.price === null ? "not known" : `${usd(group.price)}/h each${group.preemptible ? ", spot" : ""}`),
    bounds ? [h("dt", null, "Limits"), h("dd", null, bounds)] : null,
    h("dt", null, "Health"), h("dd", { "data-testid": "group-health", "data-value": more?.health ?? "" }, more ? `score ${more.health.toFixed(1)} of 1${group.boot_seconds === null ? "" : ` · boots in about ${span(group.boot_seconds)}`}` : "…"),
    day ? [h("dt", null, "24 hours"), h("dd", null, h(Strip, { day }))] : null,
    h("dt", null, "Launches"), h("dd", { "data-testid": "group-launches", "data-value": day?.launches.length ?? "" }, more?.launches.length ? more.launches.slice(-3).reverse().map((one) => h("div", { key: one.at }, `${timeOfDay(one.at)} ${plural(one.count, "machine")} `, h(Code, { code: one.code }))) : "none yet"),
    h("dt", null, "Refusals"), h("dd", { "data-testid": "group-refusals", "data-value": day?.refusals.length ?? "" }, more?.refusals.length ? more.refusals.slice(-3).reverse().map((one) => h("div", { key: one.at }, `${timeOfDay(one.at)} ${one.why} `, h(Code, { code: one.code }))) : "none"),
    last ? [h("dt", null, "Last"), h("dd", null, `${timeOfDay(last.at)} ${last.text}`)] : null,
    h("dt", null), h("dd", null, group.frozen_by ? h(Command, { what: "resume", subject: group.name }) : h(Command, { what: "freeze", subject: group.name })));
}
