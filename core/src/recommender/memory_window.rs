//! Memory peaks: for each pod only the largest usage of a window (24 h by default) counts, and a larger one replaces it
//! while the window is open.

use crate::{history::ReplicaState, types::Time};

use super::{
    histogram::{Histogram, HistogramConfig},
    model_settings::ModelRules,
};
use crate::types::{compat::Fix, units::Bytes};

pub const PEAK_WEIGHT: f64 = 1.0;

/// Whether a memory amount was measured or derived from an OOM kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    Usage,
    /// The amount that an OOM-killed container would have needed.
    Bump,
}

/// Why a sample was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleRejected {
    #[error("usage is negative")]
    Negative,
    /// The sample is not newer than the last one of this replica.
    #[error("sample is not newer than the last one")]
    OutOfOrder,
    /// The same sample again: metrics show it until the next one is measured.
    #[error("duplicate sample")]
    Duplicate,
    /// The sample's time is after the time of this process's clock.
    #[error("sample is in the future")]
    InFuture,
    /// The OOM kill is from before the last window.
    #[error("OOM kill is older than one memory window")]
    TooOld,
}

/// Returns the counted amount of the open window.
pub fn open_peak(replica: &ReplicaState) -> Option<i64> {
    replica.usage_peak.max(replica.bump_peak)
}

/// Returns the replica of this name. Replicas are sorted by name for binary search.
pub fn find<'a>(replicas: &'a [ReplicaState], name: &str) -> Option<&'a ReplicaState> {
    let index = replicas.binary_search_by(|replica| (*replica.name).cmp(name));
    index.ok().map(|index| &replicas[index])
}

