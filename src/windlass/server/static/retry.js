// Reloads the page if one of its scripts could not be loaded: the network changed, or the server restarts.
// A classic script, so that it runs even if the modules fail.

addEventListener("error", (event) => {
  const from = event.target;
  if (from instanceof HTMLScriptElement || (from instanceof HTMLLinkElement && from.rel === "stylesheet")) setTimeout(() => location.reload(), 1500);
}, true);
