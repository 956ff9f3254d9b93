//! Statistics of a process and the machine, from /proc.

use std::fs;

/// Statistics of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Peak resident memory in bytes.
    pub peak: u64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// CPU time in seconds.
    pub cpu: f64,
}

/// Reads the statistics of a running process.
pub fn read_stats(id: u32) -> Process {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name may contain any character; after it, the times are fields 12 and 13, in units of 10 ms.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Process {
        peak: kibibytes(&status, "VmHWM:") * 1024,
        resident: kibibytes(&status, "VmRSS:") * 1024,
        cpu: ticks.sum::<f64>() / 100.0,
    }
}

/// Date, cores and memory.
pub fn machine() -> String {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let date = super::support::clock::wall_now().strftime("%-d %B %Y");
    format!("{date}, {cores} cores, {} GiB", (kibibytes(&memory, "MemTotal:") + (1 << 19)) >> 20)
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
