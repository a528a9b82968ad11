// Titles of metrics as people read them, and numbers of a column in one unit.

import { unitOf } from "./units.js";

const TITLES = {
  cpu_load: "CPU load", load_one: "Load, 1 min", load_five: "Load, 5 min", load_fifteen: "Load, 15 min",
  cpu_used: "CPU used", cpu_user: "CPU in user mode", cpu_system: "CPU in system mode", cpu_idle: "CPU idle",
  cpu_iowait: "CPU waiting for I/O", cpu_power: "CPU power", mem_power: "Memory power",
  mem_used: "Memory used", mem_total: "Memory installed", mem_free: "Memory free", mem_bw: "Memory bandwidth",
  flops_any: "Floating-point speed", ipc: "Instructions per cycle", clock: "Clock rate",
  net_bytes_in_bw: "Network, received", net_bytes_out_bw: "Network, sent",
  ib_total_bw: "InfiniBand, both directions", lustre_read_bw: "Lustre, read", lustre_write_bw: "Lustre, written",
  nv_util: "GPU utilization", nv_mem_util: "GPU memory utilization", nv_fb_mem_used: "GPU memory used",
  nv_power_usage: "GPU power", nv_temp: "GPU temperature", rocm_gfx_util: "GPU utilization (AMD)",
  rocm_mem_used: "GPU memory used (AMD)", rocm_avg_power: "GPU power (AMD)", acc_utilization: "Accelerator utilization",
  acc_mem_used: "Accelerator memory used", platform_power: "Power of the platform", ipmi_power: "Power (IPMI)",
  psi_memory_full: "Time that tasks wait for memory",
};
const WORDS = {
  cpu: "CPU", gpu: "GPU", nv: "GPU", rocm: "AMD GPU", acc: "accelerator", mem: "memory", ib: "InfiniBand",
  net: "network", bw: "bandwidth", util: "utilization", temp: "temperature", psi: "PSI", io: "I/O",
  nfs: "NFS", nfs3: "NFSv3", nfs4: "NFSv4", numa: "NUMA", ipmi: "IPMI", dp: "double precision",
  sp: "single precision", pkts: "packets", fb: "framebuffer", num: "number of", avg: "mean", tcp: "TCP", udp: "UDP",
};

/** "mem_used" is "Memory used"; a name that is not known is spelt out. */
export function metricTitle(name) {
  if (Object.hasOwn(TITLES, name)) return TITLES[name];
  const words = name.split("_").filter(Boolean)
    .map((word) => (Object.hasOwn(WORDS, word) ? WORDS[word] : word)).join(" ");
  return words ? words[0].toUpperCase() + words.slice(1) : name;
}

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/**
 * The unit in which a column of values is readable: its name, and the factor to it. It is that of the
 * largest value, or the next smaller one where most values would be below 1.
 */
export function columnUnit(values, unit) {
  const { factor, base, fixed } = unitOf(unit);
  const sizes = Array.from(values, Math.abs).filter((size) => size > 0).sort((a, b) => a - b);
  const top = (sizes.at(-1) ?? 0) * factor;
  const median = (sizes[sizes.length >> 1] ?? 0) * factor;
  let place = 0;
  if (!fixed) while (top >= 1000 ** (place + 1) && place < PREFIXES.length - 1) place += 1;
  if (place && median < 1000 ** place) place -= 1;
  return { name: PREFIXES[place] + base, factor: factor / 1000 ** place };
}

/** A number of a column: as many decimals for each, so that the points are aligned. */
export const figure = (value, factor) =>
  (value === undefined || Number.isNaN(value) ? "–" : (value * factor).toFixed(1));
