// What a node is doing: a word, a shape and a colour of the theme, so that nobody depends on the colour.

import { h, say } from "./dom.js";
import { clock, duration } from "./units.js";

/** In the order of the server's numbers. */
export const CONDITIONS = [
  { name: "busy", colour: "good", shape: "●", meaning: "A job runs on it" },
  { name: "idle", colour: "dim", shape: "○", meaning: "No job runs on it" },
  { name: "drained", colour: "warn", shape: "◆", meaning: "The scheduler starts no job on it" },
  { name: "down", colour: "bad", shape: "✕", meaning: "The scheduler reports it as down" },
  { name: "silent", colour: "line4", shape: "▲", meaning: "It has sent nothing for three of its intervals" },
];
export const DRAINED = 2;
export const DOWN = 3;
export const SILENT = 4;

export function conditionMark(number) {
  const { name, shape, meaning } = CONDITIONS[number];
  return h("span", { class: `condition ${name}`, title: meaning },
    h("span", { class: "shape", "aria-hidden": "true" }, shape), name);
}

/** Facts of a node as the server sends them. */
export function readFacts([condition, states, reason, partition, subcluster, jobs, seen]) {
  return { condition, states, reason, partition, subcluster, jobs, seen };
}

/** What else is known: since when it has been silent, the scheduler's states and reason. */
export function remark({ condition, states, reason, seen }) {
  const silence = seen > 0 ? `silent since ${clock(seen)}, ${duration(Date.now() / 1000 - seen)}`
    : seen < 0 ? "has sent no metrics" : "";
  const isPlain = condition < DRAINED || states === CONDITIONS[condition].name;
  const scheduler = [isPlain ? "" : states, reason].filter(Boolean).join(": ");
  return [silence, scheduler].filter(Boolean).join("; ");
}

/** Ask the dashboard to take silent nodes out of the lists; returns an error's text. */
export async function acknowledge(nodes) {
  try {
    const answer = await fetch("api/nodes/acknowledge", { method: "POST", body: JSON.stringify({ nodes }) });
    return answer.ok ? "" : (await answer.text()).trim();
  } catch {
    return "The dashboard does not answer.";
  }
}

/** A button that acknowledges `nodes()`; `note` shows what went wrong. */
export function acknowledgeButton(text, nodes, note) {
  const button = h("button", { type: "button", class: "quiet",
    title: "Do not list it until it sends again",
    onclick: async () => {
      button.disabled = true;
      say(note, await acknowledge(nodes()));
      button.disabled = false;
    } }, text);
  return button;
}
