//! What the samples of a container show beside the recommendation, computed while they pass.

use plimsoll_core::{
    history::{Measurement, Resource, Sample, SampleBatch},
    rightsizing::{daily_peaks::DailyPeaks, evidence::MemoryPeak},
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

use crate::report::recommend::strategy::UsageDistribution;

#[derive(Clone, Debug, Default)]
pub struct ContainerUsage {
    /// Its CPU request; `None` if it has none or it is unknown.
    pub cpu_request: Option<MilliCpu>,
    pub cpu_samples: u64,
    /// The number of CPU samples above the request.
    pub above_request: u64,
    /// The largest sample of memory.
    pub memory_peak: Option<MemoryPeak>,
    /// The largest sample of memory on each day.
    pub daily_memory_peaks: DailyPeaks,
    pub oom_kills: u32,
    pub last_oom_kill: Option<Time>,
    /// The memory limit at the last one, if known.
    pub oom_kill_limit: Option<Bytes>,
    pub first_sample: Option<Time>,
    pub last_sample: Option<Time>,
    /// All samples, for strategies that need them.
    pub distribution: Option<Box<UsageDistribution>>,
}

impl ContainerUsage {
    /// Starts to record the usage of a container with this request.
    pub fn new(cpu_request: Option<MilliCpu>, distribution: Option<UsageDistribution>) -> Self {
        Self { cpu_request, distribution: distribution.map(Box::new), ..Self::default() }
    }

    /// The share of CPU samples above the request; `None` without a request or samples.
    pub fn share_above_request(&self) -> Option<f64> {
        self.cpu_request.filter(|_| self.cpu_samples > 0)?;
        Some(self.above_request as f64 / self.cpu_samples as f64)
    }

    /// All samples, if the strategy needs them.
    pub fn distribution(&self) -> Option<&UsageDistribution> {
        self.distribution.as_deref()
    }

    /// Whether there is any sample.
    pub fn has_samples(&self) -> bool {
        self.last_sample.is_some()
    }

    pub fn add_batch(&mut self, batch: SampleBatch<'_>) {
        let (Some((first, _)), Some((last, _))) = (batch.points.first(), batch.points.last())
        else {
            return;
        };
        self.first_sample = Some(self.first_sample.map_or(*first, |known| known.min(*first)));
        self.last_sample = self.last_sample.max(Some(*last));
        match batch.gauge {
            Resource::Cpu => {
                self.cpu_samples += batch.points.len() as u64;
                if let Some(request) = self.cpu_request.map(MilliCpu::as_cores) {
                    let above = batch.points.iter().filter(|(_, cores)| *cores > request).count();
                    self.above_request += above as u64;
                }
            }
            Resource::Memory => {
                for &(at, bytes) in batch.points {
                    let bytes = Bytes::from_f64(bytes);
                    self.daily_memory_peaks.add(MemoryPeak { bytes, at });
                    if self.memory_peak.is_none_or(|peak| bytes > peak.bytes) {
                        self.memory_peak = Some(MemoryPeak { bytes, at });
                    }
                }
            }
        }
        if let Some(distribution) = &mut self.distribution {
            distribution.add(batch);
        }
    }

    /// Adds a single sample: an OOM kill.
    pub fn add_sample(&mut self, sample: &Sample) {
        if let Measurement::OutOfMemory { limit_bytes, .. } = sample.measurement {
            self.oom_kills = self.oom_kills.saturating_add(1);
            if self.last_oom_kill <= Some(sample.at) {
                self.last_oom_kill = Some(sample.at);
                self.oom_kill_limit = limit_bytes.map(Bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn cpu(usage: &mut ContainerUsage, points: &[(Time, f64)]) {
        let replica: Arc<str> = "web-0".into();
        let gauge = Resource::Cpu;
        usage.add_batch(SampleBatch { replica: &replica, gauge, covers: None, points });
    }

    #[test]
    fn the_share_above_the_request_counts_samples_of_all_pods() {
        let at = Time::from_secs;
        let mut usage = ContainerUsage::new(Some(MilliCpu(500)), None);
        assert_eq!(usage.share_above_request(), None, "there are no samples");
        cpu(&mut usage, &[(at(0), 0.4), (at(60), 0.5), (at(120), 0.6)]);
        cpu(&mut usage, &[(at(60), 0.7)]);
        assert_eq!(usage.share_above_request(), Some(0.5));
        let mut unknown = ContainerUsage::new(None, None);
        cpu(&mut unknown, &[(at(0), 0.4)]);
        assert_eq!(unknown.share_above_request(), None, "unknown is not zero");
    }

    #[test]
    fn the_first_of_equal_peaks_counts() {
        let replica: Arc<str> = "web-0".into();
        let mut usage = ContainerUsage::default();
        let points = [(5.0, 10.0), (9.0, 30.0), (10.0, 30.0), (11.0, 2.0)]
            .map(|(at, value)| (Time::from_secs(at as i64), value));
        let gauge = Resource::Memory;
        usage.add_batch(SampleBatch { replica: &replica, gauge, covers: None, points: &points });
        let peak = MemoryPeak { bytes: Bytes(30), at: Time::from_secs(9) };
        assert_eq!(usage.memory_peak, Some(peak));
        assert_eq!(usage.first_sample, Some(Time::from_secs(5)));
        assert_eq!(usage.last_sample, Some(Time::from_secs(11)));
    }
}
