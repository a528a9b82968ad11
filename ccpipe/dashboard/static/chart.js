// Lines over time, drawn by uPlot.

import { colour, fill, h, say } from "./dom.js";
import { columnUnit, metricTitle } from "./metrics.js";
import { format } from "./units.js";

const HEIGHT = 133;
const MAX_COUNT = 9;
/** Distances of an axis's labels for numbers of things, which have no halves. */
const WHOLE = Array.from({ length: MAX_COUNT }, (_, power) => [1, 2, 5].map((first) => first * 10 ** power)).flat();
/** Distances of an axis's labels for times, in seconds; a month is its own kind of step from 30 days on. */
const STEPS = [...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800], ...[1, 2, 3, 6, 12].map((hours) => hours * 3600),
  ...[1, 2, 4, 7, 14, 30, 60, 90, 180, 360].map((days) => days * 86400)];

/** As many lines as there are colours: a chart of more parts is a band. */
export const MAX_LINES = 8;

export class Chart {
  /**
   * A chart with a title, or of a metric, whose title is made of its name. `labels` name its lines;
   * "" is the node as a whole. `colours` are those of the theme for each line, if they mean something.
   *
   * More lines than there are colours are drawn as a band of minimum, mean and maximum, with one line
   * that can be chosen. With `band` the lines are minimum, mean and maximum already. What stands at
   * the top is the lines' mean, or with `summed` their sum. `note` stands beside the title.
   * `onzoom(from, to)` gets the time that was selected by dragging, in seconds, and nothing after a
   * double click.
   */
  constructor({ title, metric = "", unit = "", meaning = "", labels, colours = null, band = false, summed = false,
    sync = "time", height = HEIGHT, note = "", onzoom = null }) {
    Object.assign(this, { unit, labels, band, summed, sync, height, onzoom });
    this.colours = colours ?? Array.from({ length: MAX_LINES }, (_, place) => `line${place}`);
    this.isMany = labels.length > MAX_LINES;
    this.isBand = band || this.isMany;
    this.focused = 0;
    this.now = h("output", { class: "now" }, "–");
    this.unitName = h("span", { class: "unit dim" });
    this.body = h("div", { class: "plot" });
    this.body.style.height = `${height}px`;
    this.legend = h("div", { class: "lines", hidden: labels.length < 2 || band });
    this.element = h("figure", { class: "chart", title: meaning || null, "data-metric": metric || null },
      h("figcaption", {}, h("span", { class: "name", title: metric || title }, title ?? metricTitle(metric)),
        this.unitName, note ? h("span", { class: "dim small" }, note) : null, this.now), this.body, this.legend);
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
      this.plot = new window.uPlot(this.options(), this.drawn(), this.body);
      if (this.onzoom) this.plot.over.addEventListener("dblclick", () => this.onzoom());
      if (this.isMany) this.choices();
      else this.keys();
    } else this.plot.setData(this.drawn());
  }

  /** The columns of the lines: of many, their minimum, mean and maximum, and the chosen one. */
  drawn() {
    if (!this.isMany) return this.data;
    const [times, ...columns] = this.data;
    const band = [[], [], []];
    times.forEach((_, row) => {
      let [low, sum, high, there] = [Infinity, 0, -Infinity, 0];
      for (const column of columns) {
        const value = column[row];
        if (value === null || value === undefined) continue;
        if (value < low) low = value;
        if (value > high) high = value;
        sum += value;
        there += 1;
      }
      band.forEach((column, place) => column.push(there ? [low, sum / there, high][place] : null));
    });
    return [times, ...band, this.chosen ? columns[this.chosen - 1] : times.map(() => null)];
  }

  /** The place of the line that was chosen of many, counted from 1; 0 is none. */
  get chosen() {
    return this.choice?.selectedIndex ?? 0;
  }

  latest(place = this.data[0].length - 1) {
    const values = this.data.slice(1).map((column) => column[place]);
    if (this.band) say(this.now, format(values[1], this.unit));
    else if (values.length === 1) say(this.now, format(values[0], this.unit));
    else if (this.focused || this.chosen) {
      const at = (this.focused || this.chosen) - 1;
      say(this.now, `${this.labels[at]} ${format(values[at], this.unit)}`);
    } else {
      const there = values.filter((value) => value !== null && !Number.isNaN(value));
      const sum = there.reduce((total, value) => total + value, 0);
      const value = this.whole?.[place] ?? (this.summed ? sum : sum / there.length);
      say(this.now, there.length ? `${this.summed ? "sum" : "mean"} ${format(value, this.unit)}` : "–");
    }
  }

  keys() {
    if (this.labels.length < 2 || this.band) return;
    fill(this.legend, this.labels.map((label, place) => key(this.colours[place], label || "node")));
  }

  /** The legend of many lines, with a list of which one is drawn beside their band. */
  choices() {
    const chosen = this.chosen;
    const title = this.element.querySelector(".name").textContent;
    this.choice = h("select", { class: "quiet", "aria-label": `${title}: one of its lines`,
      onchange: () => {
        this.latest();
        this.draw();
      } }, ["one of them …", ...this.labels.map((label) => label || "node")].map((text, place) =>
      h("option", { selected: place === chosen }, text)));
    fill(this.legend, key(this.colours[0], `mean of ${this.labels.length}, minimum to maximum`),
      key(this.colours[1], this.choice));
  }

  options() {
    const text = colour("dim");
    const grid = { stroke: colour("grid"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const single = this.labels.length === 1;
    const lineColour = (place) => colour(this.colours[place]);
    const bandColours = ["transparent", lineColour(0), "transparent", lineColour(1)].slice(0, this.isMany ? 4 : 3);
    const strokes = this.isBand ? bandColours : this.labels.map((_, place) => lineColour(place));
    const lines = strokes.map((stroke) => ({ stroke, width: single || this.isBand ? 1.5 : 1.25, spanGaps: false,
      fill: single ? `${lineColour(0)}22` : undefined, points: { show: false } }));
    return {
      width: this.body.clientWidth, height: this.height, series: [{}, ...lines],
      bands: this.isBand ? [{ series: [3, 1], fill: `${lineColour(0)}33` }] : undefined,
      legend: { show: false }, focus: { alpha: 0.25 },
      cursor: { y: false, points: { size: 6 },
        // A selection is of one chart; what it shows then is all charts' time.
        sync: { key: this.sync, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: Boolean(this.onzoom), y: false, setScale: false, dist: 5 },
        focus: { prox: single || this.isBand ? -1 : 16 } },
      scales: { y: { range: (_, low, high) => this.range(low, high) } },
      padding: [6, 22, 0, 0],
      axes: [
        { stroke: text, grid: { show: false }, ticks: { show: false }, font, size: 27, gap: 9, space: 64, incrs: STEPS,
          values: (_, times) => times.map((time) => brief(time, times.at(-1) - times[0])) },
        { stroke: text, grid, ticks: { show: false }, font, size: 48, space: 34, incrs: this.unit === "count" ? WHOLE : undefined,
          values: (_, values) => values.map((value) => this.axisLabel(value)) },
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

  /** The unit of the axis stands in the title; a number without a unit has its prefix at each label. */
  axisLabel(value) {
    return this.axisUnit.name ? String(Number((value * this.axisUnit.factor).toPrecision(3))) : format(value, this.unit, true);
  }

  /** The range of the axis, and with it its unit. */
  range(low, high) {
    const [bottom, top] = this.bounds(low, high);
    const isPlain = !this.unit || this.unit === "count";
    this.axisUnit = isPlain ? { name: "" } : columnUnit([bottom, top], this.unit);
    say(this.unitName, this.axisUnit.name);
    return [bottom, top];
  }

  bounds(low, high) {
    if (low === null || high === null) return [0, this.unit === "percent" ? 100 : 1];
    if (this.unit === "percent" && high <= 100 && low >= 0) return [0, 100];
    const bottom = Math.min(0, low);
    return [bottom, high > bottom ? high + (high - bottom) * 0.08 : bottom + 1];
  }
}

/** An entry of a legend: a colour, and what has it. */
function key(name, content) {
  const entry = h("span", {}, h("i", {}), content);
  entry.firstChild.style.background = `var(--${name})`;
  return entry;
}

/** A time on the axis, with its date where the axis is longer than half a day. */
export function brief(seconds, length) {
  const date = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  if (length > 4 * 86400) return date.getHours() ? minutes : day;
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
