// The first page: what nodes and jobs are doing in all, maps of nodes, running jobs, what happens.

import { Chart, Columns } from "../chart.js";
import { CONDITIONS, conditionMark } from "../conditions.js";
import { card, fill, h, nodeLink, say } from "../dom.js";
import { HeatMap } from "../heatmap.js";
import { fetchHistory, SPANS, TimeRange } from "../history.js";
import { metricTitle } from "../metrics.js";
import { count, format, plural } from "../units.js";
import { JobTable } from "./jobs.js";
import { entryLine } from "./events.js";

const WANTED = [
  ["cpu_load", "load_one"],
  ["mem_used"],
  ["nv_util", "rocm_gfx_util", "acc_utilization", "cpu_power", "net_bytes_in_bw", "cpu_user"],
];
const MAX_ENTRIES = 40;
const MAX_JOBS = 12;
const MAX_PLACES = 8;
const REFRESH = 60000;

export class OverviewPage {
  constructor({ ask, about, params, parts = [] }) {
    Object.assign(this, { ask, about });
    this.cluster = parts[0] || null;
    this.nodes = [];
    this.known = {};
    this.conditions = [];
    this.picked = [null, null, null]; // by whoever looks at the page
    this.chosen = [null, null, null];
    this.setQuery();
    this.clusters = h("select", { "aria-label": "Cluster", onchange: () => {
      const [, query] = location.hash.split("?");
      const path = this.clusters.value ? `#/overview/${encodeURIComponent(this.clusters.value)}` : "#/";
      location.hash = query ? `${path}?${query}` : path;
    }, hidden: true });
    this.range = new TimeRange({ about, params, own: "live", spans: [...SPANS, ["30 d", 2592000]],
      onchoose: () => this.chooseTime() });
    this.note = h("span", { class: "note", role: "status" });
    this.where = h("div", { class: "head wrap" }, this.clusters, this.range.element, this.range.shown,
      this.note);
    this.makeTotals();
    this.maps = WANTED.map((_, place) => this.map(place));
    this.jobs = new JobTable("No job is running, as far as events tell.");
    this.more = h("a", { class: "small", href: "#/jobs", hidden: true });
    this.server = h("code", {}, "the broker");
    this.waiting = welcome(this.server);
    this.waiting.hidden = true;
    this.exceeded = h("ul", { class: "exceeded" });
    this.alerts = card("Over their limit", this.exceeded);
    this.alerts.hidden = true;
    this.entries = h("ol", { class: "log", "aria-live": "off" });
    this.full = h("div", {}, this.where, h("section", { class: "card" }, this.counts), this.alerts,
      h("div", { class: "charts sums" }, this.charts.map((chart) => chart.element)),
      h("div", { class: "maps" }, this.maps.map((map) => map.card)));
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Overview"), this.waiting, this.full,
      h("div", { class: "halves" },
        card("Running jobs", this.jobs.element, this.more),
        card("Events and log", this.entries)));
    this.timer = setInterval(() => this.range.time?.last && this.load(), REFRESH);
    if (this.range.time) this.chooseTime();
  }

  /** The numbers at the top, and their charts. */
  makeTotals() {
    const cluster = encodeURIComponent(this.cluster ?? "");
    this.numbers = Object.fromEntries([...CONDITIONS.map(({ name }) => name), "running", "pending", "power", "flops"]
      .map((name) => [name, h("dd", {}, "–")]));
    const entry = (name, title) => h("div", {}, h("dt", {}, title), this.numbers[name]);
    this.counts = h("dl", { class: "counts totals" },
      CONDITIONS.map(({ name }, number) => entry(name,
        h("a", { href: `#/nodes/${cluster}/none/list/${name}` }, conditionMark(number)))),
      entry("running", h("a", { href: "#/jobs" }, "jobs running")),
      entry("pending", h("a", { href: "#/jobs?state=pending" }, "jobs waiting")),
      entry("power", "power"), entry("flops", "floating-point speed"));
    const onzoom = (from, to) => this.about.history && this.range.zoom(from, to);
    const chart = (title, more) => new Chart({ title, labels: [""], onzoom, ...more });
    this.charts = [
      chart("Nodes", { labels: CONDITIONS.map(({ name }) => name), colours: CONDITIONS.map((each) => each.colour), summed: true, unit: "count" }),
      chart("Jobs running", { unit: "count" }), chart("Jobs waiting", { unit: "count" }),
      chart("Power", { unit: "W" }),
      chart("Floating-point speed", { unit: "Flops/s" }),
      chart("Nodes with a job", { unit: "count" })];
    for (const place of [2, 5]) this.charts[place].element.hidden = true;
    this.counted = new Columns(CONDITIONS.length + 2);
    this.summed = new Columns(2);
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

  setQuery() {
    this.query = { view: "overview", metrics: this.chosen.filter(Boolean), cluster: this.cluster };
  }

  choose(place, metric) {
    this.picked[place] = this.chosen[place] = metric;
    this.maps[place].heat.reset();
    this.setQuery();
    this.ask(this.query);
  }

  frame(header, numbers) {
    if (header.first) this.entries.replaceChildren();
    if (header.nodes) this.setNodes(header);
    if (header.jobs) {
      this.jobs.set(header.jobs.slice(0, MAX_JOBS));
      this.more.hidden = header.jobs.length <= MAX_JOBS;
      say(this.more, `all ${plural(header.jobs.length, "running job")}`);
    }
    this.jobs.tick();
    this.conditions = header.conditions ?? this.conditions;
    this.show(header, numbers);
    this.showTotals(header, numbers.subarray(header.columns.length * this.nodes.length));
    if (header.exceeded) this.showExceeded(header.exceeded);
    if (header.entries.length) {
      this.entries.prepend(...header.entries.map(entryLine).reverse());
      while (this.entries.children.length > MAX_ENTRIES) this.entries.lastChild.remove();
    }
  }

  setNodes({ nodes, known, metrics, clusters, status }) {
    this.waiting.hidden = nodes.length > 0;
    this.full.hidden = nodes.length === 0;
    if (status.server) say(this.server, status.server);
    this.nodes = nodes;
    this.known = known;
    this.clusters.hidden = clusters.length < 2 && !this.cluster;
    fill(this.clusters, ["", ...clusters].map((name) =>
      h("option", { value: name, selected: name === (this.cluster ?? "") }, name || "all clusters")));
    this.offer(metrics);
  }

  /** Fill the lists of metrics; who has picked none is shown one that most nodes have. */
  offer(counts) {
    const names = Object.keys(counts).sort((a, b) => metricTitle(a).localeCompare(metricTitle(b)));
    const before = this.chosen.join();
    const most = (names) => names.find((name) => counts[name] >= this.nodes.length / 2)
      ?? names.find((name) => counts[name]) ?? null;
    this.maps.forEach(({ select, heat }, place) => {
      const wanted = this.picked[place] ?? most(WANTED[place]);
      if (wanted !== this.chosen[place]) heat.reset();
      this.chosen[place] = wanted;
      fill(select, metricOptions(names, wanted));
      if (!wanted && names.length) select.selectedIndex = -1;
    });
    if (this.chosen.join() !== before) {
      this.setQuery();
      this.ask(this.query);
    }
  }

  show(header, numbers) {
    const size = this.nodes.length;
    const drawn = new Set();
    header.columns.forEach((metric, column) => {
      this.chosen.forEach((chosen, place) => {
        if (chosen !== metric || drawn.has(place)) return;
        drawn.add(place);
        const { heat } = this.maps[place];
        heat.set(numbers.slice(column * size, (column + 1) * size), this.conditions, this.known[metric]?.unit);
        heat.canvas.title = this.known[metric]?.meaning ?? "";
      });
    });
  }

  showTotals(header, sums) {
    if (header.first) this.counted = new Columns(CONDITIONS.length + 2);
    if (header.first || header.restart) this.summed = new Columns(2);
    this.counted.add(header.counted, header.counts.flat());
    this.summed.add(header.times, sums);
    const last = (column) => column[column.length - 1];
    const { columns, times } = this.counted;
    CONDITIONS.forEach(({ name }, place) => {
      const number = last(columns[place]) ?? 0;
      say(this.numbers[name], count(number));
      this.numbers[name].parentElement.classList.toggle("none", !number);
    });
    ["running", "pending"].forEach((name, place) =>
      say(this.numbers[name], count(last(columns[CONDITIONS.length + place]) ?? 0)));
    const [power, flops] = this.summed.columns;
    say(this.numbers.power, format(last(power), "W"));
    say(this.numbers.flops, format(last(flops), "Flops/s"));
    if (!this.range.time && (header.counted.length || header.times.length)) this.showLive();
  }

  /** Draw the last minutes, as they were received. */
  showLive() {
    const { columns, times } = this.counted;
    const [power, flops] = this.summed.columns;
    const [nodes, running, waiting, watts, speed, busy] = this.charts;
    const [started, pending] = columns.slice(CONDITIONS.length);
    nodes.set([times, ...columns.slice(0, CONDITIONS.length)]);
    running.set([times, started]);
    waiting.set([times, pending]);
    watts.set([this.summed.times, power]);
    speed.set([this.summed.times, flops]);
    nodes.element.hidden = running.element.hidden = false;
    waiting.element.hidden = !pending.some(Boolean); // no scheduler reports its queue, or it is empty
    busy.element.hidden = true;
    hideEmpty([watts, power], [speed, flops]);
    if (times.length) this.range.show(times[0], times.at(-1));
  }

  chooseTime() {
    this.number = (this.number ?? 0) + 1; // an answer to an earlier choice is ignored
    say(this.note, this.range.time ? "Reading history …" : "");
    if (this.range.time) this.load();
    else this.showLive();
  }

  /** Draw sums of the stored time; what nodes are doing is known only while it is received. */
  async load() {
    const [start, stop] = this.range.bounds(Date.now() / 1000);
    const number = this.number = (this.number ?? 0) + 1;
    try {
      const { times, column } = await fetchHistory({ of: "sums", cluster: this.cluster, start, stop });
      if (number !== this.number || !this.range.time) return;
      const [nodes, running, waiting, watts, speed, busy] = this.charts;
      const drawn = [watts, speed, running, busy].map((chart, place) => [chart, column(place)]);
      for (const [chart, values] of drawn) chart.set([times, values]);
      nodes.element.hidden = waiting.element.hidden = true;
      hideEmpty(...drawn);
      say(this.note, drawn.every(([, values]) => isEmpty(values))
        ? "Neither the store nor the list of jobs has anything of this time."
        : "Charts are of the store and of the list of jobs. All else is live: no store has the states of nodes.");
      this.range.show(start, stop);
    } catch (error) {
      if (number === this.number) say(this.note, error.message);
    }
  }

  showExceeded(found) {
    this.alerts.hidden = !found.length;
    fill(this.exceeded, found.map((row) => {
      const value = (number) => (row.is_ratio ? format(100 * number, "percent") : format(number, row.unit));
      const places = row.places.slice(0, MAX_PLACES).map(([cluster, name, number]) =>
        h("a", { href: row.of_nodes ? nodeLink(cluster, name) : "#/pipe" }, `${name} ${value(number)}`));
      const more = row.count - places.length;
      return h("li", { class: row.severity },
        h("span", { class: "what", title: `Alert ${row.alert}, if it lasts ${row.hold}` },
          h("span", { "aria-hidden": "true" }, "▲ "), `${row.text} over ${value(row.limit)}`),
        places, more ? h("span", { class: "dim" }, `and ${more} more`) : null);
    }));
  }

  recolour() {
    for (const { heat } of this.maps) heat.draw();
    for (const chart of this.charts) chart.recolour();
  }

  close() {
    clearInterval(this.timer);
    for (const { heat } of this.maps) heat.close();
    for (const chart of this.charts) chart.close();
  }
}

const isEmpty = (values) => values.every((value) => value === null);

/** Hide charts without any value. */
function hideEmpty(...drawn) {
  for (const [chart, values] of drawn) chart.element.hidden = isEmpty(values);
}

/** Options of a list of metrics, with one of them selected. */
export const metricOptions = (names, chosen) => names.map((name) =>
  h("option", { value: name, title: name, selected: name === chosen }, metricTitle(name)));

/** What to do where there are no data yet. */
function welcome(server) {
  const command = (text, meaning) => h("p", {}, h("code", { class: "command" }, text), ` ${meaning}`);
  return h("section", { class: "card welcome" }, h("h2", {}, "Waiting for the first metrics"),
    h("p", {}, "This dashboard is listening at ", server, " and shows what arrives, within a second."),
    command("ccpipe publish", "on a node sends its metrics"),
    command("ccpipe simulate", "sends those of a cluster of 100 nodes that does not exist"));
}
