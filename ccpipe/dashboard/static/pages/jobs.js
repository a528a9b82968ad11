// The list of jobs.

import { card, fill, h, jobLink, nodeLink, say, scrolling } from "../dom.js";
import { clock, count, duration, plural } from "../units.js";

const COLUMNS = ["job", "user", "name", "partition", "nodes", "started", "elapsed", "state"];

/** A table of jobs, or `empty` where there are none. */
export class JobTable {
  constructor(empty = "") {
    this.empty = empty;
    this.running = [];
    this.element = h("div", {});
    this.set([]);
  }

  set(jobs, empty = this.empty) {
    this.running = [];
    const heads = h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: name }, name)));
    fill(this.element, jobs.length
      ? scrolling(h("table", { class: "jobs" }, h("thead", {}, heads),
        h("tbody", {}, jobs.map((job) => this.row(job)))))
      : h("p", { class: "empty" }, empty));
    this.tick();
  }

  row(job) {
    const state = !job.stop ? "running" : job.state === "completed" ? "done" : "failed";
    const cells = {
      job: h("a", { href: jobLink(job) }, String(job.id)),
      user: job.user, name: job.name, partition: job.partition,
      nodes: job.nodes ? [h("a", { href: nodeLink(job.cluster, job.first[0]) }, job.first[0]),
        job.nodes > 1 ? ` +${count(job.nodes - 1)}` : ""] : "–",
      started: clock(job.start), elapsed: duration(job.stop - job.start),
      state: h("span", { class: `state ${state}` }, job.state),
    };
    const row = h("tr", {}, COLUMNS.map((name) => h("td", { class: name }, cells[name])));
    if (!job.stop) this.running.push([row.querySelector(".elapsed"), job.start]);
    return row;
  }

  /** Bring up to date for how long jobs have been running. */
  tick() {
    const now = Date.now() / 1000;
    for (const [cell, start] of this.running) say(cell, duration(now - start));
  }
}

export class JobsPage {
  constructor({ parts, about }) {
    this.title = "Jobs";
    this.query = { view: "jobs" };
    this.jobs = [];
    this.search = h("input", { type: "search", placeholder: "user, name, node, state …  ( / )",
      "aria-label": "Filter jobs", value: parts[0] === "mine" ? about.user : "", oninput: () => this.show() });
    this.table = new JobTable("No jobs yet: their starts and ends come as events.");
    this.shown = h("span", { class: "dim" });
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Jobs"),
      card("Jobs", h("div", { class: "head" }, this.search, this.shown), this.table.element));
  }

  frame(header) {
    if (header.jobs) {
      this.jobs = header.jobs;
      this.total = header.total;
      this.show();
    }
    this.table.tick();
  }

  show() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = this.jobs.filter((job) => {
      const text = [job.id, job.user, job.name, job.partition, job.project, job.state, ...job.first]
        .join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    this.table.set(shown, this.jobs.length ? "No job matches." : undefined);
    const beyond = this.total > this.jobs.length ? `, the latest of ${count(this.total)}` : "";
    say(this.shown, `${plural(shown.length, "job")}${beyond}`);
  }
}
