// Loads the page again when a script of it could not be loaded: the network changed, or the server is being restarted.
// A classic script, so that it runs whatever becomes of the modules.

addEventListener("error", (event) => {
  const from = event.target;
  if (from instanceof HTMLScriptElement || (from instanceof HTMLLinkElement && from.rel === "stylesheet")) setTimeout(() => location.reload(), 1500);
}, true);
