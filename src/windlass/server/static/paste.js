// An unblock as the piece of the configuration file to paste.

/** The sections of a configuration file; the needs of a job are changed where the job is submitted. */
const IN_FILE = new Set(["cluster", "families", "groups"]);
/** Keys that are no settings: an operator resumes a group, and a provider has machines again. */
const NOT_IN_FILE = new Set(["frozen", "availability"]);

/** @typedef {{[key: string]: Tree | string}} Tree */

/** @param {unknown} value @returns {string} */
const scalar = (value) => (typeof value === "string" && !/^[A-Za-z0-9_.-]+$/.test(value) ? JSON.stringify(value) : typeof value === "object" ? JSON.stringify(value) : String(value));

/** @param {string} key */
const keyed = (key) => (/^[A-Za-z0-9_.-]+$/.test(key) ? key : JSON.stringify(key));

/** @param {Tree} tree @param {string} indent @returns {string[]} */
const lines = (tree, indent) => Object.entries(tree).flatMap(([key, value]) => (typeof value === "string" ? [`${indent}${keyed(key)}: ${value}`] : [`${indent}${keyed(key)}:`, ...lines(value, `${indent}  `)]));

/**
 * YAML to paste; empty: the change is not one of the configuration file.
 * @param {{path: string[], value: unknown}[]} changes
 */
export function paste(changes) {
  /** @type {Tree} */
  const tree = {};
  for (const { path, value } of changes) {
    if (!IN_FILE.has(path[0] ?? "") || NOT_IN_FILE.has(path[2] ?? "")) continue;
    let place = tree;
    for (const key of path.slice(0, -1)) {
      const next = place[key];
      place = typeof next === "object" ? next : (place[key] = {});
    }
    place[path.at(-1) ?? ""] = scalar(value);
  }
  return lines(tree, "").join("\n");
}
