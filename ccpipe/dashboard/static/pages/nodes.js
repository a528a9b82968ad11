// The nodes as a list and as a map, grouped by rack, partition or name.

import { CONDITIONS, SILENT, acknowledgeButton, conditionMark, readFacts, remark } from "../conditions.js";
import { card, fill, h, nodeLink, say, scrolling } from "../dom.js";
import { groupOf, GROUPS } from "../groups.js";
import { HeatMap, scale } from "../heatmap.js";
import { columnUnit, figure, metricTitle } from "../metrics.js";
import { count, plural } from "../units.js";
import { metricOptions } from "./overview.js";

/** The first of each that a node has is a column of the list. */
const WANTED = [
  ["cpu_load", "load_one"], ["mem_used"], ["flops_any"], ["platform_power", "ipmi_power", "cpu_power"], ["nv_util", "rocm_gfx_util", "acc_utilization"],
];
const ROWS = 200; // shown at first; more take the browser noticeably longer
const MAX_ROWS = 2000;
const MAX_GROUPS = 60;

export class NodesPage {
  constructor({ parts, ask, about }) {
    this.mayAcknowledge = about.role !== "user";
    const [cluster = "", group = "none", view = "list", ...search] = parts;
    Object.assign(this, { ask, cluster, view: view === "map" ? "map" : "list" });
    this.group = Object.hasOwn(GROUPS, group) ? group : "none";
    this.title = "Nodes";
    this.nodes = [];
    this.facts = [];
    this.known = {};
    this.metrics = [];
    this.columns = new Map();
    this.sorted = { column: "name", descending: false };
    this.metric = null;
    this.heats = [];
    this.rows = new Map(); // by place
    this.visible = new Set();
    this.observer = new IntersectionObserver((found) => this.scrolled(found));
    this.setQuery();
    this.makeHead(search.join("/"));
    this.list = h("div", {});
    this.maps = h("div", { class: "groups" });
    this.empty = h("p", { class: "empty" }, "Waiting for the first frame …");
    this.limit = ROWS;
    this.beyond = h("span", {});
    this.more = h("p", { class: "dim small", hidden: true }, this.beyond, " ",
      h("button", { type: "button", class: "quiet", onclick: () => {
        this.limit = MAX_ROWS;
        this.build();
      } }, "Show more"));
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Nodes"),
      card("Nodes", this.head, this.empty, this.list, this.maps, this.more));
  }

  makeHead(search) {
    this.search = h("input", { type: "search", placeholder: "name, state, partition …  ( / )",
      "aria-label": "Filter nodes", value: search, oninput: () => this.change() });
    this.clusters = h("select", { "aria-label": "Cluster", hidden: true, onchange: () => {
      this.cluster = this.clusters.value;
      this.change();
      this.setQuery();
      this.ask(this.query);
    } });
    this.groups = h("select", { "aria-label": "Group by", onchange: () => {
      this.group = this.groups.value;
      this.change();
    } }, Object.entries(GROUPS).map(([value, text]) =>
      h("option", { value, selected: value === this.group }, text)));
    this.pattern = h("input", { class: "pattern", placeholder: "automatic, or e.g. ^r[0-9]+",
      "aria-label": "Regular expression of a rack's name", value: recall("rack"), oninput: () => {
        keep("rack", this.pattern.value);
        this.change();
      } });
    this.views = ["list", "map"].map((view) => h("button", { type: "button",
      "aria-pressed": String(view === this.view), onclick: () => {
        this.view = view;
        this.change();
      } }, view === "list" ? "List" : "Map"));
    this.select = h("select", { "aria-label": "Metric of the map", onchange: () => {
      this.metric = this.select.value;
      this.setQuery();
      this.ask(this.query);
    } });
    this.legend = h("span", { class: "legends" });
    this.shown = h("span", { class: "dim", role: "status" });
    this.note = h("span", { class: "note bad", role: "status" });
    this.all = acknowledgeButton("Acknowledge silent nodes", () => this.silent(), this.note);
    this.head = h("div", { class: "head wrap" }, this.search, this.clusters,
      h("label", { class: "dim" }, "group by ", this.groups), this.pattern,
      h("div", { class: "spans", role: "group", "aria-label": "View" }, this.views), this.select,
      this.shown, this.note, h("span", { class: "gap" }), this.all, this.legend);
  }

  setQuery() {
    const metrics = new Set(this.metrics);
    if (this.metric) metrics.add(this.metric);
    this.query = { view: "nodes", metrics: [...metrics], cluster: this.cluster || null };
  }

  /** Show what was chosen, and put it into the address. */
  change() {
    const parts = [this.cluster, this.group, this.view, this.search.value].map(encodeURIComponent);
    history.replaceState(null, "", `#/nodes/${parts.join("/").replace(/\/+$/, "")}`);
    for (const button of this.views) {
      button.setAttribute("aria-pressed", String(button.textContent.toLowerCase() === this.view));
    }
    this.build();
    this.update();
  }

  frame(header, numbers) {
    if (header.nodes) this.setNodes(header);
    const before = this.facts;
    if (header.facts) this.facts = header.facts.map(readFacts);
    const size = this.nodes.length;
    this.columns = new Map(header.columns.map((metric, place) =>
      [metric, numbers.subarray(place * size, (place + 1) * size)]));
    if (header.nodes || header.first || (header.facts && this.dependsOnFacts())) this.build();
    else if (header.facts) this.renew(before);
    this.update();
  }

  /** Whether facts choose the rows, their groups or their order. */
  dependsOnFacts() {
    return this.search.value !== "" || ["partition", "subcluster"].includes(this.group)
      || !["name", "cluster", ...this.metrics].includes(this.sorted.column);
  }

  setNodes({ nodes, known, metrics, clusters }) {
    this.nodes = nodes;
    this.known = known;
    this.severalClusters = clusters.length > 1;
    this.clusters.hidden = clusters.length < 2 && !this.cluster;
    fill(this.clusters, ["", ...clusters].map((name) =>
      h("option", { value: name, selected: name === this.cluster }, name || "all clusters")));
    const before = JSON.stringify(this.query);
    this.metrics = WANTED.map((names) => names.find((name) => metrics[name])).filter(Boolean);
    this.metric ??= this.metrics[0] ?? Object.keys(metrics)[0] ?? null;
    const names = Object.keys(metrics).sort((a, b) => metricTitle(a).localeCompare(metricTitle(b)));
    fill(this.select, metricOptions(names, this.metric));
    this.setQuery();
    if (JSON.stringify(this.query) !== before) this.ask(this.query);
  }

  silent() {
    return this.places().filter((place) => this.facts[place].condition === SILENT)
      .map((place) => this.nodes[place]);
  }

  /** The places of the nodes that are searched for. */
  places() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.facts.length === this.nodes.length ? [...this.nodes.keys()] : [];
    return found.filter((place) => {
      const { condition, states, reason, partition, subcluster } = this.facts[place];
      const text = [...this.nodes[place], CONDITIONS[condition].name, states, reason, partition, subcluster]
        .join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  /** Make the rows of the list or the maps anew: nodes, groups or what is chosen have changed. */
  build() {
    const places = this.places();
    const isMap = this.view === "map";
    this.pattern.hidden = this.group !== "rack";
    this.select.hidden = !isMap;
    this.maps.hidden = !isMap;
    this.list.hidden = isMap || !places.length;
    this.legend.hidden = !isMap;
    this.showSilent(places);
    say(this.shown, plural(places.length, "node"));
    this.empty.hidden = places.length > 0;
    say(this.empty, this.nodes.length ? "No node matches." : "No metrics have been received yet.");
    const groups = this.grouped(places);
    if (isMap) this.buildMaps(groups);
    else this.buildList(groups, places.length);
  }

  showSilent(places) {
    this.all.hidden = !this.mayAcknowledge || !places.some((place) => this.facts[place].condition === SILENT);
  }

  /** Groups of places by their names, in order. */
  grouped(places) {
    const groups = new Map();
    for (const place of places) {
      const own = groupOf(this.group, this.nodes[place], this.facts[place], this.pattern.value);
      const isMixed = this.severalClusters && !this.cluster && !["none", "cluster"].includes(this.group);
      const name = isMixed ? `${this.nodes[place][0]} ${own}` : own;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(place);
    }
    const natural = new Intl.Collator("en", { numeric: true });
    const ordered = [...groups].sort(([a], [b]) => natural.compare(a, b));
    const rest = ordered.splice(MAX_GROUPS);
    if (rest.length) ordered.push([`${rest.length} other groups`, rest.flatMap(([, each]) => each)]);
    return ordered;
  }

  buildMaps(groups) {
    this.more.hidden = true;
    const names = groups.map(([name]) => name).join("\0");
    if (this.mapNames !== names) {
      this.mapNames = names;
      for (const { heat } of this.heats) heat.close();
      this.heats = groups.map(([name]) => this.map(name));
      fill(this.maps, this.heats.map(({ element }) => element));
      fill(this.legend, this.heats[0]?.heat.legend);
    }
    groups.forEach(([, places], number) => {
      this.heats[number].places = places;
      say(this.heats[number].size, plural(places.length, "node"));
    });
  }

  map(name) {
    const found = { places: [], size: h("span", { class: "dim" }) };
    found.heat = new HeatMap(name || "Nodes", (at) => {
      location.hash = nodeLink(...this.nodes[found.places[at]]);
    }, (at) => this.nodes[found.places[at]]?.[1] ?? "", (at) => remark(this.facts[found.places[at]]));
    found.element = h("section", {}, h("h3", { hidden: !name }, `${name} `, found.size), found.heat.element);
    return found;
  }

  buildList(groups, total) {
    const heads = [["name", "Node"], ["cluster", "Cluster"], ["condition", "State"],
      ["partition", "Partition"], ["jobs", "Jobs"], ...this.metrics.map((name) => [name, ""]),
      ["remark", "Remark"]].filter(([key]) => key !== "cluster" || this.severalClusters);
    this.heads = heads.map(([key, text]) => ({ key, cell: this.headCell(key, text) }));
    this.rows = new Map();
    this.visible.clear();
    this.observer.disconnect();
    const bodies = groups.map(([name, places]) => h("tbody", {},
      name ? h("tr", { class: "group" }, h("th", { colSpan: heads.length, scope: "rowgroup" },
        `${name} `, h("span", { class: "dim" }, plural(places.length, "node")))) : null,
      this.inOrder(places).map((place) => this.rows.size < this.limit ? this.row(place) : null)));
    fill(this.list, scrolling(h("table", { class: "nodes" },
      h("thead", {}, h("tr", {}, this.heads.map(({ cell }) => cell))), bodies)));
    this.showUnits();
    for (const row of this.rows.values()) this.showRow(row);
    this.more.hidden = total <= this.limit;
    this.more.lastChild.hidden = this.limit === MAX_ROWS;
    say(this.beyond, `The first ${count(this.limit)} of ${count(total)} nodes; search for others, or sort.`);
  }

  headCell(key, text) {
    const { column, descending } = this.sorted;
    const order = key === column ? (descending ? "descending" : "ascending") : null;
    return h("th", { scope: "col", class: this.metrics.includes(key) || key === "jobs" ? "figure" : key,
      "aria-sort": order }, h("button", { type: "button", class: "plain", title: `Sort by ${key}`,
      onclick: () => {
        const isText = ["name", "cluster", "partition", "remark"].includes(key);
        this.sorted = { column: key, descending: key === column ? !descending : !isText };
        this.build();
        this.update();
      } }, text));
  }

  /** Places sorted by the chosen column; the server has sorted them by name. */
  inOrder(places) {
    const { column, descending } = this.sorted;
    const sign = descending ? -1 : 1;
    if (column === "name") return descending ? places.toReversed() : places;
    const value = (place) => this.columns.get(column)?.[place] ?? {
      cluster: this.nodes[place][0], remark: remark(this.facts[place]),
    }[column] ?? this.facts[place][column] ?? "";
    const isMissing = (one) => one === "" || Number.isNaN(one);
    const compare = (a, b) => isMissing(a) - isMissing(b)
      || (isMissing(a) ? 0 : sign * (typeof a === "string" ? a.localeCompare(b) : a - b));
    return places.toSorted((a, b) => compare(value(a), value(b)));
  }

  row(place) {
    const [cluster, name] = this.nodes[place];
    const facts = this.facts[place];
    const figures = this.metrics.map(() => h("td", { class: "figure" }));
    const text = h("span", {});
    const silent = facts.condition === SILENT;
    const tr = h("tr", {}, h("th", { scope: "row", class: "name" }, h("a", { href: nodeLink(cluster, name) }, name)),
      this.severalClusters ? h("td", { class: "cluster" }, cluster) : null,
      h("td", {}, conditionMark(facts.condition)), h("td", { class: "partition" }, facts.partition),
      h("td", { class: "figure" }, facts.jobs ? count(facts.jobs) : ""), figures,
      h("td", { class: "remark" }, text,
        silent && this.mayAcknowledge ? [" ", acknowledgeButton("Acknowledge", () => [[cluster, name]], this.note)] : null));
    this.rows.set(place, { place, figures, text, tr });
    this.observer.observe(tr);
    tr.place = place;
    return tr;
  }

  /** Make the rows of nodes anew whose facts have changed. */
  renew(before) {
    this.showSilent(this.places());
    for (const [place, { tr }] of this.rows) {
      if (JSON.stringify(before[place]) === JSON.stringify(this.facts[place])) continue;
      this.observer.unobserve(tr);
      tr.replaceWith(this.row(place));
      this.showRow(this.rows.get(place));
    }
  }

  /** Only rows that can be seen show each second's values: a page of 1000 nodes stays quick. */
  scrolled(found) {
    for (const { target, isIntersecting } of found) {
      if (isIntersecting) this.visible.add(target.place);
      else this.visible.delete(target.place);
    }
    this.update();
  }

  /** Show the values of this second. */
  update() {
    if (this.view === "map") this.updateMaps();
    else if (this.rows.size) this.updateList();
  }

  updateMaps() {
    const values = this.columns.get(this.metric);
    if (!values) return;
    const { unit, meaning } = this.known[this.metric] ?? {};
    this.top = this.topOf === this.metric ? scale(values, unit, this.top) : scale(values, unit, 0);
    this.topOf = this.metric;
    for (const { heat, places } of this.heats) {
      heat.set(Float32Array.from(places, (place) => values[place]),
        places.map((place) => this.facts[place].condition), unit, this.top);
      heat.canvas.title = meaning ?? "";
    }
  }

  updateList() {
    this.showUnits();
    for (const place of this.visible) if (this.rows.has(place)) this.showRow(this.rows.get(place));
  }

  showUnits() {
    this.units = this.metrics.map((metric) =>
      columnUnit(this.columns.get(metric) ?? [], this.known[metric]?.unit));
    for (const { key, cell } of this.heads) {
      const unit = this.units[this.metrics.indexOf(key)]?.name;
      if (this.metrics.includes(key)) say(cell.firstChild, metricTitle(key) + (unit ? ` (${unit})` : ""));
    }
  }

  showRow({ place, figures, text }) {
    figures.forEach((cell, at) =>
      say(cell, figure(this.columns.get(this.metrics[at])?.[place], this.units[at].factor)));
    say(text, remark(this.facts[place]));
  }

  recolour() {
    for (const { heat } of this.heats) heat.draw();
  }

  close() {
    this.observer.disconnect();
    for (const { heat } of this.heats) heat.close();
  }
}

function recall(name) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return ""; // storage is disabled
  }
}

function keep(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // storage is disabled: the choice lasts as long as the page
  }
}
