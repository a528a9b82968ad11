// The list of jobs.

import { card, fill, h, jobLink } from "../dom.js";
import { clock, count, duration } from "../units.js";

const COLUMNS = ["job", "user", "name", "partition", "nodes", "started", "elapsed", "state"];

/** A table of jobs. */
export function jobTable(jobs) {
  return h("table", { class: "jobs" },
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, jobs.map(row)));
}

function row(job) {
  const end = job.stop || Date.now() / 1000;
  const state = h("span", { class: `state ${job.stop ? (job.state === "completed" ? "done" : "failed") : "running"}` },
    job.state);
  const nodes = job.nodes === 1 ? job.first[0] : count(job.nodes);
  return h("tr", {},
    h("td", {}, h("a", { href: jobLink(job) }, String(job.id))),
    h("td", {}, job.user), h("td", { class: "wide" }, job.name), h("td", {}, job.partition),
    h("td", {}, nodes), h("td", { class: "num" }, clock(job.start)),
    h("td", { class: "num" }, duration(end - job.start)), h("td", {}, state));
}

export class JobsPage {
  constructor() {
    this.title = "Jobs";
    this.query = { view: "jobs" };
    this.jobs = [];
    this.search = h("input", { type: "search", placeholder: "user, job, name, partition …  ( / )",
      "aria-label": "Filter jobs", oninput: () => this.show() });
    this.table = h("div", {}, h("p", { class: "empty" }, "No jobs yet."));
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Jobs"),
      card("Jobs", h("div", { class: "head" }, this.search), this.table));
  }

  frame(header) {
    if (!header.jobs) return;
    this.jobs = header.jobs;
    this.show();
  }

  show() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = this.jobs.filter((job) => {
      const text = [job.id, job.user, job.name, job.partition, job.project, job.state, ...job.first]
        .join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    fill(this.table, shown.length ? jobTable(shown)
      : h("p", { class: "empty" }, this.jobs.length ? "No job matches." : "No jobs yet."));
  }
}
