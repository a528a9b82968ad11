// One job: what it is, how its nodes do, energy, roofline; all of exactly its own time.

import { Chart, Columns, MAX_LINES } from "../chart.js";
import { card, fill, h, nodeLink, say } from "../dom.js";
import { fetchHistory, StatisticsTable, TimeRange, trimmed } from "../history.js";
import { BAND, energyOf, JobColumns, joined, statisticsOf } from "../jobdata.js";
import { fetchReport, reportCard } from "../report.js";
import { Roofline } from "../roofline.js";
import { count, dateTime, duration, energy, format } from "../units.js";
import { stateOf } from "./jobs.js";

const REFRESH = 30000;

export class JobPage {
  constructor({ parts, about, params }) {
    const [cluster = "", job = "0", start = "0"] = parts;
    this.key = { cluster, job: Number(job) || 0, start: Number(start) || 0 };
    this.asked = { cluster, job: this.key.job, begin: this.key.start };
    this.about = about;
    this.title = `job ${job}`;
    this.query = { view: "job", ...this.key };
    this.charts = [];
    this.hasEnergy = about.history; // of the whole job, unless its report has none
    this.rows = new Columns(0);
    this.facts = h("dl", { class: "facts" });
    this.nodes = h("p", { class: "nodes" });
    this.known = h("section", { class: "card", hidden: true }, this.facts, this.nodes);
    this.note = h("span", { class: "note", role: "status" });
    this.body = h("div", { class: "charts" });
    this.report = h("div", {}); // what went wrong, efficiency
    this.roofline = new Roofline();
    this.energy = h("dl", { class: "counts energy" });
    this.zoom = (from, to) => about.history && this.range.zoom(from, to);
    this.power = new Chart({ title: "Power of all nodes", unit: "W", labels: [""], height: 190, onzoom: this.zoom });
    this.side = h("div", { class: "halves", hidden: true },
      this.roofline.element, card("Energy of the whole job", this.energy, this.power.element));
    this.statistics = new StatisticsTable(format);
    this.range = new TimeRange({ about, params, own: "whole job", spans: [], onchoose: () => this.load() });
    this.range.element.hidden = true; // until the job is known
    this.state = h("span", { class: "chip" }, "…");
    this.element = h("div", {},
      h("div", { class: "title" }, h("h1", {}, `Job ${job}`), h("span", { class: "dim" }, cluster),
        this.state, this.note, h("span", { class: "gap" }), this.range.element),
      this.known, this.report, this.side, this.range.shown,
      this.body, this.statistics.element);
    this.timer = setInterval(() => this.job && !this.job.stop && this.loadAll(), REFRESH);
  }

  frame(header, numbers) {
    if (header.missing) {
      if (header.first) this.unknown();
      return;
    }
    if (header.job) this.describe(header.job);
    if (this.job && !this.job.stop) say(this.elapsed, duration(Date.now() / 1000 - this.job.start));
    if (header.metrics) {
      this.rows = new Columns(header.metrics.length * (header.nodes ?? BAND).length);
      this.header = header;
    }
    if (!header.times) return;
    this.rows.add(header.times, numbers);
    if (header.first || header.times.length) this.show();
  }

  /** The bus has no event of this job: the store may have. */
  unknown() {
    say(this.state, "unknown");
    if (this.about.history) this.loadAll();
    else this.empty("No event of this job has been received. ");
  }

  empty(text) {
    const sentence = text[0].toUpperCase() + text.slice(1);
    fill(this.body, h("p", { class: "empty" }, sentence, h("a", { href: "#/jobs" }, "All jobs")));
  }

