// Lines over time, drawn by uPlot.

import { colour, h, say } from "./dom.js";
import { format } from "./units.js";

const HEIGHT = 133;
const LINES = 8;
const MAX_LEGEND = 8;

export const lineColour = (place) => colour(`line${place % LINES}`);

export class Chart {
  /**
   * A chart of one metric. `labels` name its lines; "" is the node as a whole. With `band` the
   * lines are minimum, mean and maximum. What stands at the top is the lines' mean, or with
   * `summed` their sum. `note` stands beside the title. `onzoom(from, to)` gets the time that was selected
   * by dragging, in seconds, and nothing after a double click.
   */
  constructor({ title, unit = "", meaning = "", labels, band = false, summed = false, sync = "time",
    height = HEIGHT, note = "", onzoom = null }) {
    Object.assign(this, { unit, labels, band, summed, sync, height, onzoom });
    this.focused = 0;
    this.now = h("output", { class: "now" }, "–");
    this.body = h("div", { class: "plot" });
    this.body.style.height = `${height}px`;
    this.legend = h("div", { class: "lines", hidden: labels.length < 2 || band });
    this.element = h("figure", { class: "chart", title: meaning || title },
      h("figcaption", {}, h("span", { class: "name" }, title),
        note ? h("span", { class: "dim small" }, note) : null, this.now), this.body, this.legend);
    this.data = [[], ...labels.map(() => [])];
    this.visible = false;
    this.observer = new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      if (this.visible) this.draw();
    });
    this.observer.observe(this.element);
    this.resizer = new ResizeObserver(() => {
      this.plot?.setSize({ width: this.body.clientWidth, height });
    });
    this.resizer.observe(this.body);
  }

  close() {
    this.observer.disconnect();
    this.resizer.disconnect();
    this.plot?.destroy();
  }

  /** Draw anew with the colours of the theme. */
  recolour() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  /** Show columns: times, then one for each label; `whole` is what they add up to, where known. */
  set(data, whole = null) {
    this.data = data;
    this.whole = whole;
    this.latest();
    if (this.visible) this.draw();
  }

  draw() {
    if (!this.plot) {
      if (!this.body.clientWidth) return;
      this.plot = new window.uPlot(this.options(), this.data, this.body);
      if (this.onzoom) this.plot.over.addEventListener("dblclick", () => this.onzoom());
      this.keys();
    } else this.plot.setData(this.data);
  }

  latest(place = this.data[0].length - 1) {
    const values = this.data.slice(1).map((column) => column[place]);
    if (this.band) say(this.now, format(values[1], this.unit));
    else if (values.length === 1) say(this.now, format(values[0], this.unit));
    else if (this.focused) {
      const at = this.focused - 1;
      say(this.now, `${this.labels[at]} ${format(values[at], this.unit)}`);
    } else {
      const there = values.filter((value) => value !== null && !Number.isNaN(value));
      const sum = there.reduce((total, value) => total + value, 0);
      const value = this.whole?.[place] ?? (this.summed ? sum : sum / there.length);
      say(this.now, there.length ? `${this.summed ? "sum" : "mean"} ${format(value, this.unit)}` : "–");
    }
  }

  keys() {
    const shown = this.labels.slice(0, MAX_LEGEND);
    if (this.labels.length < 2 || this.band) return;
    this.legend.replaceChildren(
      ...shown.map((label, place) => {
        const key = h("span", {}, h("i", {}), label || "node");
        key.firstChild.style.background = lineColour(place);
        return key;
      }),
      ...(this.labels.length > MAX_LEGEND
        ? [h("span", {}, `and ${this.labels.length - MAX_LEGEND} more`)] : []),
    );
  }

  options() {
    const text = colour("dim");
    const grid = { stroke: colour("grid"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const single = this.labels.length === 1;
    const many = !single && !this.band;
    const lines = this.labels.map((label, place) => ({
      label: label || "node", width: single || this.band ? 1.5 : 1.25, spanGaps: false,
      stroke: this.band && place !== 1 ? "transparent" : lineColour(this.band ? 0 : place),
      fill: single ? `${lineColour(0)}22` : undefined, points: { show: false },
    }));
    return {
      width: this.body.clientWidth, height: this.height, series: [{}, ...lines],
      bands: this.band ? [{ series: [3, 1], fill: `${lineColour(0)}33` }] : undefined,
      legend: { show: false }, focus: { alpha: 0.25 },
      cursor: { y: false, points: { size: 6 },
        // A selection is of one chart; what it shows then is all charts' time.
        sync: { key: this.sync, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: Boolean(this.onzoom), y: false, setScale: false, dist: 5 },
        focus: { prox: many ? 16 : -1 } },
      scales: { y: { range: (_, low, high) => this.range(low, high) } },
      padding: [6, 22, 0, 0],
      axes: [
        { stroke: text, grid: { show: false }, ticks: { show: false }, font, size: 27, gap: 9, space: 70,
          values: (_, times) => times.map((time) => brief(time, times.at(-1) - times[0])) },
        { stroke: text, grid, ticks: { show: false }, font, size: 62, space: 34,
          values: (_, values) => values.map((value) => format(value, this.unit, true)) },
      ],
      hooks: {
        setSelect: [(plot) => this.select(plot)],
        setCursor: [(plot) => this.latest(plot.cursor.idx ?? undefined)],
        setSeries: [(plot, place) => {
          this.focused = place ?? 0;
          this.latest(plot.cursor.idx ?? undefined);
        }],
      },
    };
  }

  select(plot) {
    const { left, width } = plot.select;
    if (!width || !this.onzoom) return;
    const [from, to] = [left, left + width].map((place) => plot.posToVal(place, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onzoom(from, to);
  }

  range(low, high) {
    if (low === null || high === null) return [0, this.unit === "percent" ? 100 : 1];
    if (this.unit === "percent" && high <= 100 && low >= 0) return [0, 100];
    const bottom = Math.min(0, low);
    return [bottom, high > bottom ? high + (high - bottom) * 0.08 : bottom + 1];
  }
}

/** A time on the axis, with its date where the axis is longer than a day. */
function brief(seconds, length) {
  const date = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  if (length > 4 * 86400) return day;
  if (length > 43200) return `${day} ${minutes}`;
  return date.getSeconds() ? `${minutes}:${two(date.getSeconds())}` : minutes;
}

/** Rows of history as columns, with a bounded length. */
export class Columns {
  constructor(width, maximum = 300) {
    this.width = width;
    this.maximum = maximum;
    this.times = [];
    this.columns = Array.from({ length: width }, () => []);
  }

  /** Add rows of `width` numbers each. */
  add(times, numbers) {
    const { width } = this;
    times.forEach((time, row) => {
      this.times.push(time);
      for (let place = 0; place < width; place += 1) {
        const number = numbers[row * width + place];
        this.columns[place].push(Number.isNaN(number) ? null : number);
      }
    });
    const over = this.times.length - this.maximum;
    if (over > 0) {
      this.times.splice(0, over);
      for (const column of this.columns) column.splice(0, over);
    }
  }
}