/// Returns the index of a replica, adding it if necessary.
pub fn index_or_add(replicas: &mut Vec<ReplicaState>, name: &str) -> usize {
    replicas.binary_search_by(|replica| (*replica.name).cmp(name)).unwrap_or_else(|index| {
        if replicas.len() < 8 {
            replicas.reserve_exact(1);
        }
        replicas.insert(index, ReplicaState { name: name.into(), ..ReplicaState::default() });
        index
    })
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LargestReplicaPeaks {
    pub(super) peaks: Histogram,
    pub(super) window: ReplicaState,
}

impl LargestReplicaPeaks {
    pub(super) fn new(config: HistogramConfig<'_>) -> Self {
        let window = ReplicaState { name: "*".into(), ..ReplicaState::default() };
        Self { peaks: Histogram::new(config.buckets), window }
    }

    pub(super) fn add(
        &mut self,
        sample: (Time, Bytes, MemorySource),
        rules: &ModelRules,
    ) -> Result<bool, SampleRejected> {
        // Samples of different replicas arrive in any order, so only the window itself orders them.
        self.window.last_memory = None;
        add_to_window(&mut self.window, &mut self.peaks, sample, rules)
    }

    pub(super) fn change_half_life(
        &mut self,
        from: HistogramConfig<'_>,
        to: HistogramConfig<'_>,
        now: Time,
    ) {
        let open = std::slice::from_ref(&self.window);
        remove_open_peaks(&mut self.peaks, from, open);
        self.peaks.change_half_life(from, to, now);
        restore_open_peaks(&mut self.peaks, to, open);
    }
}

/// Adds a memory amount of a replica to its window, and to the histogram if it is the largest of the window so far.
/// Returns whether it is.
pub fn add_to_window(
    replica: &mut ReplicaState,
    peaks: &mut Histogram,
    (at, Bytes(usage), source): (Time, Bytes, MemorySource),
    rules: &ModelRules,
) -> Result<bool, SampleRejected> {
    let (config, fixes) = (rules.memory_histogram_config(), rules.fixes);
    if usage < 0 {
        return Err(SampleRejected::Negative);
    }
    if source == MemorySource::Usage && replica.last_memory.is_some_and(|last| at < last) {
        return Err(SampleRejected::OutOfOrder);
    }
    // If memory samples count, each counts once. A larger amount of the same time is another sample.
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
    // Without a window yet, the first one starts at the sample.
    let end = replica.window_end.unwrap_or(at);
    let counts = if at < end {
        let peak = open_peak(replica)
            .filter(|peak| *peak != 0 || fixes.has(Fix::ZeroSampleKeepsWindowOpen));
        match peak {
            Some(peak) if usage > peak => {
                peaks.subtract(config, peak as f64, PEAK_WEIGHT, end);
                true
            }
            // A window without a peak can only come from a damaged record, so start counting again.
            None => fixes.has(Fix::ZeroSampleKeepsWindowOpen),
            Some(_) => false,
        }
    } else {
        let interval = i64::try_from(rules.interval.as_nanos()).unwrap_or(i64::MAX).max(1);
        let elapsed = at.nanos_since(end);
        let windows = elapsed / interval + 1;
        let end = Time::from_nanos(end.as_nanos().saturating_add(windows.saturating_mul(interval)));
        replica.window_end = Some(end);
        replica.usage_peak = None;
        replica.bump_peak = None;
        true
    };
    if counts {
        let end = replica.window_end.unwrap_or(end);
        peaks.add(config, usage as f64, PEAK_WEIGHT, end);
        match source {
            MemorySource::Usage => replica.usage_peak = Some(usage),
            MemorySource::Bump => replica.bump_peak = Some(usage),
        }
    }
    Ok(counts)
}

/// Subtracts the peaks of all these windows from the histogram before its configuration changes. Together with
/// [`restore_open_peaks`] it ensures that a later, larger sample can subtract exactly the peak that it replaces.
pub fn remove_open_peaks(
    peaks: &mut Histogram,
    config: HistogramConfig<'_>,
    replicas: &[ReplicaState],
) {
    for (end, peak) in replicas.iter().filter_map(open_window) {
        peaks.subtract(config, peak as f64, PEAK_WEIGHT, end);
    }
}

/// Adds the peaks again that [`remove_open_peaks`] subtracted.
pub fn restore_open_peaks(
    peaks: &mut Histogram,
    config: HistogramConfig<'_>,
    replicas: &[ReplicaState],
) {
    for (end, peak) in replicas.iter().filter_map(open_window) {
        peaks.add(config, peak as f64, PEAK_WEIGHT, end);
    }
}

fn open_window(replica: &ReplicaState) -> Option<(Time, i64)> {
    replica.window_end.zip(open_peak(replica))
}

/// Merges two windows of one pod, after their histograms were merged. The stored window started earlier, so it stays
/// open, as it would if the pod had been observed all the time.
pub fn merge_windows(
    peaks: &mut Histogram,
    config: HistogramConfig<'_>,
    ours: &mut ReplicaState,
    stored: &ReplicaState,
) {
    let is_same_window = match (ours.last_memory, stored.window_end) {
        (Some(last), Some(end)) => last < end,
        (None, _) => true,
        (Some(_), None) => false,
    };
    if is_same_window {
        remove_open_peaks(peaks, config, std::slice::from_ref(ours));
        remove_open_peaks(peaks, config, std::slice::from_ref(stored));
        ours.window_end = stored.window_end;
        ours.usage_peak = ours.usage_peak.max(stored.usage_peak);
        ours.bump_peak = ours.bump_peak.max(stored.bump_peak);
        restore_open_peaks(peaks, config, std::slice::from_ref(ours));
    }
    ours.last_cpu = ours.last_cpu.max(stored.last_cpu);
    ours.last_memory = ours.last_memory.max(stored.last_memory);
    ours.last_kill = ours.last_kill.max(stored.last_kill);
}

/// Subtracts the peaks of open windows, so that a reader that does not know about open windows does not count them
/// twice. Returns whether there were any.
pub fn subtract_open(
    peaks: &mut Histogram,
    config: HistogramConfig<'_>,
    replicas: &[ReplicaState],
    now: Time,
) -> bool {
    let mut any = false;
    for (end, peak) in replicas.iter().filter_map(open_window) {
        if now < end {
            peaks.subtract(config, peak as f64, PEAK_WEIGHT, end);
            any = true;
        }
    }
    any
}
