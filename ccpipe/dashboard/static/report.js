// The report of a job, from POST /api/job-report: usage, efficiency, energy, what went wrong.

import { card, h } from "./dom.js";
import { count, energy, format, percent, plural } from "./units.js";

/** Fetch the report of a job of the key { cluster, job, start }; throws an Error with the reason. */
export async function fetchReport(key) {
  const answer = await fetch("api/job-report", { method: "POST", body: JSON.stringify(key) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

/** A card with a report: numbers, findings, and the metrics of all nodes. */
export function reportCard(report) {
  return card("Report", h("dl", { class: "counts" }, facts(report).map(([name, value, more]) =>
    h("div", {}, h("dt", {}, name), h("dd", { title: more ?? null }, value)))),
  report.findings.length
    ? h("ul", { class: "findings" }, report.findings.map(({ text }) => h("li", {}, text)))
    : h("p", { class: "dim" }, "Nothing conspicuous was found."),
  report.metrics.length ? metricTable(report) : h("p", { class: "empty" }, "No metrics of this job are stored."));
}

function facts({ node_hours: nodeHours, cpu_hours: cpuHours, cpu, memory, gpu, energy: used, seconds }) {
  const share = (value) => percent(value ? value.used / value.allocated : null);
  const of = (value, unit) => (value ? `${format(value.used, unit)} of ${format(value.allocated, unit)}, on ${plural(value.nodes, "node")}` : "unknown");
  return [
    ["CPU used", share(cpu), `hardware threads: ${of(cpu, "")}`],
    ["memory used", share(memory), `peak of each node: ${of(memory, "B")}`],
    ...(gpu ? [["GPU used", share(gpu), `GPUs: ${of(gpu, "")}`]] : []),
    ["energy", energy(used?.joules), used ? `of ${plural(used.nodes, "node")}: ${used.metrics.join(" + ")}` : "unknown"],
    ["mean power", used && seconds ? format(used.joules / seconds, "W") : "–"],
    ["node-hours", format(nodeHours)],
    ...(cpuHours === null ? [] : [["CPU-hours", format(cpuHours)]]),
  ];
}

function metricTable({ metrics, is_shared: isShared }) {
  const heads = ["minimum", "mean", "maximum"];
  const row = ({ metric, unit, nodes, ...values }) => {
    const [low, high] = extremes(nodes);
    return h("tr", {}, h("td", {}, metric), heads.map((name) => h("td", { class: "number" }, format(values[name], unit))),
      h("td", {}, nodes.length > 1 ? low.hostname : ""), h("td", {}, nodes.length > 1 ? high.hostname : ""));
  };
  const title = isShared ? "Metrics of its nodes, which it shares" : "Metrics of its nodes";
  return h("details", {}, h("summary", {}, `${title} (${count(metrics.length)})`),
    h("div", { class: "scroll" }, h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "metric"),
      heads.map((name) => h("th", { scope: "col", class: "number" }, name)),
      h("th", { scope: "col" }, "lowest mean on"), h("th", { scope: "col" }, "highest mean on"))),
    h("tbody", {}, metrics.map(row)))));
}

/** The nodes with the lowest and the highest mean. */
function extremes(nodes) {
  let [low, high] = [nodes[0], nodes[0]];
  for (const node of nodes) {
    if (node.mean < low.mean) low = node;
    if (node.mean > high.mean) high = node;
  }
  return [low, high];
}
