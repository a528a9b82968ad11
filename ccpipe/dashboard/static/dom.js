// Building the page: every text becomes a text node, so that no text can become markup.

/** Create an element with properties and children; children are elements or texts. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

/** Set a text only where it differs: an unchanged page is not laid out anew. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A heading with what stands beside it, above a body. */
export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** A colour of the theme, as CSS has it. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const nodeLink = (cluster, node) =>
  `#/node/${encodeURIComponent(cluster)}/${encodeURIComponent(node)}`;

/** A wide table scrolls by itself, so that the page does not; also by keys, if nothing in it takes the focus. */
export const scrolling = (table) =>
  h("div", { class: "scroll", tabIndex: table.querySelector("a, button") ? null : 0 }, table);

export const jobLink = (job) =>
  `#/job/${encodeURIComponent(job.cluster)}/${job.id}/${job.start}`;
