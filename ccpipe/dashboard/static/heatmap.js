// A map of nodes: one cell each, coloured by a metric.

import { CONDITIONS, DOWN, DRAINED, SILENT } from "./conditions.js";
import { colour, h, say } from "./dom.js";
import { format } from "./units.js";

const GAP = 2;
const MAX_CELL = 44;
const MIN_CELL = 5;
const HEIGHT = 232;
// A few nodes have tiles, with their names and values.
const TILE = { wide: 104, tall: 54, max: 210 };

export class HeatMap {
  /**
   * `onopen(place)` is called when a cell is chosen; `label(place)` names it, and
   * `remark(place)` says more about it.
   */
  constructor(title, onopen, label, remark = () => "") {
    Object.assign(this, { title, onopen, label, remark });
    this.values = new Float32Array(0);
    this.conditions = [];
    this.unit = "";
    this.focus = -1;
    this.top = 0;
    this.canvas = h("canvas", {
      tabIndex: 0, role: "application", class: "heat",
      "aria-label": `${title}: map of nodes; arrow keys move, Enter opens`,
      onmousemove: (event) => this.hover(event), onmouseleave: () => this.leave(),
      onclick: (event) => this.open(this.at(event)), onkeydown: (event) => this.key(event),
      onblur: () => this.leave(),
    });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.ramp = h("canvas", { class: "ramp", width: 96, height: 8 });
    this.low = h("span", {}, "0");
    this.high = h("span", {}, "–");
    this.legend = h("div", { class: "legend" }, this.low, this.ramp, this.high);
    this.missing = h("p", { class: "dim small missing" });
    this.element = h("div", { class: "heatbox" }, this.canvas, this.tip, this.missing);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
  }

  /** Show new values, and what each node is doing; `top` is a scale that maps have in common. */
  set(values, conditions, unit, top = null) {
    this.values = values;
    this.conditions = conditions;
    this.unit = unit;
    this.top = top ?? scale(values, unit, this.top);
    this.draw();
    const without = values.filter(Number.isNaN).length;
    const marks = [[DRAINED, "diamond"], [DOWN, "cross"], [SILENT, "stroke"]].map(([number, shape]) => {
      const there = conditions.filter((each) => each === number).length;
      return there ? `${there} ${CONDITIONS[number].name} (${shape})` : "";
    });
    say(this.missing, [without ? `${without} without a value (grey)` : "", ...marks]
      .filter(Boolean).join(", "));
    if (!this.tip.hidden) this.describe(this.focus);
  }

  /** Start a new scale, for another metric. */
  reset() {
    this.top = 0;
  }

  layout() {
    const width = this.element.clientWidth;
    const number = Math.max(1, this.values.length);
    const rows = (columns) => Math.ceil(number / columns);
    const tiles = Math.max(1, Math.floor(width / TILE.wide));
    if (rows(tiles) * TILE.tall <= HEIGHT) {
      const columns = Math.min(tiles, number);
      const wide = Math.min(width / columns, TILE.max);
      return { width, columns, wide, tall: TILE.tall, height: rows(tiles) * TILE.tall, named: true };
    }
    let columns = Math.max(1, Math.floor(width / MAX_CELL));
    const max = Math.max(columns, Math.floor(width / MIN_CELL));
    while (columns < max && rows(columns) * (width / columns) > HEIGHT) columns += 1;
    const cell = width / columns;
    return { width, columns, wide: cell, tall: cell, height: Math.ceil(rows(columns) * cell) };
  }

  /** Where a node's cell is. */
  box(place, { columns, wide, tall }) {
    const gap = tall > 8 ? GAP : 1;
    return [(place % columns) * wide, Math.floor(place / columns) * tall, wide - gap, tall - gap];
  }

  draw() {
    const layout = this.layout();
    const { width, height } = layout;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const ramp = palette();
    const empty = colour("cell");
    const colours = CONDITIONS.map((each) => colour(each.colour));
    this.values.forEach((value, place) => {
      const [x, y, wide, tall] = this.box(place, layout);
      const share = Math.max(0, Math.min(1, value / (this.top || 1)));
      const shade = Number.isNaN(value) ? null : ramp[Math.round(share * 255)];
      context.fillStyle = shade?.fill ?? empty;
      context.fillRect(x, y, wide, tall);
      if (layout.named) {
        context.fillStyle = shade?.text ?? colour("text");
        this.name(context, place, x, y, wide);
      }
      if (this.conditions[place] >= DRAINED) {
        mark(context, this.conditions[place], colours[this.conditions[place]], [x, y, wide, tall]);
      }
    });
    if (this.focus >= 0 && this.focus < this.values.length) {
      context.strokeStyle = colour("text");
      context.lineWidth = 2;
      const [x, y, wide, tall] = this.box(this.focus, layout);
      context.strokeRect(x + 1, y + 1, wide - 2, tall - 2);
    }
    this.drawLegend(ramp);
  }

