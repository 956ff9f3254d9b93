//! Memory peaks: of each pod only the largest usage of a window (24 h by default) is counted, and a
//! larger one replaces it as long as the window is open.

use std::time::Duration;

use crate::{history::ReplicaState, types::Time};

use super::histogram::{Histogram, HistogramConfig};
use crate::types::{
    compat::{Fix, Fixes},
    units::Bytes,
};

/// Weight of one memory peak.
pub const PEAK_WEIGHT: f64 = 1.0;

/// Whether a memory amount was seen in use or derived from an out-of-memory kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// Measured usage.
    Usage,
    /// What a kill says the container would have needed.
    Bump,
}

/// Why a sample was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleRejected {
    /// Usage below zero.
    #[error("usage is negative")]
    Negative,
    /// Not newer than the last one of this replica.
    #[error("sample is older than the last one taken")]
    OutOfOrder,
    /// The one that was taken last, once more: metrics show it until the next one is measured.
    #[error("sample was taken before")]
    Duplicate,
    /// Later than this process's clock says it can be.
    #[error("sample is from the future")]
    InFuture,
    /// An out-of-memory kill from before the last window.
    #[error("out-of-memory kill is older than one memory window")]
    TooOld,
}

/// The state of one pod's container, with nothing seen yet.
pub fn new_replica(name: &str) -> ReplicaState {
    ReplicaState {
        name: name.into(),
        last_cpu: None,
        last_memory: None,
        window_end: None,
        usage_peak: None,
        bump_peak: None,
        last_kill: None,
    }
}

/// The amount that is counted for the window that is open.
pub fn open_peak(replica: &ReplicaState) -> Option<i64> {
    replica.usage_peak.max(replica.bump_peak)
}

/// Takes one memory amount of a replica into its window, and into the histogram of peaks if it is the
/// largest of its window so far. Answers whether it is.
pub fn add_to_window(
    replica: &mut ReplicaState,
    peaks: &mut Histogram,
    axis: HistogramConfig<'_>,
    interval: Duration,
    fixes: Fixes,
    sample: (Time, Bytes, MemorySource),
) -> Result<bool, SampleRejected> {
    let (at, Bytes(usage), source) = sample;
    if usage < 0 {
        return Err(SampleRejected::Negative);
    }
    if source == MemorySource::Usage && replica.last_memory.is_some_and(|last| at < last) {
        return Err(SampleRejected::OutOfOrder);
    }
    // Where memory samples are counted, each counts once. A larger one of the same time is another one.
    let is_repeated = source == MemorySource::Usage
        && fixes.has(Fix::MemoryOnlyHistoryCounts)
        && replica.last_memory == Some(at)
        && open_peak(replica).is_some_and(|peak| usage <= peak);
    if is_repeated {
        return Err(SampleRejected::Duplicate);
    }
    replica.last_memory = match replica.last_memory {
        Some(last) if fixes.has(Fix::OomKeepsSampleOrder) => Some(last.max(at)),
        _ => Some(at),
    };
    // With no window yet the sample itself is where the first one starts.
    let end = replica.window_end.unwrap_or(at);
    let counts = if at < end {
        let peak = open_peak(replica)
            .filter(|peak| *peak != 0 || fixes.has(Fix::ZeroSampleKeepsWindowOpen));
        match peak {
            Some(peak) if usage > peak => {
                peaks.subtract(axis, peak as f64, PEAK_WEIGHT, end);
                true
            }
            // A window without a peak can only come from a damaged record: begin counting again.
            None => fixes.has(Fix::ZeroSampleKeepsWindowOpen),
            Some(_) => false,
        }
    } else {
        let interval = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
        let behind = at.nanos_since(end);
        let windows = behind / interval + 1;
        let end = Time::from_nanos(end.as_nanos().saturating_add(windows.saturating_mul(interval)));
        replica.window_end = Some(end);
        replica.usage_peak = None;
        replica.bump_peak = None;
        true
    };
    if counts {
        let end = replica.window_end.unwrap_or(end);
        peaks.add(axis, usage as f64, PEAK_WEIGHT, end);
        match source {
            MemorySource::Usage => replica.usage_peak = Some(usage),
            MemorySource::Bump => replica.bump_peak = Some(usage),
        }
    }
    Ok(counts)
}

/// Takes the peaks of all these windows out of the histogram, or puts them back in: around a change of
/// what the histogram is measured by, so that a later, larger sample finds exactly what it replaces.
pub fn remove_open_peaks(
    peaks: &mut Histogram,
    axis: HistogramConfig<'_>,
    replicas: &[ReplicaState],
) {
    for (end, peak) in replicas.iter().filter_map(open_window) {
        peaks.subtract(axis, peak as f64, PEAK_WEIGHT, end);
    }
}

/// The way back from [`lift`].
pub fn restore_open_peaks(
    peaks: &mut Histogram,
    axis: HistogramConfig<'_>,
    replicas: &[ReplicaState],
) {
    for (end, peak) in replicas.iter().filter_map(open_window) {
        peaks.add(axis, peak as f64, PEAK_WEIGHT, end);
    }
}

fn open_window(replica: &ReplicaState) -> Option<(Time, i64)> {
    replica.window_end.zip(open_peak(replica))
}

/// Makes one window of two that the same pod has on two sides, after both histograms became one. What was
/// remembered began earlier, so its window stands, as it would if the pod had never been out of sight.
pub fn merge_windows(
    peaks: &mut Histogram,
    axis: HistogramConfig<'_>,
    ours: &mut ReplicaState,
    remembered: &ReplicaState,
) {
    let same = match (ours.last_memory, remembered.window_end) {
        (Some(last), Some(end)) => last < end,
        (None, _) => true,
        (Some(_), None) => false,
    };
    if same {
        remove_open_peaks(peaks, axis, std::slice::from_ref(ours));
        remove_open_peaks(peaks, axis, std::slice::from_ref(remembered));
        ours.window_end = remembered.window_end;
        ours.usage_peak = ours.usage_peak.max(remembered.usage_peak);
        ours.bump_peak = ours.bump_peak.max(remembered.bump_peak);
        restore_open_peaks(peaks, axis, std::slice::from_ref(ours));
    }
    ours.last_cpu = ours.last_cpu.max(remembered.last_cpu);
    ours.last_memory = ours.last_memory.max(remembered.last_memory);
    ours.last_kill = ours.last_kill.max(remembered.last_kill);
}

/// Takes the peaks of open windows back out: what is left is what a reader that knows nothing of open
/// windows can go on from without counting them twice.
pub fn subtract_open(
    peaks: &mut Histogram,
    axis: HistogramConfig<'_>,
    replicas: &[ReplicaState],
    now: Time,
) -> bool {
    let mut any = false;
    for (end, peak) in replicas.iter().filter_map(open_window) {
        if now < end {
            peaks.subtract(axis, peak as f64, PEAK_WEIGHT, end);
            any = true;
        }
    }
    any
}
