//! Metrics of the process, read from /proc/self on each scrape.

use std::{fs, sync::Arc};

use super::{
    definition::{Definition, MetricType, counter, gauge},
    family::{Collector, Series},
    instruments::{Gauge, Instrument},
};

/// Clock ticks per second in /proc: a constant of the interface, independent of the kernel's timer frequency.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;
const UNKNOWN: &str = "/proc is not readable";

pub fn families() -> Vec<Arc<dyn Collector>> {
    let family = |definition: Definition, read| -> Arc<dyn Collector> {
        Arc::new(ProcessGauge { definition: definition.absent(UNKNOWN), read })
    };
    vec![
        family(
            counter("process_cpu_seconds_total", "Total user and system CPU time.").unit("seconds"),
            cpu_seconds,
        ),
        family(
            gauge("process_max_fds", "Maximum number of open file descriptors."),
            max_open_files,
        ),
        family(gauge("process_open_fds", "Number of open file descriptors."), open_files),
        family(
            gauge("process_resident_memory_bytes", "Resident memory size.").unit("bytes"),
            || status("VmRSS:"),
        ),
        family(
            gauge("process_start_time_seconds", "Start time of the process since the Unix epoch.")
                .unit("seconds"),
            start_time,
        ),
        family(gauge("process_virtual_memory_bytes", "Virtual memory size.").unit("bytes"), || {
            status("VmSize:")
        }),
    ]
}

struct ProcessGauge {
    definition: Definition,
    read: fn() -> Option<f64>,
}

impl Collector for ProcessGauge {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn series(&self) -> Vec<Series> {
        let Some(read) = (self.read)() else { return Vec::new() };
        // Our counters are integers, so a counter with fractions is rendered like a gauge.
        debug_assert!(self.definition.kind != MetricType::Histogram);
        let value = <Gauge as Instrument>::new(&self.definition);
        value.set(read);
        vec![Series { labels: "".into(), value: Arc::new(value) }]
    }
}

/// Field `number` of /proc/self/stat, counted from one as in proc(5). The process name may contain any character.
fn stat(number: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / CLOCK_TICKS_PER_SECOND)
}

fn start_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(boot + stat(22)? / CLOCK_TICKS_PER_SECOND)
}

fn status(field: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: f64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn open_files() -> Option<f64> {
    // One of them is the directory that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_open_files() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let limits = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match limits.split_ascii_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        limit => limit.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_process_metrics_are_available_on_linux() {
        for family in families() {
            let series = family.series();
            let mut text = String::new();
            series.first().expect("/proc is there").value.write(family.definition(), "", &mut text);
            let (_, value) = text.trim().split_once(' ').expect("a sample");
            let value: f64 = value.parse().expect("a number");
            assert!(value.is_finite() && value >= 0.0, "{text}");
        }
        assert!(status("VmRSS:") > Some(1e6) && status("VmSize:") >= status("VmRSS:"));
        assert!(start_time() > Some(1.6e9));
    }
}
