// A roofline: floating point speed over arithmetic intensity, both logarithmic.

import { card, colour, h } from "./dom.js";
import { format, unitOf } from "./units.js";

const HEIGHT = 236;
const LEFT = 64;
const BOTTOM = 34;
const MAX_POINTS = 4000;

export class Roofline {
  constructor() {
    this.canvas = h("canvas", { class: "roof", role: "img",
      "aria-label": "Roofline: floating point operations per second over operations per byte" });
    this.box = h("div", { class: "roofbox" }, this.canvas);
    this.element = card("Roofline", this.box,
      h("p", { class: "dim small" }, "One point per node and sample; older ones are fainter. "
        + "The roof is the highest bandwidth and speed that was seen here, not the hardware's."));
    this.points = [];
    this.factors = [1, 1];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
  }

  close() {
    this.observer.disconnect();
  }

  units(flops, bandwidth) {
    this.factors = [unitOf(flops).factor, unitOf(bandwidth).factor];
  }

  /** Show columns of speed and of bandwidth, one of each for a node. */
  set(flops, bandwidth) {
    const rows = flops[0]?.length ?? 0;
    const step = Math.max(1, Math.ceil((rows * flops.length) / MAX_POINTS));
    this.points = [];
    for (let row = 0; row < rows; row += step) {
      flops.forEach((column, node) => {
        const speed = column[row] * this.factors[0];
        const bytes = bandwidth[node][row] * this.factors[1];
        if (speed > 0 && bytes > 0) this.points.push([speed / bytes, speed, bytes, row / rows]);
      });
    }
    this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(HEIGHT * scale);
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, HEIGHT);
    context.font = "11px system-ui, sans-serif";
    if (!this.points.length) return;
    const roof = Math.max(...this.points.map(([, speed]) => speed));
    const slope = Math.max(...this.points.map(([, , bytes]) => bytes));
    const low = Math.floor(Math.log10(Math.min(...this.points.map(([x]) => x), roof / slope) / 2));
    const high = Math.ceil(Math.log10(Math.max(...this.points.map(([x]) => x), roof / slope) * 2));
    const bottom = Math.floor(Math.log10(Math.min(...this.points.map(([, y]) => y)) / 2));
    const top = Math.ceil(Math.log10(roof * 1.2));
    const x = (value) => LEFT + ((Math.log10(value) - low) / (high - low)) * (width - LEFT - 10);
    const y = (value) => HEIGHT - BOTTOM - ((Math.log10(value) - bottom) / (top - bottom)) * (HEIGHT - BOTTOM - 10);
    this.axes(context, { x, y, low, high, bottom, top, width });
    context.fillStyle = colour("line0");
    for (const [intensity, speed, , age] of this.points) {
      context.globalAlpha = 0.15 + 0.7 * age;
      context.beginPath();
      context.arc(x(intensity), y(speed), 2.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
    context.strokeStyle = colour("dim");
    context.setLineDash([5, 4]);
    context.lineWidth = 1.5;
    context.beginPath();
    const left = Math.max(10 ** low, 10 ** bottom / slope);
    context.moveTo(x(left), y(left * slope));
    context.lineTo(x(roof / slope), y(roof));
    context.lineTo(x(10 ** high), y(roof));
    context.stroke();
    context.setLineDash([]);
  }

  axes(context, { x, y, low, high, bottom, top, width }) {
    context.strokeStyle = colour("grid");
    context.fillStyle = colour("dim");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let power = bottom; power <= top; power += 1) {
      const at = y(10 ** power);
      context.beginPath();
      context.moveTo(LEFT, at);
      context.lineTo(width - 10, at);
      context.stroke();
      context.fillText(format(10 ** power, "F/s", true), LEFT - 6, at);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let power = low; power <= high; power += 1) {
      const at = x(10 ** power);
      context.beginPath();
      context.moveTo(at, 10);
      context.lineTo(at, HEIGHT - BOTTOM);
      context.stroke();
      // The last label stands left of its line: there is no room beyond it.
      context.textAlign = power === high ? "right" : "center";
      const label = power >= 0 ? format(10 ** power, "", true) : (10 ** power).toFixed(-power);
      context.fillText(label, at, HEIGHT - BOTTOM + 5);
    }
    context.textAlign = "center";
    context.fillText("operations per byte", (LEFT + width) / 2, HEIGHT - 14);
  }
}
