//! Memory peaks: of each pod only the largest usage of a window (24 h by default) is counted, and a
//! larger one replaces it as long as the window is open.

use std::time::Duration;

use plimsoll_storage::{Replica, Time};

use super::histogram::{Axis, Histogram};
use crate::{
    compat::{Fix, Fixes},
    units::Bytes,
};

/// Weight of one memory peak.
pub const PEAK_WEIGHT: f64 = 1.0;

/// Whether a memory amount was seen in use or derived from an out-of-memory kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Measured usage.
    Usage,
    /// What a kill says the container would have needed.
    Bump,
}

/// Why a sample was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Usage below zero.
    #[error("usage is negative")]
    Negative,
    /// Not newer than the last one of this replica.
    #[error("sample is older than the last one taken")]
    OutOfOrder,
    /// An out-of-memory kill from before the last window.
    #[error("out-of-memory kill is older than one memory window")]
    TooOld,
}

/// The state of one pod's container, with nothing seen yet.
pub fn new_replica(name: &str) -> Replica {
    Replica {
        name: name.into(),
        last_cpu: None,
        last_memory: None,
        window_end: None,
        usage_peak: None,
        bump_peak: None,
    }
}

/// The amount that is counted for the window that is open.
pub fn open_peak(replica: &Replica) -> Option<i64> {
    replica.usage_peak.max(replica.bump_peak)
}

/// Takes one memory amount of a replica into its window, and into the histogram of peaks if it is the
/// largest of its window so far.
pub fn add(
    replica: &mut Replica,
    peaks: &mut Histogram,
    axis: Axis<'_>,
    interval: Duration,
    fixes: Fixes,
    sample: (Time, Bytes, Source),
) -> Result<(), Rejected> {
    let (at, Bytes(usage), source) = sample;
    if usage < 0 {
        return Err(Rejected::Negative);
    }
    if source == Source::Usage && replica.last_memory.is_some_and(|last| at < last) {
        return Err(Rejected::OutOfOrder);
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
            Source::Usage => replica.usage_peak = Some(usage),
            Source::Bump => replica.bump_peak = Some(usage),
        }
    }
    Ok(())
}

/// Takes the peaks of open windows back out: what is left is what a reader that knows nothing of open
/// windows can go on from without counting them twice.
pub fn subtract_open(
    peaks: &mut Histogram,
    axis: Axis<'_>,
    replicas: &[Replica],
    now: Time,
) -> bool {
    let mut any = false;
    for replica in replicas {
        let (Some(end), Some(peak)) = (replica.window_end, open_peak(replica)) else { continue };
        if now < end {
            peaks.subtract(axis, peak as f64, PEAK_WEIGHT, end);
            any = true;
        }
    }
    any
}
