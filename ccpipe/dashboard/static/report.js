// The report of a job, from POST /api/job-report: usage, efficiency, energy, what went wrong.

import { card, h } from "./dom.js";
import { count, format, percent, plural } from "./units.js";

/** Fetch the report of a job of the key { cluster, job, start }; throws an Error with the reason. */
export async function fetchReport(key) {
  const answer = await fetch("api/job-report", { method: "POST", body: JSON.stringify(key) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

/** A card with what the job used of what it had, and what went wrong. */
export function reportCard(report) {
  return card("Report", h("dl", { class: "counts" }, facts(report).map(([name, value, more]) =>
    h("div", {}, h("dt", {}, name), h("dd", { title: more ?? null }, value)))),
  report.findings.length
    ? h("ul", { class: "findings" }, report.findings.map(({ text }) => h("li", {}, text)))
    : h("p", { class: "dim" }, "No problems found."));
}

const hours = (number) => (number >= 999.5 ? count(number) : format(number)); // not in thousands of hours

function facts({ node_hours: nodeHours, cpu_hours: cpuHours, cpu, memory, gpu }) {
  const share = (value) => percent(value ? value.used / value.allocated : null);
  const of = (value, unit) => (value ? `${format(value.used, unit)} of ${format(value.allocated, unit)}, on ${plural(value.nodes, "node")}` : "unknown");
  return [
    ["CPU used", share(cpu), `hardware threads: ${of(cpu, "")}`],
    ["memory used", share(memory), `peak of each node: ${of(memory, "B")}`],
    ...(gpu ? [["GPU used", share(gpu), `GPUs: ${of(gpu, "")}`]] : []),
    ["node-hours", hours(nodeHours)],
    ...(cpuHours === null ? [] : [["CPU-hours", hours(cpuHours)]]),
  ];
}
