// Runs before the first paint, so that a dark page does not flash white.
"use strict";
(() => {
  const asked = new URLSearchParams(location.search).get("theme");
  let kept = null;
  try { kept = localStorage.getItem("windlass-theme"); } catch { /* storage may be forbidden */ }
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = [asked, kept].find((one) => one === "dark" || one === "light") ?? system;
  document.documentElement.dataset.theme = theme;
})();
