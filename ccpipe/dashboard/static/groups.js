// Groups of nodes: by cluster, partition, rack or the beginning of the name.

export const GROUPS = {
  none: "nothing", cluster: "cluster", partition: "partition", subcluster: "subcluster",
  rack: "rack", name: "name",
};

/** The name of a node's group; "" where nodes are not grouped. */
export function groupOf(group, [cluster, name], { partition, subcluster }, pattern = "") {
  if (group === "cluster") return cluster;
  if (group === "partition") return partition || "no partition";
  if (group === "subcluster") return subcluster || "no subcluster";
  if (group === "rack") return rackOf(name, pattern);
  if (group === "name") return /^\D*/.exec(name)[0] || "0–9";
  return "";
}

/**
 * The rack in a node's name: what a pattern matches, or its first group. Without one, `r01n05` is in
 * `r01`, and `f0123`, whose rack and place have two digits each, in `f01`.
 */
export function rackOf(name, pattern = "") {
  const found = expression(pattern)?.exec(name);
  if (found) return found[1] ?? found[0];
  const numbers = [...name.matchAll(/[0-9]+/g)];
  const last = numbers.at(-1);
  if (!last) return name;
  if (numbers.length > 1) return name.slice(0, last.index).replace(/[^0-9]+$/, "");
  if (last[0].length > 2) return name.slice(0, last.index + last[0].length - 2);
  return name.slice(0, last.index) || name;
}

/** A regular expression, or null for an empty or invalid one. */
function expression(pattern) {
  try {
    return pattern ? new RegExp(pattern) : null;
  } catch {
    return null;
  }
}
