// One job: what it is, how its nodes do, energy, roofline.

import { Chart, Columns } from "../chart.js";
import { card, fill, h, nodeLink, say } from "../dom.js";
import { fetchHistory, spanButtons } from "../history.js";
import { Roofline } from "../roofline.js";
import { clock, count, duration, format } from "../units.js";

const REFRESH = 30000;
const MAX_HISTORY_NODES = 64;

export class JobPage {
  constructor({ parts, about }) {
    const [cluster = "", job = "0", start = "0"] = parts;
    this.key = { cluster, job: Number(job) || 0, start: Number(start) || 0 };
    this.about = about;
    this.title = `job ${job}`;
    this.query = { view: "job", ...this.key };
    this.span = 0;
    this.charts = [];
    this.columns = new Columns(0);
    this.facts = h("dl", { class: "facts" });
    this.nodes = h("p", { class: "nodes" });
    this.note = h("span", { class: "note", role: "status" });
    this.body = h("div", { class: "charts" });
    this.roofline = new Roofline();
    this.energy = h("dl", { class: "counts" });
    this.power = new Chart({ title: "power of all nodes", unit: "W", labels: [""], height: 190 });
    this.side = h("div", { class: "halves", hidden: true },
      this.roofline.element, card("Energy", this.energy, this.power.element));
    this.state = h("span", { class: "chip" }, "…");
    this.element = h("div", {},
      h("div", { class: "title" }, h("h1", {}, `Job ${job}`), h("span", { class: "dim" }, cluster),
        this.state, this.note, h("span", { class: "gap" }), spanButtons(about, (seconds) => this.choose(seconds))),
      h("section", { class: "card" }, this.facts, this.nodes), this.side, this.body);
    this.timer = setInterval(() => this.span && this.load(), REFRESH);
  }

  frame(header, numbers) {
    if (header.missing) {
      say(this.state, "unknown");
      fill(this.body, h("p", { class: "empty" }, "No event of this job has been received. ",
        h("a", { href: "#/jobs" }, "All jobs")));
      return;
    }
    if (header.job) this.describe(header.job);
    if (this.job && !this.job.stop) say(this.elapsed, duration(Date.now() / 1000 - this.job.start));
    if (header.metrics) this.build(header);
    if (!header.times) return;
    this.columns.add(header.times, numbers);
    if (!this.span && header.times.length) this.show(this.columns.times, (place) => this.columns.columns[place]);
  }