  describe(job) {
    const before = this.job;
    this.job = job;
    this.known.hidden = this.range.element.hidden = false;
    this.labels = job.nodes.length <= MAX_LINES ? job.nodes : BAND;
    fill(this.state, stateOf(job));
    const end = job.stop || Date.now() / 1000;
    this.elapsed = h("span", {}, duration(end - job.start));
    const facts = [
      ["user", job.user], ["project", job.project], ["name", job.name], ["partition", job.partition],
      ["nodes", count(job.nodes.length)], ["hardware threads", job.hwthreads || ""],
      ["accelerators", job.accelerators || ""], ["started", dateTime(job.start)],
      ["ended", job.stop ? dateTime(job.stop) : ""], ["elapsed", this.elapsed],
      ["limit", job.walltime ? duration(job.walltime) : ""],
    ];
    fill(this.facts, facts.filter(([, value]) => value)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    fill(this.nodes, job.nodes.slice(0, 64).map((node) =>
      h("a", { href: nodeLink(job.cluster, node) }, node)),
      job.nodes.length > 64 ? `and ${job.nodes.length - 64} more` : null);
    if (this.about.history && (!before || before.stop !== job.stop)) this.loadAll();
  }

  /** Start and end of what is shown, in seconds. */
  bounds() {
    const now = Date.now() / 1000;
    const own = [this.job.start, this.job.stop || now];
    if (!this.range.time) return own;
    const [from, to] = this.range.bounds(now);
    return [Math.max(from, own[0]), Math.min(to, own[1])];
  }

  /** Show stored columns as far as there are any, then live rows, all within the shown time. */
  show() {
    if (!this.job) return;
    const [from, to] = this.bounds();
    const live = this.header && new JobColumns(this.header, ...this.cut(from, to));
    const data = joined(this.stored, live, this.labels);
    this.range.show(from, to);
    if (!data) return;
    this.build(data);
    for (const { chart, metric } of this.charts) {
      chart.set([data.times, ...this.labels.map((label) =>
        data.get(metric, label) ?? new Array(data.times.length).fill(null))]);
    }
    const labels = this.labels === BAND ? ["mean"] : this.labels;
    const all = (metric) => labels.map((label) => data.get(metric, label)).filter(Boolean);
    if (!this.roofline.element.hidden) this.roofline.set(all("flops_any"), all("mem_bw"));
    if (data.powers.length) this.power.set([data.times, data.power]);
    if (!this.hasStatistics) this.showStatistics(statisticsOf(data), data.known, "of the live values of the last minutes");
    if (!this.hasEnergy) this.showEnergy(energyOf(data.times, data.power));
  }

  /** Live rows from one time to another. */
  cut(from, to) {
    const { times, columns } = this.rows;
    const first = times.findIndex((time) => time >= from);
    const start = first < 0 ? times.length : first;
    const after = times.findIndex((time) => time > to);
    const end = after < 0 ? times.length : after;
    return [times.slice(start, end), (place) => columns[place].slice(start, end)];
  }

  /** Make the charts, where metrics or labels have changed: a line for each node, or a band. */
  build({ metrics, powers, known, whole }) {
    const layout = JSON.stringify([metrics, powers, [...whole], this.labels]);
    if (layout === this.layout) return;
    this.layout = layout;
    for (const { chart } of this.charts) chart.close();
    const band = this.labels === BAND;
    this.charts = metrics.filter((metric) => !powers.includes(metric)).map((metric) => {
      const { unit, meaning } = known[metric] ?? {};
      const note = whole.has(metric) ? "whole node, other jobs included" : "";
      return { metric, chart: new Chart({ metric, unit, meaning, note, labels: this.labels, band,
        onzoom: this.zoom }) };
    });
    fill(this.body, this.charts.map(({ chart }) => chart.element));
    const hasRoof = metrics.includes("flops_any") && metrics.includes("mem_bw");
    this.roofline.element.hidden = !hasRoof;
    this.side.hidden = !hasRoof && !powers.length;
    this.side.lastChild.hidden = !powers.length;
    if (hasRoof) this.roofline.units(known.flops_any?.unit, known.mem_bw?.unit);
    if (!metrics.length) fill(this.body, h("p", { class: "empty" }, "No metrics of this job were found."));
  }

  showStatistics(statistics, known, note) {
    this.statistics.set(statistics.map((row) => ({ ...row, unit: known[row.metric]?.unit })), note);
  }

  showEnergy({ joules, seconds, nodes = this.job.nodes.length }) {
    fill(this.energy, [
      ["energy", energy(joules)],
      ["mean power", seconds ? format(joules / seconds, "W") : "–"],
      ["per node", seconds && nodes ? format(joules / seconds / nodes, "W") : "–"],
      ["measured for", duration(seconds)],
    ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  showReport(report) {
    fill(this.report, reportCard(report));
    this.hasEnergy = Boolean(report.energy);
    if (report.energy) this.showEnergy(report.energy);
  }

  /** Read the statistics of the whole job, and the columns of the shown time. */
  async loadAll() {
    try {
      const { job, statistics, known } = await fetchHistory({ of: "statistics", ...this.asked });
      if (!this.job) this.describe(job);
      this.hasStatistics = statistics.length > 0;
      if (this.hasStatistics) this.showStatistics(statistics, known, "of all stored values of the job");
      fetchReport(this.key).then((report) => this.showReport(report), () => {
        fill(this.report);
        this.hasEnergy = false;
      });
    } catch (error) {
      if (this.job) say(this.note, error.message);
      else this.empty(`${error.message}. `);
      return;
    }
    await this.load();
  }

  /** Read the columns of the shown time. */
  async load() {
    if (!this.job) return;
    const [start, stop] = this.bounds();
    const number = this.number = (this.number ?? 0) + 1;
    if (!this.stored) say(this.note, "Reading history …");
    try {
      const answer = await fetchHistory({ of: "job", ...this.asked, start, stop });
      if (number !== this.number) return;
      const all = answer.metrics.flatMap((_, at) => (answer.nodes ?? BAND).map((__, label) =>
        answer.column(at * (answer.nodes ?? BAND).length + label)));
      const { times, columns } = trimmed(answer.times, [...all, answer.column(all.length)], !this.job.stop);
      this.stored = new JobColumns(answer, times, (place) => columns[place], columns.at(-1));
      this.stored.step = answer.step;
      say(this.note, answer.truncated ? "There is more than can be shown: choose a shorter time." : "");
      this.show();
    } catch (error) {
      if (number === this.number) say(this.note, error.message);
    }
  }

  recolour() {
    for (const { chart } of this.charts) chart.recolour();
    this.power.recolour();
    this.roofline.draw();
  }

  close() {
    clearInterval(this.timer);
    for (const { chart } of this.charts) chart.close();
    this.power.close();
    this.roofline.close();
  }
}
