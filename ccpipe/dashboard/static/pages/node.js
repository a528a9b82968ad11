// One node: all its metrics, its jobs, what it says.

import { Chart, Columns } from "../chart.js";
import { SILENT, acknowledgeButton, conditionMark, readFacts, remark } from "../conditions.js";
import { card, fill, h, say } from "../dom.js";
import { fetchHistory, TimeRange } from "../history.js";
import { metricTitle } from "../metrics.js";
import { duration, format } from "../units.js";
import { entryLine } from "./events.js";
import { JobTable } from "./jobs.js";

const SECTIONS = [
  ["CPU", /^(cpu_(?!.*(power|energy))|load|proc_|ipc|flops|clock|cpufreq|num_cpus|core_sched|sched)/],
  ["Memory", /^(mem_(?!.*(power|energy))|swap|numa|psi_mem)/],
  ["GPU", /^(nv_|rocm_|acc_)/],
  ["Network", /^(net_|ib_|infiniband)/],
  ["Storage", /^(io_|disk_|part_|lustre|nfs|gpfs|beegfs|smart)/],
  ["Power and temperature", /(power|energy|temp|fan)/],
  ["Other", /./],
];
const SUMMARY = ["cpu_load", "load_one", "cpu_used", "cpu_user", "mem_used", "flops_any", "mem_bw",
  "nv_util", "nv_fb_mem_used", "rocm_gfx_util", "net_bytes_in_bw", "net_bytes_out_bw",
  "ib_total_bw", "cpu_power", "nv_power_usage", "temperature"];
const MAX_SUMMARY = 9;
const MAX_ENTRIES = 50;
const REFRESH = 30000;

export class NodePage {
  constructor({ parts, about, ask, params }) {
    const [cluster = "", node = ""] = parts;
    Object.assign(this, { cluster, node, ask, about });
    this.title = node;
    this.query = { view: "node", cluster, node };
    this.range = new TimeRange({ about, params, own: "live", onchoose: () => this.choose() });
    this.charts = [];
    this.columns = new Columns(0);
    this.state = h("span", { class: "chip" }, "…");
    this.remark = h("span", { class: "dim" });
    this.refused = h("span", { class: "bad", role: "status" });
    this.acknowledge = acknowledgeButton("Acknowledge", () => [[cluster, node]], this.refused);
    this.acknowledge.hidden = true;
    this.exceeded = h("p", { class: "warn", hidden: true });
    this.search = h("input", { type: "search", placeholder: "metric …  ( / )",
      "aria-label": "Filter metrics", oninput: () => this.filter() });
    this.note = h("span", { class: "note", role: "status" });
    this.jobs = new JobTable();
    this.running = card("Jobs on this node", this.jobs.element);
    this.running.hidden = true;
    this.body = h("div", {}, h("p", { class: "empty" }, "Waiting for this node …"));
    this.entries = h("ol", { class: "log" });
    this.quiet = h("p", { class: "empty" }, "None yet.");
    this.element = h("div", {},
      h("div", { class: "title" }, h("h1", {}, node), h("span", { class: "dim" }, cluster), this.state,
        this.remark, this.acknowledge, this.refused, this.note, h("span", { class: "gap" }), this.search,
        this.range.element),
      this.range.shown, this.exceeded,
      this.running, this.body, card("Events and log of this node", this.quiet, this.entries));
    this.timer = setInterval(() => this.range.time?.last && this.load(), REFRESH);
    if (this.range.time) this.load();
  }

  frame(header, numbers) {
    if (header.missing) {
      say(this.state, "unknown");
      if (!this.range.time) fill(this.body, h("p", { class: "empty" }, "Nothing has been received from a node of this name. ",
        h("a", { href: "#/nodes" }, "All nodes")));
      this.acknowledge.hidden = true;
      return;
    }
    this.describe(header);
    if (header.series) {
      this.series = header;
      this.columns = new Columns(header.series.length);
      if (!this.range.time) this.build(header);
    }
    if (header.jobs) {
      this.jobs.set(header.jobs);
      this.running.hidden = !header.jobs.length;
    }
    this.jobs.tick();
    if (header.first) this.entries.replaceChildren();
    if (header.entries.length) {
      this.entries.prepend(...header.entries.map(entryLine).reverse());
      while (this.entries.children.length > MAX_ENTRIES) this.entries.lastChild.remove();
      this.quiet.hidden = true;
    }
    this.columns.add(header.times, numbers);
    if (!this.range.time && header.times.length) this.live();
  }

