//! A noisy machine: busy cores and paused processes of the testbed, as on a shared machine; and CPU utilization.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xtask::{cache, console::progress};

/// Threads that keep a core busy.
const BUSY: usize = 2;
/// Minimum pause of a process, in milliseconds.
const SHORTEST: u64 = 300;
const LONGEST: u64 = 1_500;
/// Maximum time between two pauses, in milliseconds.
const BETWEEN: u64 = 2_000;

/// Generates noise until it is dropped.
#[derive(Debug)]
pub struct Noise {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<usize>>,
}

/// CPU counters since boot.
#[derive(Clone, Copy, Debug)]
pub struct System {
    busy: u64,
    all: u64,
}

// === impl Noise ===

impl Noise {
    /// Starts the noise. Only processes whose temporary files are in this folder are paused.
    pub fn start(folder: PathBuf) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let spin = |ends: Arc<AtomicBool>| {
            let mut count = 0usize;
            while !ends.load(Ordering::Relaxed) {
                count = black_box(count.wrapping_add(1));
            }
            0
        };
        let mut threads: Vec<_> = (0..BUSY)
            .map(|_| {
                thread::spawn({
                    let ends = Arc::clone(&ends);
                    move || spin(ends)
                })
            })
            .collect();
        threads.push(thread::spawn({
            let ends = Arc::clone(&ends);
            move || stop_at_random(&folder, &ends)
        }));
        Self { ends, threads }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let stopped: usize = self.threads.drain(..).filter_map(|thread| thread.join().ok()).sum();
        progress(format_args!("noise: {BUSY} busy threads, {stopped} pauses of a process"));
    }
}

/// Pauses processes, one at a time; returns how often.
fn stop_at_random(folder: &Path, ends: &AtomicBool) -> usize {
    let mut random = Random(u64::from(std::process::id()));
    let mut stopped = 0;
    while !ends.load(Ordering::Relaxed) {
        let processes = processes(folder);
        if !processes.is_empty() {
            let process = processes[random.below(processes.len() as u64) as usize];
            // Processes that a test has stopped stay stopped: see `process_guard.rs` in the tests.
            let of_a_test = folder.join(format!("stopped-{process}"));
            if !of_a_test.exists() {
                signal("STOP", process);
                thread::sleep(Duration::from_millis(SHORTEST + random.below(LONGEST - SHORTEST)));
                if !of_a_test.exists() {
                    signal("CONT", process);
                }
                stopped += 1;
            }
        }
        thread::sleep(Duration::from_millis(random.below(BETWEEN)));
    }
    stopped
}

/// Process ids of all parts of the testbed that run for this folder.
fn processes(folder: &Path) -> Vec<u32> {
    let Ok(cache) = cache::folder() else { return Vec::new() };
    let temporary = format!("TMPDIR={}", folder.display());
    let is_ours = |id: &u32| {
        let process = Path::new("/proc").join(id.to_string());
        let program = fs::read_link(process.join("exe")).unwrap_or_default();
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        program.starts_with(&cache)
            && environment.split(|byte| *byte == 0).any(|pair| pair == temporary.as_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(is_ours).collect()
}

fn signal(signal: &str, process: u32) {
    // A process that has ended meanwhile is skipped.
    let _ = Command::new("kill").args(["-s", signal, &process.to_string()]).output();
}

/// A SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

// === impl System ===

impl System {
    /// The current counters; zeros if there is no /proc/stat.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(text.lines().next().unwrap_or_default())
    }

    fn parse(line: &str) -> Self {
        let numbers: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
        let all: u64 = numbers.iter().take(8).sum();
        let idle: u64 = numbers.iter().skip(3).take(2).sum();
        Self { busy: all - idle, all }
    }

    /// The CPU utilization since then, in percent.
    pub fn busy_since(self, then: &Self) -> Option<u64> {
        let all = self.all.checked_sub(then.all).filter(|all| *all > 0)?;
        Some((self.busy.saturating_sub(then.busy)) * 100 / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_excludes_idle_and_io_wait() {
        let then = System::parse("cpu  100 0 50 800 50 0 0 0 0 0");
        let now = System::parse("cpu  160 0 60 820 60 0 0 0 0 0");
        assert_eq!(now.busy_since(&then), Some(70));
        assert_eq!(then.busy_since(&then), None);
    }

    #[test]
    fn random_numbers_are_below_their_limit() {
        let mut random = Random(7);
        let drawn: Vec<u64> = (0..200).map(|_| random.below(4)).collect();
        assert!((0..4).all(|number| drawn.contains(&number)) && drawn.iter().all(|n| *n < 4));
    }

    #[test]
    fn processes_of_another_run_are_not_reported() {
        assert!(processes(Path::new("/nowhere")).is_empty());
    }
}
