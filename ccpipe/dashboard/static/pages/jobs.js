// The list of jobs: searched, sorted and paged by the server; everything chosen is in the address.

import { card, fill, h, jobLink, nodeLink, say, scrolling } from "../dom.js";
import { metricTitle } from "../metrics.js";
import { clock, count, duration, energy, percent, plural } from "../units.js";

const COLUMNS = ["job", "user", "name", "partition", "nodes", "started", "elapsed", "state"];
const FAILED = ["failed", "timeout", "out_of_memory", "node_fail", "boot_fail", "deadline", "preempted"];

const isPending = (job) => job.state === "pending";

/** The state of a job, as a shape as well as a colour. */
export function stateOf(job) {
  const [kind, shape] = isPending(job) ? ["pending", "⋯"] : !job.stop ? ["running", "▶"]
    : job.state === "completed" ? ["done", "✓"]
      : FAILED.includes(job.state) ? ["failed", "✕"] : ["done", "■"];
  return h("span", { class: `state ${kind}` }, h("i", { "aria-hidden": "true" }, shape),
    job.state.replaceAll("_", " "));
}

/** The number of a job with a link, or of one that waits, of which there is no page. */
const numberOf = (job) => (isPending(job)
  ? `${job.job}${job.tasks ? ` (${plural(job.tasks, "task")})` : ""}`
  : h("a", { href: jobLink({ ...job, id: job.job }) }, String(job.job)));

const nodesOf = (job, first) => (job.nodes ? [h("a", { href: nodeLink(job.cluster, first) }, first),
  job.nodes > 1 ? ` +${count(job.nodes - 1)}` : ""] : "–");

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
    const heads = h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: classOf(name) }, name)));
    fill(this.element, jobs.length
      ? scrolling(h("table", { class: "jobs" }, h("thead", {}, heads),
        h("tbody", {}, jobs.map((job) => this.row(job)))))
      : h("p", { class: "empty" }, empty));
    this.tick();
  }

  row(job) {
    const cells = {
      job: h("a", { href: jobLink(job) }, String(job.id)),
      user: job.user, name: job.name, partition: job.partition, nodes: nodesOf(job, job.first[0]),
      started: clock(job.start), elapsed: duration(job.stop - job.start), state: stateOf(job),
    };
    const row = h("tr", {}, COLUMNS.map((name) => h("td", { class: classOf(name) }, cells[name])));
    if (!job.stop) this.running.push([row.querySelector(".elapsed"), job.start]);
    return row;
  }

  /** Bring up to date for how long jobs have been running. */
  tick() {
    const now = Date.now() / 1000;
    for (const [cell, start] of this.running) say(cell, duration(now - start));
  }
}

const PAGE = 100;
const TYPING = 250;
const MIN_REFRESH = 2000;
const DEFAULT_SORT = "-stop";
/** Heads of the table: the column to sort by, the title, whether the largest comes first. */
const HEADS = [
  ["state", "state"], ["job", "job", true], ["user", "user"], ["project", "project"],
  ["partition", "partition"], ["name", "name"], ["nodes", "nodes", true], ["start", "started", true],
  ["stop", "ended", true], ["duration", "duration", true], ["energy", "energy", true],
  ["cpu", "CPU", true], ["memory", "memory", true], ["gpu", "GPU", true],
  ["findings", "findings", true],
];
/** Heads of a table of pending jobs only. */
const PENDING_HEADS = [
  ["state", "state"], ["job", "job", true], ["user", "user"], ["project", "project"],
  ["partition", "partition"], ["name", "name"], ["nodes", "nodes", true],
  ["hwthreads", "hardware threads", true], ["walltime", "time limit", true],
  ["submit", "waiting since"], ["reason", "reason"],
];
const NUMBERS = new Set(["job", "nodes", "start", "started", "stop", "duration", "elapsed", "energy", "cpu",
  "memory", "gpu", "hwthreads", "walltime", "submit"]);
const LISTS = ["user", "project", "partition", "state", "node", "cluster"];
/** Ranges with the factor from what is typed to what is stored. */
const RANGES = {
  duration: ["duration (h)", 3600], nodes: ["nodes", 1], energy: ["energy (kWh)", 3.6e6],
  cpu: ["CPU used (%)", 0.01], memory: ["memory used (%)", 0.01], gpu: ["GPU used (%)", 0.01],
};
const METRICS = ["cpu_load", "flops_any", "mem_bw", "ipc", "mem_used", "nv_util", "nv_fb_mem_used",
  "rocm_gfx_util", "ib_total_bw", "lustre_read_bw", "lustre_write_bw"];
const STATES = [["all", {}], ["running", { show: "running" }], ["pending", { state: "pending" }], ["finished", { show: "finished" }],
  ["failed", { state: FAILED.join(",") }]];

