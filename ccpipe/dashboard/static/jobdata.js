// A job's columns by metric and label, from the store and from live rows, and what follows of them.

/** Labels of the columns of a job with more nodes than lines. */
export const BAND = ["minimum", "mean", "maximum"];

/** Columns of one source. A label is a node, or one of BAND. */
export class JobColumns {
  constructor({ metrics = [], powers = [], whole_node: whole = [], known = {}, nodes = null, count = 0 },
    times, column, power = null) {
    Object.assign(this, { metrics, powers, known, times });
    this.whole = new Set(whole);
    this.labels = nodes ?? BAND;
    this.isBand = !nodes || nodes === BAND;
    this.place = new Map(metrics.map((metric, at) => [metric, at * this.labels.length]));
    this.column = column;
    this.power = power ?? this.sum(this.isBand ? ["mean"] : this.labels, this.isBand ? count : 1);
  }

  /** The power of some labels, `scale` times: of all nodes. */
  sum(labels, scale) {
    const columns = this.powers.flatMap((metric) => labels.map((label) => this.get(metric, label))).filter(Boolean);
    return this.times.map((_, row) => {
      const there = columns.map((column) => column[row]).filter((value) => value !== null && value !== undefined);
      return there.length ? scale * there.reduce((sum, value) => sum + value, 0) : null;
    });
  }

  /** The column of a metric and a label, if there is one. */
  get(metric, label) {
    const at = this.labels.indexOf(label);
    return this.place.has(metric) && at >= 0 ? this.column(this.place.get(metric) + at) : null;
  }
}

/** Stored columns as far as there are any, and the live rows after them. */
export function joined(stored, live, labels) {
  if (!stored?.times.length) return live;
  if (!live?.times.length) return stored;
  const metrics = [...stored.metrics, ...live.metrics.filter((each) => !stored.metrics.includes(each))];
  const after = stored.times.at(-1) + stored.step;
  const first = live.times.findIndex((time) => time >= after);
  const rows = first < 0 ? live.times.length : first;
  const times = [...stored.times, ...live.times.slice(rows)];
  const none = (column, count) => column ?? new Array(count).fill(null);
  const header = { metrics, powers: live.powers.length ? live.powers : stored.powers,
    whole_node: [...stored.whole, ...live.whole], known: { ...stored.known, ...live.known }, nodes: labels };
  return new JobColumns(header, times, (place) => {
    const metric = metrics[Math.floor(place / labels.length)];
    const label = labels[place % labels.length];
    return [...none(stored.get(metric, label), stored.times.length),
      ...none(live.get(metric, label)?.slice(rows), live.times.length - rows)];
  }, [...stored.power, ...live.power.slice(rows)]);
}

/** The integral of power over time, and the seconds that have any. */
export function energyOf(times, power) {
  let joules = 0;
  let seconds = 0;
  for (let row = 1; row < times.length; row += 1) {
    if (power[row] === null || power[row - 1] === null) continue;
    const passed = times[row] - times[row - 1];
    joules += ((power[row] + power[row - 1]) / 2) * passed;
    seconds += passed;
  }
  return { joules, seconds };
}

/** Statistics of the values of columns, as the server has them of stored values. */
export function statisticsOf(data) {
  return data.metrics.map((metric) => {
    const values = (label) => (data.get(metric, label) ?? []).filter((value) => value !== null);
    const [low, mean, high] = data.isBand ? BAND.map(values) : [];
    const nodes = data.isBand ? [] : data.labels.map((label) => [label, values(label)])
      .filter(([, column]) => column.length)
      .map(([label, column]) => [label, Math.min(...column), meanOf(column), Math.max(...column)]);
    const all = data.isBand ? [Math.min(...low), meanOf(mean), Math.max(...high)]
      : [Math.min(...nodes.map((row) => row[1])), meanOf(nodes.map((row) => row[2])), Math.max(...nodes.map((row) => row[3]))];
    return { metric, all, nodes };
  }).filter(({ all }) => Number.isFinite(all[1]));
}

const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
