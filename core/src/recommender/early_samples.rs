//! The first live sample of each pod, while a stored history that also has it may still be loaded.

use crate::types::Time;

use crate::types::units::{Bytes, MilliCpu};

/// The maximum number of tracked pods per container. A stored history may be unavailable for days, and a CronJob
/// creates pods without end.
const MAX_PODS: usize = 512;

/// A live sample that may also be in the stored history: metrics show it until the next one is measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EarlySample {
    container: Box<str>,
    pub(super) pod: Box<str>,
    pub(super) at: Time,
    pub(super) cpu: Option<MilliCpu>,
    pub(super) has_memory: bool,
}

/// The first samples of the pods of one VPA.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EarlySamples {
    /// Sorted by container and pod.
    samples: Vec<EarlySample>,
    /// The time of the first sample of untracked pods, by container.
    overflow: Vec<(Box<str>, Time)>,
}

impl EarlySamples {
    /// Records the first sample of a pod. Of untracked pods only the earliest time is recorded.
    pub fn record(
        &mut self,
        (container, pod): (&str, &str),
        at: Time,
        (cpu, memory): (Option<MilliCpu>, Option<Bytes>),
    ) {
        let Err(index) = self.find(container, pod) else { return };
        if self.for_container(container).count() < MAX_PODS {
            let (container, pod) = (container.into(), pod.into());
            let has_memory = memory.is_some();
            self.samples.insert(index, EarlySample { container, pod, at, cpu, has_memory });
            return;
        }
        match self.overflow.iter_mut().find(|(name, _)| **name == *container) {
            Some((_, since)) => *since = at.min(*since),
            None => self.overflow.push((container.into(), at)),
        }
    }

    pub fn for_container<'a>(
        &'a self,
        container: &str,
    ) -> impl Iterator<Item = &'a EarlySample> + use<'a> {
        let begin = self.samples.partition_point(|early| *early.container < *container);
        let end = self.samples.partition_point(|early| *early.container <= *container);
        self.samples[begin..end].iter()
    }

    /// Returns the time of the first live sample of a pod. For untracked pods it is the earliest of all of them.
    pub fn first_seen(&self, container: &str, pod: &str) -> Option<Time> {
        if let Ok(index) = self.find(container, pod) {
            return Some(self.samples[index].at);
        }
        let is_container = |(name, _): &&(Box<str>, Time)| **name == *container;
        self.overflow.iter().find(is_container).map(|(_, since)| *since)
    }

    pub fn first(&self) -> Option<Time> {
        self.samples.iter().map(|early| early.at).min()
    }

    fn find(&self, container: &str, pod: &str) -> Result<usize, usize> {
        self.samples
            .binary_search_by(|early| (&*early.container, &*early.pod).cmp(&(container, pod)))
    }
}

/// Whether a container has so many pods that those that are gone are dropped even if a stored history may come.
pub(super) fn exceeds_max_pods(pods: usize) -> bool {
    pods >= MAX_PODS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_samples_of_many_pods_are_bounded_and_the_earliest_time_counts() {
        let mut early = EarlySamples::default();
        let usage = (Some(MilliCpu(1)), Some(Bytes(1)));
        for number in 0..100_000_i64 {
            early.record(("job", &format!("job-{number}")), Time::from_secs(number), usage);
            early.record(("side", "one"), Time::from_secs(number), usage);
        }
        assert_eq!((early.samples.len(), early.overflow.len()), (MAX_PODS + 1, 1));
        let since = |container, pod| early.first_seen(container, pod).map(Time::as_secs);
        assert_eq!(early.first(), Some(Time::EPOCH));
        assert_eq!(since("job", "job-7"), Some(7));
        // An untracked pod counts as seen since the first untracked one.
        assert_eq!(since("job", "job-99999"), Some(512));
        assert_eq!((since("side", "one"), since("side", "two")), (Some(0), None));
        assert_eq!(
            (early.for_container("job").count(), early.for_container("none").count()),
            (MAX_PODS, 0)
        );
    }
}