export class JobsPage {
  constructor({ parts, params, about }) {
    this.title = "Jobs";
    this.query = { view: "jobs" };
    this.params = params;
    if (parts[0] === "mine" && about.user) params.set("user", about.user);
    this.running = [];
    this.asked = 0;
    this.shown = h("span", { class: "dim", role: "status" });
    this.body = h("div", {});
    this.pages = h("div", { class: "pages" });
    this.search = h("input", { type: "search", placeholder: "user, name, node, state …  ( / )",
      "aria-label": "Search jobs", value: params.get("q") ?? "", oninput: () => this.type("q", this.search.value) });
    this.choices = STATES.map(([name, values]) => h("button", { type: "button",
      onclick: () => this.change({ show: "", state: "", ...values }) }, name));
    const mine = about.user
      ? h("button", { type: "button", class: "mine", onclick: () => this.change({ user: about.user }) }, "my jobs")
      : null;
    this.filters = this.fields();
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Jobs"),
      card("Jobs", h("div", { class: "head" }, this.search,
        h("div", { class: "spans", role: "group", "aria-label": "State" }, this.choices), mine, this.shown),
      this.filters, this.body, this.pages));
    this.load();
  }

  /** Fields for each filter, closed unless one of them is in the address. */
  fields() {
    const field = (name, title, properties = {}) => h("label", {}, h("span", {}, title),
      h("input", { name, value: this.params.get(name) ?? "", oninput: (event) => this.type(name, event.target.value), ...properties }));
    const limits = (name, title) => h("div", { class: "range" }, field(`${name}_min`, title, { inputMode: "decimal", placeholder: "from" }),
      field(`${name}_max`, "\u00a0", { inputMode: "decimal", placeholder: "to", "aria-label": `${title}, to` }));
    const metric = h("select", { onchange: (event) => this.change({ metric: event.target.value }) },
      ["", ...METRICS].map((name) => h("option", { value: name, selected: name === (this.params.get("metric") ?? "") },
        name ? metricTitle(name) : "any")));
    const isUsed = [...this.params.keys()].some((name) => !["q", "show", "sort", "page"].includes(name));
    return h("details", { class: "filters", open: isUsed }, h("summary", {}, "Filters"), h("div", { class: "fields" },
      LISTS.map((name) => field(name, name)), field("name", "name contains"),
      field("since", "ran after", { type: "datetime-local" }), field("until", "started before", { type: "datetime-local" }),
      Object.entries(RANGES).map(([name, [title]]) => limits(name, title)),
      h("label", {}, h("span", {}, "metric"), metric), limits("metric", "mean of the metric"),
      h("button", { type: "button", onclick: () => this.clear() }, "clear")));
  }

  type(name, value) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.change({ [name]: value.trim() }), TYPING);
  }

  clear() {
    for (const input of this.element.querySelectorAll("input, select")) input.value = "";
    this.change(Object.fromEntries([...this.params.keys()].map((name) => [name, ""])));
  }

  /** Put values into the address, and load. */
  change(values) {
    for (const [name, value] of Object.entries({ page: "", ...values })) {
      if (value) this.params.set(name, value);
      else this.params.delete(name);
      const input = this.element.querySelector(`input[name="${name}"]`);
      if (input && input !== document.activeElement) input.value = value;
    }
    const text = this.params.toString();
    history.replaceState(null, "", text ? `#/jobs?${text}` : "#/jobs");
    this.load();
  }

  /** What the server is asked for, by the address. */
  request() {
    const get = (name) => this.params.get(name) ?? "";
    const ranges = {};
    const add = (column, name, factor) => {
      const bounds = [`${name}_min`, `${name}_max`].map((key) =>
        (get(key) === "" || Number.isNaN(Number(get(key))) ? null : Number(get(key)) * factor));
      if (bounds.some((bound) => bound !== null)) ranges[column] = bounds;
    };
    for (const [name, [, factor]] of Object.entries(RANGES)) add(name, name, factor);
    if (METRICS.includes(get("metric"))) add(`mean_${get("metric")}`, "metric", 1);
    const sort = get("sort") || (this.isQueue() ? "submit" : DEFAULT_SORT);
    const request = { sort: sort.replace(/^-/, ""), descending: sort.startsWith("-"), ranges,
      limit: PAGE, offset: PAGE * (Math.max(1, Number(get("page")) || 1) - 1),
      words: get("q").split(/\s+/).filter(Boolean), name: get("name") };
    for (const name of LISTS) request[name] = get(name).split(",").map((text) => text.trim()).filter(Boolean);
    if (get("show")) request.is_running = get("show") === "running";
    for (const name of ["since", "until"]) {
      const time = Date.parse(get(name));
      if (!Number.isNaN(time)) request[name] = time / 1000;
    }
    return request;
  }

  /** Whether only pending jobs are chosen, which have columns of their own. */
  isQueue() {
    return this.params.get("state") === "pending";
  }

  async load() {
    clearTimeout(this.refresh);
    this.refresh = 0;
    const asked = (this.asked += 1);
    const request = this.request();
    this.mark();
    try {
      const answer = await fetch("api/jobs", { method: "POST", body: JSON.stringify(request) });
      if (asked !== this.asked) return;
      if (!answer.ok) throw new Error((await answer.text()).trim());
      this.show(await answer.json(), request);
    } catch (error) {
      if (asked === this.asked) say(this.shown, error.message);
    }
  }

  /** Mark what is chosen. */
  mark() {
    const of = (name) => this.params.get(name) ?? "";
    this.choices.forEach((button, place) => {
      const { show = "", state = "" } = STATES[place][1];
      button.setAttribute("aria-pressed", String(of("show") === show && of("state") === state));
    });
  }

  show({ jobs, total }, request) {
    this.running = [];
    this.columns = this.isQueue() ? PENDING_HEADS : HEADS;
    const isFiltered = [...this.params.keys()].some((name) => name !== "sort" && name !== "page");
    const empty = isFiltered ? "No job matches." : "No jobs yet: they are known from events.";
    fill(this.body, jobs.length
      ? scrolling(h("table", { class: "jobs sorted" }, h("thead", {}, this.heads(request)),
        h("tbody", {}, jobs.map((job) => this.row(job)))))
      : h("p", { class: "empty" }, empty));
    const first = request.offset + 1;
    const range = total > jobs.length ? `${count(first)} to ${count(first + jobs.length - 1)} of ` : "";
    say(this.shown, `${range}${plural(total, "job")}`);
    const page = request.offset / PAGE + 1;
    const go = (name, to, isThere) => h("button", { type: "button", disabled: !isThere,
      onclick: () => this.change({ page: to > 1 ? String(to) : "" }) }, name);
    fill(this.pages, total > PAGE ? [go("previous", page - 1, page > 1),
      h("span", {}, `page ${count(page)} of ${count(Math.ceil(total / PAGE))}`),
      go("next", page + 1, page * PAGE < total)] : null);
    this.tick();
  }

  heads({ sort, descending }) {
    return h("tr", {}, this.columns.map(([column, title, isLargestFirst]) => {
      const isSorted = column === sort;
      const next = isSorted ? !descending : Boolean(isLargestFirst);
      return h("th", { scope: "col", class: classOf(column),
        "aria-sort": isSorted ? (descending ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => this.change({ sort: `${next ? "-" : ""}${column}` }) },
        title));
    }));
  }

  row(job) {
    const only = (name) => h("a", { href: `#/jobs?${new URLSearchParams({ [name]: job[name] })}` }, job[name]);
    const why = isPending(job) ? job.reason : job.findings;
    const findings = why ? why.split("\n") : [];
    const cells = {
      state: stateOf(job), job: numberOf(job),
      user: only("user"), project: job.project, partition: job.partition, name: job.name,
      nodes: isPending(job) ? count(job.nodes) : nodesOf(job, job.first_node),
      start: job.start ? clock(job.start) : "", stop: job.stop ? clock(job.stop) : "",
      hwthreads: job.hwthreads ? count(job.hwthreads) : "", reason: job.reason,
      walltime: job.walltime ? duration(job.walltime) : "", submit: job.submit ? clock(job.submit) : "",
      duration: isPending(job) ? "" : duration(job.duration), energy: energy(job.energy),
      cpu: percent(job.cpu), memory: percent(job.memory), gpu: percent(job.gpu),
      findings: findings.length ? h("span", { title: why, class: isPending(job) ? "dim" : null }, findings[0],
        findings.length > 1 ? ` +${findings.length - 1}` : "") : "",
    };
    const row = h("tr", {}, this.columns.map(([column]) => h("td", { class: classOf(column) }, cells[column])));
    if (job.start && !job.stop && !this.isQueue()) this.running.push([row.querySelector(".duration"), job.start]);
    return row;
  }

  frame({ changed }) {
    if (changed && !this.refresh) this.refresh = setTimeout(() => this.load(), this.asked > 1 ? MIN_REFRESH : 0);
    this.tick();
  }

  tick() {
    const now = Date.now() / 1000;
    for (const [cell, start] of this.running) say(cell, duration(now - start));
  }

  close() {
    clearTimeout(this.typing);
    clearTimeout(this.refresh);
    this.asked += 1;
  }
}

const classOf = (column) => (NUMBERS.has(column) ? `${column} number` : column);
