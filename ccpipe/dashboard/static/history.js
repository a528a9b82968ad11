// Longer history, from the Parquet files.

import { h } from "./dom.js";

const SPANS = [["10 min", 0], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800]];

/** Buttons that choose between live and a span; `onchoose(seconds)` gets 0 for live. */
export function spanButtons(about, onchoose) {
  const buttons = SPANS.map(([name, seconds]) => h("button", {
    type: "button", "aria-pressed": String(seconds === 0), disabled: Boolean(seconds) && !about.lake,
    title: seconds ? (about.lake ? "" : "Start with --parquet-dir for longer history") : "Live",
    onclick: (event) => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === event.currentTarget));
      onchoose(seconds);
    },
  }, seconds ? name : "live"));
  return h("div", { class: "spans", role: "group", "aria-label": "Time" }, buttons);
}

/** Fetch series; returns a map from "node\0metric\0part" to times and values. */
export async function fetchHistory(span) {
  const answer = await fetch("api/history", { method: "POST", body: JSON.stringify(span) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const { step, series, cut } = await answer.json();
  const count = Math.floor((span.stop - span.start) / step) + 1;
  const times = Array.from({ length: count }, (_, place) => span.start + place * step);
  const found = new Map();
  for (const [node, metric, part, places, values] of series) {
    const column = new Array(count).fill(null);
    places.forEach((place, at) => {
      if (place < count) column[place] = values[at];
    });
    found.set([node, metric, part].join("\0"), column);
  }
  return { times, step, found, cut };
}
