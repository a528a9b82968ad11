// All nodes: maps by load, memory and GPU; running jobs; what happens.

import { card, fill, h, nodeLink, say } from "../dom.js";
import { HeatMap } from "../heatmap.js";
import { plural } from "../units.js";
import { JobTable } from "./jobs.js";
import { entryLine } from "./events.js";

const WANTED = [
  ["cpu_load", "load_one"],
  ["mem_used"],
  ["nv_util", "rocm_gfx_util", "acc_utilization", "cpu_power", "net_bytes_in_bw", "cpu_user"],
];
const MAX_ENTRIES = 40;
const MAX_JOBS = 12;

export class OverviewPage {
  constructor({ ask }) {
    this.ask = ask;
    this.nodes = [];
    this.known = {};
    this.picked = [null, null, null]; // by whoever looks at the page
    this.chosen = [null, null, null];
    this.query = { view: "overview", metrics: [] };
    this.maps = WANTED.map((_, place) => this.map(place));
    this.jobs = new JobTable("No job is running, as far as events tell.");
    this.more = h("a", { class: "small", href: "#/jobs", hidden: true });
    this.waiting = h("p", { class: "empty" }, "No metrics have been received yet.");
    this.entries = h("ol", { class: "log", "aria-live": "off" });
    this.element = h("div", {},
      h("h1", { class: "hidden" }, "Nodes"), this.waiting,
      h("div", { class: "maps" }, this.maps.map((map) => map.card)),
      h("div", { class: "halves" },
        card("Running jobs", this.jobs.element, this.more),
        card("Events and log", this.entries)));
  }

  map(place) {
    const heat = new HeatMap("Nodes", (at) => {
      location.hash = nodeLink(...this.nodes[at]);
    }, (at) => this.nodes[at]?.[1] ?? "");
    const select = h("select", { "aria-label": "Metric of the map",
      onchange: () => this.choose(place, select.value) });
    return { heat, select,
      card: h("section", { class: "card map" },
        h("div", { class: "head" }, select, heat.legend), heat.element) };
  }

  choose(place, metric) {
    this.picked[place] = this.chosen[place] = metric;
    this.maps[place].heat.reset();
    this.query = { view: "overview", metrics: this.chosen.filter(Boolean) };
    this.ask(this.query);
  }

  frame(header, numbers) {
    if (header.first) this.entries.replaceChildren();
    if (header.nodes) {
      this.waiting.hidden = header.nodes.length > 0;
      this.nodes = header.nodes;
      this.known = header.known;
      this.offer(header.metrics);
    }
    if (header.jobs) {
      this.jobs.set(header.jobs.slice(0, MAX_JOBS));
      this.more.hidden = header.jobs.length <= MAX_JOBS;
      say(this.more, `all ${plural(header.status.running, "running job")}`);
    }
    this.jobs.tick();
    this.show(header, numbers);
    if (header.entries.length) {
      this.entries.prepend(...header.entries.map(entryLine).reverse());
      while (this.entries.children.length > MAX_ENTRIES) this.entries.lastChild.remove();
    }
  }

  /** Fill the lists of metrics; who has picked none is shown one that most nodes have. */
  offer(counts) {
    const names = Object.keys(counts).sort();
    const before = this.chosen.join();
    const most = (names) => names.find((name) => counts[name] >= this.nodes.length / 2)
      ?? names.find((name) => counts[name]) ?? null;
    this.maps.forEach(({ select, heat }, place) => {
      const wanted = this.picked[place] ?? most(WANTED[place]);
      if (wanted !== this.chosen[place]) heat.reset();
      this.chosen[place] = wanted;
      const chosen = this.chosen[place] ?? "";
      fill(select, names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
      if (!chosen && names.length) select.selectedIndex = -1;
    });
    if (this.chosen.join() !== before) {
      this.query = { view: "overview", metrics: this.chosen.filter(Boolean) };
      this.ask(this.query);
    }
  }

  show(header, numbers) {
    const size = this.nodes.length;
    const silent = new Set(header.silent);
    const drawn = new Set();
    header.columns.forEach((metric, column) => {
      this.chosen.forEach((chosen, place) => {
        if (chosen !== metric || drawn.has(place)) return;
        drawn.add(place);
        const { heat } = this.maps[place];
        heat.set(numbers.slice(column * size, (column + 1) * size), silent, this.known[metric]?.unit);
        heat.canvas.title = this.known[metric]?.meaning ?? "";
      });
    });
  }

  recolour() {
    for (const { heat } of this.maps) heat.draw();
  }

  close() {
    for (const { heat } of this.maps) heat.close();
  }
}
