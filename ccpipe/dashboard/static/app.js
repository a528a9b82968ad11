// The frame of all pages: which one is shown, what stands at the top, keys.

import { fill, h, say } from "./dom.js";
import { Link } from "./link.js";
import { EventsPage } from "./pages/events.js";
import { HealthPage } from "./pages/health.js";
import { JobPage } from "./pages/job.js";
import { JobsPage } from "./pages/jobs.js";
import { NodePage } from "./pages/node.js";
import { NodesPage } from "./pages/nodes.js";
import { OverviewPage } from "./pages/overview.js";
import { count, plural } from "./units.js";

const PAGES = { "": OverviewPage, nodes: NodesPage, node: NodePage, jobs: JobsPage, job: JobPage,
  events: EventsPage, pipe: HealthPage };
const LINKS = [["Overview", "#/", ["", "overview"]], ["Nodes", "#/nodes", ["nodes", "node"]], ["Jobs", "#/jobs", ["jobs", "job"]],
  ["Events", "#/events", ["events"]], ["Pipe", "#/pipe", ["pipe"]]];

const content = document.getElementById("content");
const status = document.getElementById("status");
let page = null;
let link = null;
let about = { history: false, cluster: "" };

const navigation = LINKS.map(([name, href], place) =>
  h("a", { href, title: `${name} (${place + 1})` }, name));
document.getElementById("nav").append(...navigation);

const chips = {
  bus: h("span", { class: "chip" }, h("i", { class: "dot" }), h("span", {}, "connecting")),
  nodes: h("span", { class: "chip" }), lines: h("span", { class: "chip" }),
  dead: h("a", { class: "chip warn", href: "#/pipe", hidden: true }),
  user: h("a", { class: "chip", href: "#/jobs/mine", title: "My jobs", hidden: true }),
};
status.append(...Object.values(chips));

function showStatus(state) {
  setBus(state.connected ? "good" : "bad", state.connected ? "live" : `no broker ${state.server}`);
  say(chips.nodes, `${plural(state.nodes, "node")}${state.silent ? `, ${state.silent} silent` : ""}`);
  chips.nodes.classList.toggle("warn", state.silent > 0);
  say(chips.lines, `${count(state.lines)} lines/s`);
  chips.dead.hidden = !state.dead;
  say(chips.dead, plural(state.dead, "dead letter"));
}

function setBus(kind, text) {
  chips.bus.firstChild.className = `dot ${kind}`;
  say(chips.bus.lastChild, text);
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decode);
  const Page = PAGES[name] ?? OverviewPage;
  page?.close?.();
  if (about.role !== "admin" && Page === HealthPage) return deny("this is for the role admin");
  page = new Page({ parts, about, params: new URLSearchParams(query), ask: (query) => link.ask(query) });
  fill(content, page.element);
  document.title = page.title ? `${page.title} · ccpipe` : "ccpipe";
  navigation.forEach((anchor, place) => {
    if (LINKS[place][2].includes(name)) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  });
  link.ask(page.query);
  scrollTo(0, 0);
}

/** Show why the server refuses what the page asked for. */
function deny(reason) {
  page?.close?.();
  page = null;
  fill(content, h("section", { class: "card" }, h("h1", {}, "Not permitted"), h("p", {}, reason)));
}

function showViewer() {
  const isAdmin = about.role === "admin";
  navigation[LINKS.findIndex(([name]) => name === "Pipe")].hidden = !isAdmin;
  chips.user.hidden = !about.user && isAdmin;
  say(chips.user, about.user ? `${about.user} (${about.role})` : about.role);
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // storage is disabled: the theme lasts as long as the page
  }
  page?.recolour?.();
}

const toggleTheme = () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
document.getElementById("theme").addEventListener("click", toggleTheme);

addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = Number(event.key) - 1;
  if (LINKS[place]) location.hash = LINKS[place][1];
  else if (event.key === "t") toggleTheme();
  else if (event.key === "/") {
    const search = content.querySelector("input[type=search]");
    search?.focus();
    if (search) event.preventDefault();
  }
});

/** Ask who is looking, after an answer with status 401. */
function signIn(answer) {
  if (answer.headers.get("WWW-Authenticate")?.startsWith("Bearer")) return login();
  deny("You are not signed in, or no longer."); // the proxy asks when the page is loaded
  content.firstChild.append(h("button", { type: "button", onclick: () => location.reload() }, "Sign in"));
}

/** Ask for the token, which the address may bring along: #token=… */
function login(reason = "") {
  const field = h("input", { type: "password", autocomplete: "current-password", "aria-label": "Token" });
  const wrong = h("p", { class: "bad" }, reason);
  const send = () => enter(field.value.trim());
  status.hidden = true; // nothing is known
  fill(content, h("section", { class: "card login" }, h("h1", {}, "Sign in with a token"),
    h("p", {}, "Your administrator has it: in the file of --token-file, or in ",
      h("code", {}, "~/.local/state/ccpipe/dashboard.token"), " of the user who runs the dashboard."),
    h("div", { class: "head" }, field, h("button", { type: "button", onclick: send }, "Sign in")), wrong));
  field.addEventListener("keydown", (event) => event.key === "Enter" && send());
  field.focus();
}

async function enter(token) {
  const answer = await fetch("api/login", { method: "POST", body: token });
  if (answer.ok) start();
  else login("This token is not valid.");
}

async function start() {
  const answer = await fetch("api/about");
  if (answer.status === 401) return signIn(answer);
  if (!answer.ok) return deny((await answer.text()).trim());
  about = await answer.json();
  status.hidden = false;
  showViewer();
  link = new Link(
    (header, numbers) => {
      showStatus(header.status);
      page?.frame(header, numbers);
    },
    (open) => open || setBus("bad", "connection lost"),
    signIn,
    deny,
  );
  addEventListener("hashchange", route);
  route();
}

const brought = /^#token=(.+)$/.exec(location.hash);
if (brought) {
  history.replaceState(null, "", location.pathname); // neither history nor a screenshot keeps it
  enter(decode(brought[1]));
} else start();
