// How the pipe does.

import { Chart, Columns } from "../chart.js";
import { card, fill, h, scrolling } from "../dom.js";
import { clock, count, format } from "../units.js";

const COUNTS = [
  ["lines", "lines received"], ["payloads", "messages"], ["bytes", "bytes"], ["series", "series"],
  ["rejected", "bad lines"], ["dead", "dead letters"], ["dropped", "lines dropped"],
  ["left_out", "series not shown"],
];
const MAX_LETTERS = 100;

export class HealthPage {
  constructor() {
    this.title = "Pipe";
    this.query = { view: "health" };
    this.columns = new Columns(3);
    this.charts = [["Lines", ""], ["Messages", ""], ["Bytes", "B/s"]].map(([title, unit]) =>
      new Chart({ title: `${title} per second`, unit, labels: [""] }));
    this.counts = h("dl", { class: "counts" });
    this.consumers = h("div", {});
    this.streams = h("div", {});
    this.reasons = h("div", {});
    this.letters = h("ol", { class: "log letters" });
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Pipe"),
      h("div", { class: "charts three" }, this.charts.map((chart) => chart.element)),
      h("section", { class: "card" }, this.counts),
      h("div", { class: "halves" },
        card("Bridges", this.consumers, h("p", { class: "dim small" }, "Pending messages are not "
          + "read yet. Those with a pending acknowledgement (ack) are not in the bridge's store yet.")),
        card("Streams", this.streams)),
      card("Dead letters", this.reasons, this.letters));
  }

  frame(header) {
    if (header.first) {
      this.columns = new Columns(3);
      this.letters.replaceChildren();
    }
    const rates = header.rates;
    this.columns.add(rates.map(([time]) => time),
      rates.flatMap(([, payloads, lines, bytes]) => [lines, payloads, bytes]));
    this.charts.forEach((chart, place) =>
      chart.set([this.columns.times, this.columns.columns[place]]));
    fill(this.counts, COUNTS.map(([key, name]) => h("div", {
      class: ["rejected", "dead", "dropped", "left_out"].includes(key) && header.counts[key] ? "warn" : "",
    }, h("dt", {}, name), h("dd", {}, key === "bytes" ? format(header.counts[key], "B") : count(header.counts[key])))));
    this.showStreams(header);
    this.showDead(header);
  }

  showStreams({ consumers, streams, problem }) {
    const why = h("p", { class: "empty" }, problem || "There are none: JetStream stores nothing here.");
    fill(this.consumers, consumers.length ? table(
      ["bridge", "stream", "pending", "ack pending", "redelivered"], [2, 3, 4],
      consumers.map((each) => [each.name, each.stream, count(each.waiting),
        count(each.ack_pending), count(each.redelivered)]),
      (place) => consumers[place].waiting > 10000) : why);
    fill(this.streams, streams.length ? table(["stream", "messages", "size", "subjects"], [1, 2],
      streams.map((each) => [each.name, count(each.messages), format(each.bytes, "B"),
        each.subjects.join(", ")])) : why.cloneNode(true));
  }

  showDead({ letters, reasons }) {
    const found = Object.entries(reasons).sort(([, a], [, b]) => b - a);
    fill(this.reasons, found.length
      ? table(["times", "reason"], [0], found.slice(0, 10).map(([reason, times]) => [count(times), reason]))
      : h("p", { class: "empty" }, "None. Lines that a store rejects would be listed here with the reason."));
    this.letters.prepend(...letters.map(letterLine).reverse());
    while (this.letters.children.length > MAX_LETTERS) this.letters.lastChild.remove();
  }

  recolour() {
    for (const chart of this.charts) chart.recolour();
  }

  close() {
    for (const chart of this.charts) chart.close();
  }
}

function letterLine(letter) {
  const line = h("li", { class: "entry letter error" },
    h("time", {}, clock(letter.time)), h("span", { class: "label" }, letter.reason || "no reason"),
    h("span", {}, letter.origin || letter.subject),
    h("span", { class: "text", title: "Click to show all", onclick: () => line.classList.toggle("open") },
      letter.text));
  return line;
}

/** A table; `numbers` are the places of the columns with numbers. */
function table(heads, numbers, rows, marked = () => false) {
  const classOf = (place) => (numbers.includes(place) ? "number" : null);
  return scrolling(h("table", { class: numbers.includes(heads.length - 1) ? null : "fit" },
    h("thead", {}, h("tr", {}, heads.map((name, place) => h("th", { scope: "col", class: classOf(place) }, name)))),
    h("tbody", {}, rows.map((cells, row) => h("tr", { class: marked(row) ? "warn" : "" },
      cells.map((cell, place) => h("td", { class: classOf(place) }, cell)))))));
}
