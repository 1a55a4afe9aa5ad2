// Calls to the HTTP API. An answer with an error status is thrown as a Problem with its sentence.

/** What is shown instead of the browser's own words for a connection that failed. */
export const UNREACHABLE = "The server does not answer. The page tries again every few seconds.";

export class Problem extends Error {
  /** @param {number} status @param {{title?: string, detail?: string, type?: string, did_you_mean?: string[]}} body */
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The server answered ${status}.`);
    this.status = status;
    this.name = (body.type ?? "").replace("urn:windlass:problem:", "") || "problem";
    this.near = body.did_you_mean ?? [];
  }
}

/** @param {string} path @param {Record<string, string | number | boolean | null | undefined>} [params] */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

/**
 * @param {string} method @param {string} path @param {{params?: Record<string, any>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} [more]
 * @returns {Promise<any>}
 */
export async function call(method, path, more = {}) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: "application/json", ...more.headers });
  if (more.body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(address(path, more.params), {
    method, headers, credentials: "same-origin", cache: "no-store", signal: more.signal ?? null,
    body: more.body === undefined ? null : JSON.stringify(more.body),
  }).catch((error) => { throw more.signal?.aborted ? error : new Error(UNREACHABLE); });
  if (answer.status === 204) return null;
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, body);
  return body;
}

/** @typedef {import("./types.js").Documents} Documents */

/**
 * @template {keyof Documents} P
 * @param {P} path @param {Record<string, any>} [params] @param {AbortSignal} [signal]
 * @returns {Promise<Documents[P]>}
 */
export const get = (path, params, signal) => call("GET", path, { params, signal });
