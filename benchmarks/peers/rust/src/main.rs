//! Decodes the payload on stdin again and again with influxdb-line-protocol, and prints a name and
//! the lines per second of CPU time: see benchmarks/peers/README.md.

use influxdb_line_protocol::parse_lines;
use std::hint::black_box;
use std::io::Read;

/// Returns the CPU seconds of this process: user and system time are fields 14 and 15, in 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

fn decode(payload: &str) -> usize {
    parse_lines(payload).map(|line| black_box(line.expect("a valid line"))).count()
}

fn main() {
    let mut payload = String::new();
    std::io::stdin().read_to_string(&mut payload).expect("UTF-8 on stdin");
    let lines = decode(&payload);
    let repeat = 1 + 1_000_000 / lines;
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let begin = cpu_seconds();
        for _ in 0..repeat {
            decode(black_box(&payload));
        }
        best = best.max((lines * repeat) as f64 / (cpu_seconds() - begin));
    }
    println!("Rust influxdb-line-protocol\t{best:.0}");
}
