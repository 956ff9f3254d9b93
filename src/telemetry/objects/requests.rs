//! Requests of a container over all pods: the largest, the smallest, and the sum.

use plimsoll_core::{
    recommender::estimate::Resource,
    types::units::{Bytes, MilliCpu},
};

/// Requests for one resource, in cores or bytes, over the pods with the container. Pods differ while they are replaced or
/// resized one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodRequests {
    /// The largest request; `None` if no pod has one.
    pub largest: Option<f64>,
    /// The smallest request. A pod without a request counts as 0.
    pub smallest: f64,
    /// The sum of the requests.
    pub sum: f64,
}

impl PodRequests {
    /// Summarizes the requests of all pods with the container, in millicores or bytes. Returns `None` without pods.
    pub fn from_pods(
        resource: Resource,
        requests: impl Iterator<Item = Option<i64>>,
    ) -> Option<Self> {
        // Sums of integers are exact, sums of fractional cores are not.
        let (mut largest, mut smallest, mut sum) = (None, None, 0_i64);
        for request in requests {
            let reserved = request.unwrap_or(0);
            largest = largest.max(request);
            smallest = Some(smallest.map_or(reserved, |least: i64| least.min(reserved)));
            sum = sum.saturating_add(reserved);
        }
        let to_float = |amount| match resource {
            Resource::Cpu => MilliCpu(amount).as_cores(),
            Resource::Memory => Bytes(amount).as_f64(),
        };
        let smallest = to_float(smallest?);
        Some(Self { largest: largest.map(to_float), smallest, sum: to_float(sum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cpu(requests: &[Option<i64>]) -> Option<PodRequests> {
        PodRequests::from_pods(Resource::Cpu, requests.iter().copied())
    }

    #[test]
    fn a_single_raised_pod_does_not_hide_the_others() {
        let summary = of_cpu(&[Some(100), Some(700), Some(100), Some(100)]);
        let expected = PodRequests { largest: Some(0.7), smallest: 0.1, sum: 1.0 };
        assert_eq!(summary, Some(expected));
    }

    #[test]
    fn a_pod_without_a_request_counts_as_zero_and_no_pods_give_nothing() {
        let expected = PodRequests { largest: Some(0.25), smallest: 0.0, sum: 0.25 };
        assert_eq!(of_cpu(&[Some(250), None]), Some(expected));
        let expected = PodRequests { largest: None, smallest: 0.0, sum: 0.0 };
        assert_eq!(of_cpu(&[None, None]), Some(expected));
        assert_eq!(of_cpu(&[]), None);
    }
}