  /** Write a node's name and value on its tile. */
  name(context, place, x, y, wide) {
    context.save();
    context.beginPath();
    context.rect(x, y, wide - 6, TILE.tall);
    context.clip();
    context.font = "600 12.5px system-ui, sans-serif";
    context.fillText(this.label(place), x + 9, y + 22);
    context.font = "12.5px system-ui, sans-serif";
    context.fillText(format(this.values[place], this.unit), x + 9, y + 39);
    context.restore();
  }

  drawLegend(ramp) {
    say(this.high, this.top ? format(this.top, this.unit) : "–");
    const context = this.ramp.getContext("2d");
    for (let x = 0; x < 96; x += 1) {
      context.fillStyle = ramp[Math.round((x / 95) * 255)].fill;
      context.fillRect(x, 0, 1, 8);
    }
  }

  at(event) {
    const { wide, tall, columns } = this.layout();
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / wide);
    const place = Math.floor((event.clientY - box.top) / tall) * columns + column;
    return column < columns && place < this.values.length ? place : -1;
  }

  hover(event) {
    this.focus = this.at(event);
    this.describe(this.focus);
    this.draw();
  }

  leave() {
    this.focus = -1;
    this.tip.hidden = true;
    this.draw();
  }

  open(place) {
    if (place >= 0) this.onopen(place);
  }

  key(event) {
    const { columns } = this.layout();
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    if (event.key in steps) {
      const next = this.focus < 0 ? 0 : this.focus + steps[event.key];
      this.focus = Math.max(0, Math.min(this.values.length - 1, next));
      this.describe(this.focus);
      this.draw();
      event.preventDefault();
    } else if (event.key === "Enter") this.open(this.focus);
    else if (event.key === "Escape") this.leave();
  }

  describe(place) {
    this.tip.hidden = place < 0;
    if (place < 0) return;
    const layout = this.layout();
    const condition = this.conditions[place] >= DRAINED ? CONDITIONS[this.conditions[place]].name : "";
    const value = Number.isNaN(this.values[place]) && condition ? "" : format(this.values[place], this.unit);
    say(this.tip, [this.label(place), value, this.remark(place) || condition].filter(Boolean).join("  "));
    const [x, y] = this.box(place, layout);
    this.tip.style.left = `${Math.max(0, Math.min(x, layout.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${y + layout.tall + 4}px`;
  }
}

/** The highest value of the colours: it grows at once and shrinks in steps, so as not to flicker. */
export function scale(values, unit, before) {
  let top = 0;
  for (const value of values) if (value > top) top = value;
  const wanted = unit === "percent" && top <= 100 ? 100 : nice(top);
  return wanted > before || wanted < before / 2 ? wanted : before;
}

/** Mark a cell: a diamond where the node is drained, a cross where it is down, else a stroke. */
function mark(context, condition, ink, [x, y, wide, tall]) {
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = 1.5;
  context.beginPath();
  if (condition === DRAINED) {
    const size = Math.max(1.5, Math.min(6, wide / 3, tall / 3));
    const [right, top] = [x + wide - 2, y + 2];
    context.moveTo(right - size, top);
    context.lineTo(right, top + size);
    context.lineTo(right - size, top + 2 * size);
    context.lineTo(right - 2 * size, top + size);
    context.closePath();
    context.fill();
    return;
  }
  context.moveTo(x + 2, y + 2);
  context.lineTo(x + wide - 2, y + tall - 2);
  if (condition === DOWN) {
    context.moveTo(x + wide - 2, y + 2);
    context.lineTo(x + 2, y + tall - 2);
  }
  context.stroke();
}

/** The next round number. */
function nice(number) {
  if (!(number > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= number) * power;
}

const ramps = {};

/** 256 colours from low to high, by the theme's four, each with that of a text upon it. */
function palette() {
  const theme = document.documentElement.dataset.theme;
  ramps[theme] ??= mix(["heat0", "heat1", "heat2", "heat3"].map(colour));
  return ramps[theme];
}

function mix(stops) {
  const points = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, place) => {
    const where = (place / 255) * (points.length - 1);
    const low = Math.min(points.length - 2, Math.floor(where));
    const rgb = points[low].map((from, c) =>
      Math.round(from + (points[low + 1][c] - from) * (where - low)));
    const isLight = 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] > 130;
    return { fill: `rgb(${rgb.join(" ")})`, text: isLight ? "#0b1420" : "#ffffff" };
  });
}