  /** Show the node's state at the top of the page. */
  describe({ facts, interval, exceeded }) {
    const known = readFacts(facts);
    if (this.condition !== known.condition) fill(this.state, conditionMark(known.condition));
    this.condition = known.condition;
    const isLive = !known.seen && interval !== null;
    say(this.remark, [known.partition && `partition ${known.partition}`, remark(known),
      isLive && `sends every ${duration(interval)}`].filter(Boolean).join("; "));
    this.acknowledge.hidden = known.condition !== SILENT || this.about.role === "user";
    this.exceeded.hidden = !exceeded.length;
    say(this.exceeded, exceeded.map(({ text, unit, is_ratio: isRatio, limit, places: [[, , number]] }) => {
      const value = (each) => (isRatio ? format(100 * each, "percent") : format(each, unit));
      return `▲ ${text} ${value(number)}, over ${value(limit)}`;
    }).join("; "));
  }

  /** Make the charts: one for each metric, with a line for each part. */
  build({ series, known }) {
    this.built = JSON.stringify(series);
    for (const { chart } of this.charts) chart.close();
    const metrics = new Map();
    series.forEach(([metric, part], place) => {
      if (!metrics.has(metric)) metrics.set(metric, []);
      metrics.get(metric).push({ part, place });
    });
    this.charts = [];
    const summary = SUMMARY.filter((metric) => metrics.has(metric)).slice(0, MAX_SUMMARY);
    const sections = [this.section("Summary", summary, metrics, known, true)];
    const left = new Set(metrics.keys());
    for (const [title, pattern] of SECTIONS) {
      const names = [...left].filter((name) => pattern.test(name));
      for (const name of names) left.delete(name);
      sections.push(this.section(title, names, metrics, known, !summary.length));
    }
    fill(this.body, series.length ? sections
      : h("p", { class: "empty" }, "It sends nothing now. Its history is in the longer times."));
    this.filter();
  }

  section(title, names, metrics, known, open) {
    if (!names.length) return null;
    const charts = names.map((metric) => {
      const all = metrics.get(metric);
      // Parts say more than their sum, which is shown alone where there are none.
      const lines = all.length > 1 ? all.filter(({ part }) => part) : all;
      const whole = all.find(({ part }) => !part);
      const { unit, meaning, averaged } = known[metric] ?? {};
      const labels = lines.map(({ part }) => part);
      const chart = new Chart({ metric, unit, meaning, labels, summed: !averaged,
        onzoom: (from, to) => this.about.history && this.range.zoom(from, to) });
      this.charts.push({ chart, metric, lines, whole });
      return chart.element;
    });
    return h("details", { class: "section", open },
      h("summary", {}, title, h("span", { class: "dim" }, ` ${names.length}`)),
      h("div", { class: "charts" }, charts));
  }

  live() {
    const { times, columns } = this.columns;
    if (this.series && this.built !== JSON.stringify(this.series.series)) this.build(this.series);
    if (times.length) this.range.show(times[0], times.at(-1));
    for (const { chart, lines, whole } of this.charts) {
      chart.set([times, ...lines.map(({ place }) => columns[place])], whole && columns[whole.place]);
    }
  }

  choose() {
    say(this.note, "");
    if (this.range.time) this.load();
    else this.live();
  }

  /** Show stored values of the chosen time; of a node that is gone, all that there are. */
  async load() {
    const [start, stop] = this.range.bounds(Date.now() / 1000);
    const number = this.number = (this.number ?? 0) + 1;
    if (!this.note.textContent) say(this.note, "Reading history …");
    try {
      const answer = await fetchHistory(
        { of: "nodes", cluster: this.cluster, nodes: [this.node], start, stop });
      if (number !== this.number || !this.range.time) return;
      const { times, truncated, known } = answer;
      say(this.note, !answer.series.length ? "The store has nothing of this node in this time."
        : truncated ? "There is more than can be shown: choose a shorter time." : "");
      const series = answer.series.map(([, metric, part]) => [metric, part]);
      if (series.length && JSON.stringify(series) !== this.built) this.build({ series, known });
      for (const { chart, lines, whole } of this.charts) {
        const column = ({ place }) => (series.length ? answer.column(place) : times.map(() => null));
        chart.set([times, ...lines.map(column)], whole && column(whole));
      }
      this.range.show(start, stop);
    } catch (error) {
      if (number === this.number) say(this.note, error.message);
    }
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { chart, metric } of this.charts) {
      const names = `${metric} ${metricTitle(metric)}`.toLowerCase();
      chart.element.hidden = !words.every((word) => names.includes(word));
    }
    for (const section of this.body.querySelectorAll("details")) {
      const some = section.querySelector(".chart:not([hidden])");
      section.hidden = !some;
      if (words.length && some) section.open = true;
    }
  }

  recolour() {
    for (const { chart } of this.charts) chart.recolour();
  }

  close() {
    clearInterval(this.timer);
    for (const { chart } of this.charts) chart.close();
  }
}
