// Stored metrics: the time that a page shows, kept in its address, and queries for it.

import { fill, h, say, scrolling } from "./dom.js";
import { read } from "./link.js";
import { metricTitle } from "./metrics.js";
import { dateTime, timeZone } from "./units.js";

export const SPANS = [["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800]];

/**
 * Buttons and fields that choose a time, and the text that names it.
 *
 * A time is null for the page's own, `{ last }` in seconds, or `{ from, to }` in seconds since the
 * epoch. `own` names the page's own time. `onchoose(time)` is called after each change.
 */
export class TimeRange {
  constructor({ about, params, own, spans = SPANS, onchoose }) {
    Object.assign(this, { onchoose });
    this.time = about.history ? fromParams(params) : null;
    const reason = about.history ? "" : "Start with --history for longer history";
    this.buttons = [[own, 0], ...spans].map(([name, last]) => h("button", {
      type: "button", disabled: Boolean(last) && !about.history, title: last ? reason : "",
      onclick: () => this.choose(last ? { last } : null),
    }, name));
    this.seconds = [0, ...spans.map(([, last]) => last)];
    const field = (label) => h("input", { type: "datetime-local", step: "1", "aria-label": label,
      title: reason || label, disabled: !about.history, onchange: () => this.typed() });
    this.from = field("From");
    this.to = field("To");
    this.shown = h("p", { class: "shown dim small" });
    this.element = h("div", { class: "range" },
      h("div", { class: "spans", role: "group", "aria-label": "Time" }, this.buttons),
      this.from, h("span", { class: "dim" }, "–"), this.to);
    this.mark();
  }

  /** Show a time, in the address as well; null is the page's own. */
  choose(time) {
    this.time = time;
    this.mark();
    const [path] = location.hash.split("?");
    const query = time ? `?${new URLSearchParams(time)}` : "";
    history.replaceState(null, "", (path || "#/") + query);
    this.onchoose(time);
  }

  /** What a chart reports: a selected time, or nothing for the page's own. */
  zoom(from, to) {
    if (from === undefined) this.choose(null);
    else this.choose({ from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 1) });
  }

  typed() {
    const [from, to] = [this.from, this.to].map((field) => new Date(field.value).getTime() / 1000);
    if (from < to) this.choose({ from, to });
  }

  mark() {
    const last = this.time ? this.time.last ?? null : 0;
    this.buttons.forEach((button, place) =>
      button.setAttribute("aria-pressed", String(this.seconds[place] === last)));
  }

  /** Say which time is shown. */
  show(from, to) {
    say(this.shown, `${dateTime(from)} – ${dateTime(to)} (${timeZone(from)})`);
    for (const [field, seconds] of [[this.from, from], [this.to, to]]) {
      if (document.activeElement !== field) field.value = dateTime(seconds).replace(" ", "T");
    }
  }

  /** Start and end of the chosen time, in seconds since the epoch. */
  bounds(now) {
    const { last, from, to } = this.time;
    return last ? [now - last, now] : [from, to];
  }
}

function fromParams(params) {
  const [last, from, to] = ["last", "from", "to"].map((name) => Number(params.get(name)));
  if (last > 0) return { last };
  return from >= 0 && from < to ? { from, to } : null;
}

/** Post a query; returns the answer's header with its times, and a function for its columns. */
export async function fetchHistory(query) {
  const answer = await fetch("api/history", { method: "POST", body: JSON.stringify(query) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const { header, numbers } = read(await answer.arrayBuffer());
  const { start, step, count } = header;
  const times = Array.from({ length: count ?? 0 }, (_, place) => start + place * step);
  const column = (place) => Array.from(numbers.subarray(place * count, (place + 1) * count),
    (number) => (Number.isNaN(number) ? null : number));
  return { ...header, times, column };
}

/**
 * Times and columns cut after the last row that has a value; without this row too if `isGrowing`:
 * the store does not have the values of all nodes yet, which would look like a drop.
 */
export function trimmed(times, columns, isGrowing = false) {
  let rows = times.length;
  while (rows && columns.every((column) => column[rows - 1] === null)) rows -= 1;
  if (isGrowing && rows) rows -= 1;
  return { times: times.slice(0, rows), columns: columns.map((column) => column.slice(0, rows)) };
}

/** A table of statistics: of all nodes, and of each of them on demand. */
export class StatisticsTable {
  constructor(format) {
    this.format = format;
    this.rows = [];
    this.button = h("button", { type: "button", "aria-pressed": "false",
      onclick: () => this.toggle() }, "each node");
    this.body = h("tbody", {});
    this.note = h("span", { class: "dim small" });
    const head = ["metric", "node", "minimum", "mean", "maximum"].map((name, place) =>
      h("th", { scope: "col", class: place > 1 ? "number" : "" }, name));
    this.element = h("section", { class: "card", hidden: true },
      h("div", { class: "head" }, h("h2", {}, "Statistics"), this.note, h("span", { class: "gap" }), this.button),
      scrolling(h("table", { class: "statistics" }, h("thead", {}, h("tr", {}, head)), this.body)));
  }

  /** Rows are `{ metric, unit, all: [minimum, mean, maximum], nodes: [[name, …], …] }`. */
  set(rows, note) {
    this.rows = rows;
    this.element.hidden = !rows.length;
    say(this.note, note);
    this.draw();
  }

  toggle() {
    const pressed = this.button.getAttribute("aria-pressed") !== "true";
    this.button.setAttribute("aria-pressed", String(pressed));
    this.draw();
  }

  draw() {
    const each = this.button.getAttribute("aria-pressed") === "true";
    const line = (metric, title, node, values, unit) => h("tr", { "data-metric": metric },
      title ? h("th", { scope: "row", title: metric }, title) : h("td", {}), h("td", {}, node),
      values.map((value) => h("td", { class: "number" }, this.format(value, unit))));
    fill(this.body, this.rows.flatMap(({ metric, unit, all, nodes }) => [
      line(metric, metricTitle(metric), nodes.length === 1 ? nodes[0][0] : "all", all, unit),
      ...(each && nodes.length > 1 ? nodes.map(([node, ...values]) => line(metric, "", node, values, unit)) : []),
    ]));
  }
}