  describe(job) {
    this.job = job;
    say(this.state, job.state);
    this.state.className = `chip ${job.stop ? (job.state === "completed" ? "" : "warn") : "good"}`;
    const end = job.stop || Date.now() / 1000;
    this.elapsed = h("span", {}, duration(end - job.start));
    const facts = [
      ["user", job.user], ["project", job.project], ["name", job.name], ["partition", job.partition],
      ["nodes", count(job.nodes.length)], ["hardware threads", job.hwthreads || ""],
      ["accelerators", job.accelerators || ""], ["started", clock(job.start)],
      ["ended", job.stop ? clock(job.stop) : ""], ["elapsed", this.elapsed],
      ["limit", job.walltime ? duration(job.walltime) : ""],
    ];
    fill(this.facts, facts.filter(([, value]) => value)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    fill(this.nodes, job.nodes.slice(0, 64).map((node) =>
      h("a", { href: nodeLink(job.cluster, node) }, node)),
      job.nodes.length > 64 ? `and ${job.nodes.length - 64} more` : null);
  }

  /** Make the charts: a line for each node, or the range of all where they are many. */
  build({ metrics, powers, known, nodes, count: total }) {
    for (const { chart } of this.charts) chart.close();
    Object.assign(this, { metrics, powers, known, names: nodes, total });
    this.labels = nodes ?? ["minimum", "mean", "maximum"];
    const width = this.labels.length;
    this.columns = new Columns(metrics.length * width);
    this.charts = metrics.filter((metric) => !powers.includes(metric)).map((metric) => {
      const { unit, meaning } = known[metric] ?? {};
      return { metric, place: metrics.indexOf(metric) * width,
        chart: new Chart({ title: metric, unit, meaning, labels: this.labels, band: !nodes }) };
    });
    fill(this.body, this.charts.map(({ chart }) => chart.element));
    const hasRoof = metrics.includes("flops_any") && metrics.includes("mem_bw");
    this.roofline.element.hidden = !hasRoof;
    this.side.hidden = !hasRoof && !powers.length;
    this.side.lastChild.hidden = !powers.length;
    if (hasRoof) this.roofline.units(known.flops_any?.unit, known.mem_bw?.unit);
    if (!total) fill(this.body, h("p", { class: "empty" }, "Its nodes have sent nothing in the last minutes."));
    if (this.span) this.load();
  }

  /** Show columns; `column(place)` returns one of them. */
  show(times, column) {
    const width = this.labels.length;
    for (const { chart, place } of this.charts) {
      chart.set([times, ...this.labels.map((_, at) => column(place + at))]);
    }
    const all = (metric) => {
      const place = this.metrics.indexOf(metric) * width;
      return this.names ? this.names.map((_, at) => column(place + at)) : [column(place + 1)];
    };
    if (!this.roofline.element.hidden) this.roofline.set(all("flops_any"), all("mem_bw"));
    if (this.powers.length) this.showPower(times, all);
  }

  showPower(times, all) {
    const scale = this.names ? 1 : this.total; // else the column is the mean of the nodes
    const columns = this.powers.flatMap(all);
    const power = times.map((_, row) => {
      const there = columns.map((column) => column[row]).filter((value) => value !== null && value !== undefined);
      return there.length ? scale * there.reduce((sum, value) => sum + value, 0) : null;
    });
    this.power.set([times, power]);
    let joules = 0;
    let seconds = 0;
    for (let row = 1; row < times.length; row += 1) {
      if (power[row] === null || power[row - 1] === null) continue;
      const passed = times[row] - times[row - 1];
      joules += ((power[row] + power[row - 1]) / 2) * passed;
      seconds += passed;
    }
    const kilowattHours = joules / 3.6e6;
    fill(this.energy, [
      ["energy in this time", kilowattHours >= 0.1 ? `${kilowattHours.toFixed(2)} kWh` : format(joules, "J")],
      ["mean power", seconds ? format(joules / seconds, "W") : "–"],
      ["per node", seconds && this.total ? format(joules / seconds / this.total, "W") : "–"],
      ["over", duration(seconds)],
    ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  choose(seconds) {
    this.span = seconds;
    say(this.note, "");
    if (seconds) this.load();
    else this.show(this.columns.times, (place) => this.columns.columns[place]);
  }

  /** Show history from the files: of the job, or of the last time that was chosen. */
  async load() {
    if (!this.job || !this.names || this.names.length > MAX_HISTORY_NODES) {
      say(this.note, "History is there for jobs of up to 32 nodes.");
      return;
    }
    const stop = this.job.stop || Date.now() / 1000;
    const asked = this.span;
    const start = Math.max(stop - asked, this.job.start);
    if (!this.note.textContent) say(this.note, "Reading files …");
    try {
      const { times, found } = await fetchHistory({ cluster: this.job.cluster, nodes: this.names,
        start, stop: Math.max(stop, start + 1), metrics: this.metrics });
      if (this.span !== asked) return;
      say(this.note, found.size ? "" : "The files hold nothing of this job in this time.");
      const none = times.map(() => null);
      const width = this.labels.length;
      this.show(times, (place) => {
        const metric = this.metrics[Math.floor(place / width)];
        const averaged = this.known[metric]?.averaged;
        return ofNode(found, this.names[place % width], metric, averaged) ?? none;
      });
    } catch (error) {
      say(this.note, error.message);
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

/** A node's column: what it sent as a whole, else its parts added up or averaged. */
function ofNode(found, node, metric, averaged) {
  const whole = found.get([node, metric, ""].join("\0"));
  if (whole) return whole;
  const prefix = `${node}\0${metric}\0`;
  const parts = [...found].filter(([key]) => key.startsWith(prefix)).map(([, column]) => column);
  if (!parts.length) return null;
  return parts[0].map((_, row) => {
    const there = parts.map((column) => column[row]).filter((value) => value !== null);
    const sum = there.reduce((total, value) => total + value, 0);
    return there.length ? sum / (averaged ? there.length : 1) : null;
  });
}
