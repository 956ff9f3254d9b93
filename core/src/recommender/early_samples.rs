//! The first live sample of each pod, as long as a stored history may come that has it too.

use crate::types::Time;

use crate::types::units::{Bytes, MilliCpu};

/// So many pods of one container are told apart. A stored history may be away for days, and the pods of a CronJob never
/// end.
const MAX_PODS: usize = 512;

/// A sample that may be part of what is stored: metrics show the same one until the next is measured.
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
    /// In order of container and pod.
    samples: Vec<EarlySample>,
    /// Since when pods of a container were seen that are not among them.
    overflow: Vec<(Box<str>, Time)>,
}

impl EarlySamples {
    /// Notes the first sample of a pod. Of one that comes after too many others only the time counts.
    pub fn record(
        &mut self,
        (container, pod): (&str, &str),
        at: Time,
        (cpu, memory): (Option<MilliCpu>, Option<Bytes>),
    ) {
        let Err(place) = self.find(container, pod) else { return };
        if self.for_container(container).count() < MAX_PODS {
            let (container, pod) = (container.into(), pod.into());
            let has_memory = memory.is_some();
            self.samples.insert(place, EarlySample { container, pod, at, cpu, has_memory });
            return;
        }
        match self.overflow.iter_mut().find(|(name, _)| **name == *container) {
            Some((_, since)) => *since = at.min(*since),
            None => self.overflow.push((container.into(), at)),
        }
    }

    /// Those of one container.
    pub fn for_container<'a>(
        &'a self,
        container: &str,
    ) -> impl Iterator<Item = &'a EarlySample> + use<'a> {
        let begin = self.samples.partition_point(|early| *early.container < *container);
        let end = self.samples.partition_point(|early| *early.container <= *container);
        self.samples[begin..end].iter()
    }

    /// Since when a container of a pod was seen live. Pods that are not told apart were seen since the first of them.
    pub fn first_seen(&self, container: &str, pod: &str) -> Option<Time> {
        if let Ok(place) = self.find(container, pod) {
            return Some(self.samples[place].at);
        }
        let of_it = |(name, _): &&(Box<str>, Time)| **name == *container;
        self.overflow.iter().find(of_it).map(|(_, since)| *since)
    }

    /// When the first of them was measured.
    pub fn first(&self) -> Option<Time> {
        self.samples.iter().map(|early| early.at).min()
    }

    fn find(&self, container: &str, pod: &str) -> Result<usize, usize> {
        self.samples
            .binary_search_by(|early| (&*early.container, &*early.pod).cmp(&(container, pod)))
    }
}

/// Whether a container has so many pods that those that are gone are not kept for a history that may come.
pub(super) fn exceeds_max_pods(pods: usize) -> bool {
    pods >= MAX_PODS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_samples_of_endless_pods_are_bounded_and_the_earliest_time_counts() {
        let mut early = EarlySamples::default();
        let used = (Some(MilliCpu(1)), Some(Bytes(1)));
        for number in 0..100_000_i64 {
            early.record(("job", &format!("job-{number}")), Time::from_secs(number), used);
            early.record(("side", "one"), Time::from_secs(number), used);
        }
        assert_eq!((early.samples.len(), early.overflow.len()), (MAX_PODS + 1, 1));
        let since = |container, pod| early.first_seen(container, pod).map(Time::as_secs);
        assert_eq!(early.first(), Some(Time::EPOCH));
        assert_eq!(since("job", "job-7"), Some(7));
        // Told apart from nobody, it counts as seen since the first of those.
        assert_eq!(since("job", "job-99999"), Some(512));
        assert_eq!((since("side", "one"), since("side", "two")), (Some(0), None));
        assert_eq!(
            (early.for_container("job").count(), early.for_container("none").count()),
            (MAX_PODS, 0)
        );
    }
}
