// Events and log messages as they come.

import { card, h, jobLink, nodeLink } from "../dom.js";
import { clock, duration, plural } from "../units.js";

const MAX_LINES = 1000;
const MAX_NODES = 20;

/** One event or log message as a line; a click shows all of its text. */
export function entryLine(entry) {
  const level = entry.kind === "event" ? "event" : entry.label;
  const known = ["event", "debug", "info", "warn", "error"].includes(level) ? level : "info";
  const shown = brief(entry);
  const line = h("li", { class: `entry ${known}` },
    h("time", {}, clock(entry.time)),
    h("span", { class: "label" }, entry.label || entry.kind),
    entry.hostname
      ? h("a", { href: nodeLink(entry.cluster, entry.hostname) }, entry.hostname) : h("span", {}, "–"),
    shown.job ? h("a", { href: jobLink(shown.job) }, `job ${shown.job.id}`)
      : h("span", { class: "of" }, entry.name),
    h("span", { class: "text", title: "Click to show all" }, shown.text));
  const text = line.lastChild;
  text.addEventListener("click", () => {
    text.textContent = line.classList.toggle("open") ? entry.text : shown.text;
  });
  line.search = [entry.label, entry.hostname, entry.name, entry.text, entry.cluster].join(" ").toLowerCase();
  line.dataset.kind = entry.kind;
  return line;
}

/** What an event says, in short, rather than its JSON; of a job its key too. */
function brief({ name, text, label, cluster }) {
  if (!["job", "nodestate", "nodereason"].includes(name)) return { text };
  try {
    if (name !== "job") return { text: nodesOf(JSON.parse(text)) };
    const job = JSON.parse(text);
    const nodes = job.numNodes ? plural(job.numNodes, "node") : "";
    const ran = job.stopTime && job.startTime ? `after ${duration(job.stopTime - job.startTime)}` : "";
    const state = label === "stop_job" ? job.jobState : "";
    const words = [job.user, job.metaData?.jobName, nodes, state, ran].filter(Boolean).join("  ");
    const known = Number.isInteger(job.jobId) && Number.isInteger(job.startTime);
    return known
      ? { text: words, job: { cluster: job.cluster || cluster, id: job.jobId, start: job.startTime } }
      : { text: `job ${job.jobId}  ${words}` };
  } catch {
    return { text };
  }
}

/** States or reasons of nodes: "n1: idle, drain; n2: down". */
const nodesOf = ({ nodes }) => nodes.slice(0, MAX_NODES).map(({ hostname, states, reason }) =>
  `${hostname}: ${states?.join(", ") || reason || "no reason"}`).join("; ") + (nodes.length > MAX_NODES ? " …" : "");

export class EventsPage {
  constructor() {
    this.title = "Events";
    this.query = { view: "events" };
    this.waiting = [];
    this.search = h("input", { type: "search", placeholder: "node, text, class …  ( / )",
      "aria-label": "Filter", oninput: () => this.filter() });
    this.kind = h("select", { "aria-label": "Kind", onchange: () => this.filter() },
      [["", "events and log"], ["event", "events"], ["log", "log"]]
        .map(([value, name]) => h("option", { value }, name)));
    this.pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "Pause");
    this.lines = h("ol", { class: "log tall" });
    this.empty = h("p", { class: "empty" }, "No events yet.");
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Events"),
      card("Events and log", h("div", { class: "head" }, this.search, this.kind, this.pause),
        this.empty, this.lines));
  }

  frame(header) {
    if (header.first) this.lines.replaceChildren();
    this.waiting.push(...header.entries);
    this.waiting.splice(0, Math.max(0, this.waiting.length - MAX_LINES));
    if (this.pause.getAttribute("aria-pressed") === "true") {
      this.pause.textContent = this.waiting.length ? `Go on (${this.waiting.length})` : "Go on";
      return;
    }
    if (!this.waiting.length) return;
    const fresh = this.waiting.splice(0).map(entryLine).reverse();
    for (const line of fresh) line.hidden = !this.matches(line);
    this.lines.prepend(...fresh);
    while (this.lines.children.length > MAX_LINES) this.lines.lastChild.remove();
    this.empty.hidden = true;
  }

  toggle() {
    const paused = this.pause.getAttribute("aria-pressed") !== "true";
    this.pause.setAttribute("aria-pressed", String(paused));
    this.pause.textContent = paused ? "Go on" : "Pause";
  }

  matches(line) {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (!this.kind.value || line.dataset.kind === this.kind.value)
      && words.every((word) => line.search.includes(word));
  }

  filter() {
    for (const line of this.lines.children) line.hidden = !this.matches(line);
  }
}
