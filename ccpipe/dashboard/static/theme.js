// Before the first paint, so that nothing flashes: the theme that was chosen, else the system's.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // storage is disabled
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen ?? (dark ? "dark" : "light");
}
