//! What the kernel knows of a process and of the machine.

use std::fs;

/// One process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// The most memory it ever had, in bytes.
    pub peak: u64,
    /// What it has now, in bytes.
    pub resident: u64,
    /// Seconds of CPU that it took.
    pub cpu: f64,
}

/// A process that runs.
pub fn look(id: u32) -> Process {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // After the name, which may hold anything, the times are fields 12 and 13, in hundredths.
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
