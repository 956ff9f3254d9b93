//! What the pods of a container request: the largest, the smallest, and all together.

use plimsoll_core::{
    recommender::estimate::Resource,
    types::units::{Bytes, MilliCpu},
};

/// Requests for one resource, over the pods that have the container, in cores or bytes. They differ while pods are
/// replaced or resized one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodRequests {
    /// The largest of those that there are.
    pub largest: Option<f64>,
    /// The smallest. Where a pod states none it reserves nothing: that is known, and 0.
    pub smallest: f64,
    /// All together.
    pub sum: f64,
}

impl PodRequests {
    /// Of what each pod that has the container states, in thousandths of a core or bytes. `None`: there is no such pod.
    pub fn from_pods(
        resource: Resource,
        stated: impl Iterator<Item = Option<i64>>,
    ) -> Option<Self> {
        // Whole thousandths and bytes add up exactly, which cores would not.
        let (mut largest, mut smallest, mut sum) = (None, None, 0_i64);
        for request in stated {
            let reserved = request.unwrap_or(0);
            largest = largest.max(request);
            smallest = Some(smallest.map_or(reserved, |least: i64| least.min(reserved)));
            sum = sum.saturating_add(reserved);
        }
        let told = |amount| match resource {
            Resource::Cpu => MilliCpu(amount).as_cores(),
            Resource::Memory => Bytes(amount).as_f64(),
        };
        let smallest = told(smallest?);
        Some(Self { largest: largest.map(told), smallest, sum: told(sum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cpu(stated: &[Option<i64>]) -> Option<PodRequests> {
        PodRequests::from_pods(Resource::Cpu, stated.iter().copied())
    }

    #[test]
    fn one_raised_pod_hides_none_of_the_others() {
        let told = of_cpu(&[Some(100), Some(700), Some(100), Some(100)]);
        let wanted = PodRequests { largest: Some(0.7), smallest: 0.1, sum: 1.0 };
        assert_eq!(told, Some(wanted));
    }

    #[test]
    fn a_pod_without_a_request_reserves_nothing_and_no_pod_tells_nothing() {
        let wanted = PodRequests { largest: Some(0.25), smallest: 0.0, sum: 0.25 };
        assert_eq!(of_cpu(&[Some(250), None]), Some(wanted));
        let wanted = PodRequests { largest: None, smallest: 0.0, sum: 0.0 };
        assert_eq!(of_cpu(&[None, None]), Some(wanted));
        assert_eq!(of_cpu(&[]), None);
    }
}
