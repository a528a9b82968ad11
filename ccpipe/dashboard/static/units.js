// Numbers as people read them.

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const SCALES = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30 };
const BASES = {
  B: "B", Byte: "B", Bytes: "B", byte: "B", bytes: "B", "B/s": "B/s", "Byte/s": "B/s",
  "Bytes/s": "B/s", "bytes/s": "B/s", F: "F", "Flops/s": "F/s", "F/s": "F/s", W: "W", J: "J",
  Hz: "Hz", "packets/s": "pkt/s",
};

/** Split a unit into its factor and base: "MByte/s" is 1e6 and "B/s". */
export function unitOf(unit) {
  if (!unit) return { factor: 1, base: "" };
  if (unit === "percent" || unit === "%") return { factor: 1, base: "%", fixed: true };
  if (unit === "degC") return { factor: 1, base: "°C", fixed: true };
  if (BASES[unit]) return { factor: 1, base: BASES[unit] };
  for (const [prefix, factor] of Object.entries(SCALES)) {
    const base = BASES[unit.slice(prefix.length)];
    if (unit.startsWith(prefix) && base) return { factor, base };
  }
  return { factor: 1, base: unit, fixed: true };
}

/** Write a number with about three digits and its unit: 1.24 GB/s; `round` leaves zeros out. */
export function format(value, unit = "", round = false) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "count") return count(value);
  const { factor, base, fixed } = unitOf(unit);
  let number = value * factor;
  let place = 0;
  if (!fixed || Math.abs(number) >= 1e5) {
    while (Math.abs(number) >= 999.5 && place < PREFIXES.length - 1) {
      number /= 1000;
      place += 1;
    }
  }
  const text = round ? String(Number(number.toPrecision(3))) : short(number);
  const end = PREFIXES[place] + base;
  return base === "%" ? `${text} %` : end ? `${text} ${end}` : text;
}

function short(number) {
  const size = Math.abs(number);
  if (size >= 100 || number === 0) return number.toFixed(0);
  if (size >= 10) return number.toFixed(1);
  if (size >= 0.01) return number.toFixed(2);
  return number.toExponential(1);
}

/** A number of things: 1 node, 2 nodes. */
export const plural = (number, name) => `${count(number)} ${name}${number === 1 ? "" : "s"}`;

export const count = (number) => Math.round(number).toLocaleString("en").replaceAll(",", " ");

/** Write seconds since the epoch as local time, with month and day where it is not today. */
export function clock(seconds) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

const two = (number) => String(number).padStart(2, "0");

/** Write seconds since the epoch as local date and time: 2026-11-28 14:05:00. */
export function dateTime(seconds) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}`
    + `:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The time zone of the browser at a time: Europe/Berlin, UTC+01:00. */
export function timeZone(seconds) {
  const minutes = -new Date(seconds * 1000).getTimezoneOffset();
  const size = Math.abs(minutes);
  const offset = `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone}, ${offset}`;
}

/** Write a number of seconds: 2 d 3 h, 5 min 10 s. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [
    [Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).filter(([number], place) => number || !place)
    .map(([number, unit]) => `${number} ${unit}`).join(" ");
}

/** Write energy in joules as people pay for it: 3.21 kWh, 45.0 Wh. */
export function energy(joules) {
  if (joules === null || joules === undefined) return "–";
  const hours = joules / 3600;
  return hours >= 999.5 ? `${short(hours / 1000)} kWh` : `${short(hours)} Wh`;
}

/** Write a share as percent: 0.5 is 50 %. */
export const percent = (share) =>
  (share === null || share === undefined ? "–" : `${(share * 100).toFixed(0)} %`);
