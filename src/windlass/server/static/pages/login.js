// Login: a token becomes a session.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/preact-hooks.js";
import { call, get } from "../api.js";
import { go, me, view } from "../store.js";

/** The path to open after the login; only paths of this server. @param {string | null} to */
const safe = (to) => (to && /^\/(?![/\\])/.test(to) && !to.startsWith("/login") ? to : "/");

export function Login() {
  const [token, setToken] = useState("");
  const [failure, setFailure] = useState(/** @type {string | null} */ (null));
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await call("POST", "/session", { body: { token: token.trim() } });
      me.value = await get("/whoami");
      go(safe(view.value.params.get("to")), true);
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error));
    }
  };
  return h("main", { class: "panel login", "data-testid": "page-login" },
    h("h1", { class: "title" }, "Windlass"),
    h("p", { class: "dim" }, "Paste a token. Tokens are in the server's token file; windlass token create makes new ones. On the controller's machine, windlass open logs in without a token."),
    h("form", { onSubmit: enter },
      h("label", { class: "cap", for: "token" }, "Token"),
      h("input", { id: "token", class: "field", type: "password", autoComplete: "off", "data-testid": "token-input", value: token, onInput: (/** @type {Event} */ event) => setToken(/** @type {HTMLInputElement} */ (event.currentTarget).value) }),
      failure && h("div", { class: "error", role: "alert", "data-testid": "token-error" }, failure),
      h("button", { type: "submit", class: "btn primary", "data-testid": "token-submit" }, "Enter")));
}
