//! The updater of the simulation: decides when pods are replaced to start with the recommendation.
//!
//! It simulates the update mode `Recreate` of the VPA, in its main rules:
//! - A pod is due **immediately** if a request is below the recommended bounds, or if one of its containers was
//!   OOM killed and the target raises its memory.
//! - A pod is due **after it ran for a day** if a request is above the bounds, or if its requests differ from the
//!   target by a tenth or more in total.
//! - Requests of a pod younger than a day are **never lowered**, whatever the reason to replace it: a daily peak
//!   or a filling heap may be still to come. Its successor gets the maximum of its requests and the target.
//! - No pod is due immediately before every container has a recommendation, because the first containers with
//!   one divide the pod's whole minimum among themselves.
//! - One pod per workload and minute is replaced, and only with at least two replicas; then the others follow.
//! - An OOM-killed container restarts in place with the same resources, as in a cluster.
//! - Pods of jobs are never replaced: the next run starts with the target.
//!
//! Upstream's updater also lowers requests early; waiting for a day is a choice of this simulation. Disruption
//! budgets, in-place resizes and the order of workloads are only in the real updater.

use super::{
    pod::Pod,
    workload::{ContainerResources, ResourceAmounts, ResourceRecommendation},
};

/// Requests of a younger pod are never lowered, in minutes.
const PROTECTED_MINUTES: u64 = 24 * 60;
/// The total difference to the target that justifies a restart.
const UPDATE_THRESHOLD: f64 = 0.1;
/// Workloads with fewer replicas are not disrupted.
const MIN_REPLICAS: usize = 2;

/// The progress of one workload's rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Start of the latest rollout; older pods are still to be replaced.
    began: Option<u64>,
}

impl Rollout {
    /// Returns the index of the pod to replace in this minute, if any.
    pub fn next(
        &mut self,
        minute: u64,
        pods: &[Pod],
        advice: &[Option<ResourceRecommendation>],
    ) -> Option<usize> {
        if pods.len() < MIN_REPLICAS {
            return None;
        }
        let older_than = |minute: u64| pods.iter().position(|pod| pod.created < minute);
        if let Some(index) = self.began.and_then(older_than) {
            return Some(index);
        }
        if !pods.iter().any(|pod| is_due(pod, minute - pod.created, advice)) {
            return None;
        }
        // The others follow, so that replicas have similar ages and the same requests.
        self.began = Some(minute);
        older_than(minute)
    }
}

/// The lower bounds of the successor's requests: those of the old pod if it was too young to be lowered.
pub fn lower_bounds_for_successor(pod: &Pod, minute: u64) -> impl Iterator<Item = ResourceAmounts> {
    let is_young = minute.saturating_sub(pod.created) < PROTECTED_MINUTES;
    pod.resources()
        .map(move |share| if is_young { share.request } else { ResourceAmounts::default() })
}

/// Whether a pod should be replaced.
fn is_due(pod: &Pod, age: u64, advice: &[Option<ResourceRecommendation>]) -> bool {
    // Containers without a recommendation are never due.
    let pairs =
        || pod.resources().zip(advice).filter_map(|(share, advice)| Some((share, (*advice)?)));
    let under_provisioned = || {
        pairs().zip(pod.restarts()).any(|((share, advice), restarts)| {
            is_below(share, advice)
                || restarts > 0 && advice.target.memory > Some(share.request.memory)
        })
    };
    // A container without a recommendation after a day is excluded on purpose.
    let is_mature = age >= PROTECTED_MINUTES;
    (is_mature || advice.iter().all(Option::is_some)) && under_provisioned()
        || is_mature
            && (pairs().any(|(share, advice)| is_above(share, advice))
                || resource_diff(pairs()) >= UPDATE_THRESHOLD)
}

fn is_below(
    ContainerResources { request, .. }: ContainerResources,
    ResourceRecommendation { lower, .. }: ResourceRecommendation,
) -> bool {
    // `None` compares less than any amount.
    Some(request.cpu) < lower.cpu || Some(request.memory) < lower.memory
}

fn is_above(
    ContainerResources { request, .. }: ContainerResources,
    ResourceRecommendation { upper, .. }: ResourceRecommendation,
) -> bool {
    upper.cpu.is_some_and(|most| request.cpu > most)
        || upper.memory.is_some_and(|most| request.memory > most)
}

/// The difference between a pod's requests and the target as a fraction, summed over both resources.
fn resource_diff(pairs: impl Iterator<Item = (ContainerResources, ResourceRecommendation)>) -> f64 {
    let (mut requested, mut diff) = ([0_i128; 2], [0_i128; 2]);
    for (ContainerResources { request, .. }, ResourceRecommendation { target, .. }) in pairs {
        let target = target.or(request);
        requested[0] += i128::from(request.cpu.0);
        requested[1] += i128::from(request.memory.0);
        diff[0] += i128::from(target.cpu.0) - i128::from(request.cpu.0);
        diff[1] += i128::from(target.memory.0) - i128::from(request.memory.0);
    }
    let fraction =
        |diff: i128, of: i128| if diff == 0 { 0.0 } else { diff.abs() as f64 / of.max(1) as f64 };
    fraction(diff[0], requested[0]) + fraction(diff[1], requested[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::{
            demand::{CpuDemand, MemoryDemand},
            noise::Noise,
            workload::{
                ContainerSpec, ContainerType, OptionalAmounts, ResourceAmounts, ResourceLimits,
            },
        },
        types::units::{Bytes, MilliCpu},
    };

    const fn amount(cpu: i64, memory: i64) -> ResourceAmounts {
        ResourceAmounts { cpu: MilliCpu(cpu), memory: Bytes(memory) }
    }

    fn pods(created: &[u64], request: ResourceAmounts) -> Vec<Pod> {
        let spec = ContainerSpec {
            name: "c".into(),
            container_type: ContainerType::Main,
            resources: ContainerResources { request, limit: ResourceLimits::default() },
            cpu: CpuDemand::Steady { level: MilliCpu(1), spread: 0.0 },
            memory: MemoryDemand::Steady { level: Bytes(1), spread: 0.0 },
        };
        let specs = [spec];
        created
            .iter()
            .map(|at| Pod::new("p".into(), *at, Noise::new(0), &specs, [specs[0].resources], None))
            .collect()
    }

    fn advice(
        target: ResourceAmounts,
        lower: ResourceAmounts,
        upper: ResourceAmounts,
    ) -> [Option<ResourceRecommendation>; 1] {
        [Some(ResourceRecommendation {
            target: target.into(),
            lower: lower.into(),
            upper: upper.into(),
        })]
    }

    #[test]
    fn a_request_below_the_bounds_is_due_at_once_and_one_above_after_a_day() {
        let advice = advice(amount(100, 100), amount(80, 80), amount(120, 120));
        let due = |request, age| {
            let pods = pods(&[0, 0], request);
            Rollout::default().next(age, &pods, &advice).is_some()
        };
        assert!(due(amount(79, 100), 1) && due(amount(100, 79), 1));
        assert!(!due(amount(80, 80), 1) && !due(amount(120, 120), 1));
        assert!(
            !due(amount(121, 100), PROTECTED_MINUTES - 1)
                && !due(amount(100, 121), PROTECTED_MINUTES - 1)
        );
        assert!(
            due(amount(121, 100), PROTECTED_MINUTES) && due(amount(100, 121), PROTECTED_MINUTES)
        );
    }

    #[test]
    fn a_pod_a_tenth_off_the_target_in_total_is_due_after_a_day() {
        let advice = advice(amount(100, 100), amount(1, 1), amount(1000, 1000));
        let off = pods(&[0, 0], amount(106, 106));
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES - 1, &off, &advice), None);
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES, &off, &advice), Some(0));
        let near = pods(&[0, 0], amount(104, 104));
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES, &near, &advice), None);
    }

    #[test]
    fn a_resource_without_a_recommendation_makes_no_pod_due() {
        let memory = |bytes| OptionalAmounts { cpu: None, memory: Some(Bytes(bytes)) };
        let recommendation =
            ResourceRecommendation { target: memory(100), lower: memory(80), upper: memory(120) };
        let due = |request| {
            let pods = pods(&[0, 0], request);
            Rollout::default().next(PROTECTED_MINUTES, &pods, &[Some(recommendation)]).is_some()
        };
        assert!(!due(amount(0, 100)) && !due(amount(1, 100)) && !due(amount(9999, 100)));
        assert!(due(amount(1, 79)) && due(amount(1, 121)));
    }

    #[test]
    fn a_pod_waits_for_recommendations_of_all_containers_but_not_forever() {
        let spec = |name: &str| ContainerSpec {
            name: name.into(),
            container_type: ContainerType::Main,
            resources: ContainerResources {
                request: amount(10, 10),
                limit: ResourceLimits::default(),
            },
            cpu: CpuDemand::Steady { level: MilliCpu(1), spread: 0.0 },
            memory: MemoryDemand::Steady { level: Bytes(1), spread: 0.0 },
        };
        let specs = [spec("one"), spec("two")];
        let shares = specs.iter().map(|spec| spec.resources);
        let pod = Pod::new("p".into(), 0, Noise::new(0), &specs, shares, None);
        let pods = [pod.clone(), pod];
        let low = advice(amount(100, 100), amount(80, 80), amount(120, 120))[0];
        assert_eq!(Rollout::default().next(1, &pods, &[None, low]), None);
        assert!(Rollout::default().next(1, &pods, &[low, low]).is_some());
        assert!(Rollout::default().next(PROTECTED_MINUTES, &pods, &[None, low]).is_some());
    }

    #[test]
    fn one_pod_a_minute_is_replaced_until_all_are_new() {
        let advice = advice(amount(100, 100), amount(80, 80), amount(120, 120));
        let mut rollout = Rollout::default();
        let mut replicas = pods(&[0, 0, 0], amount(50, 100));
        for minute in 10..13 {
            let index = rollout.next(minute, &replicas, &advice).expect("pods are left");
            let new = pods(&[minute], amount(100, 100)).remove(0);
            replicas[index] = new;
        }
        assert!(replicas.iter().all(|pod| pod.created >= 10));
        assert_eq!(rollout.next(13, &replicas, &advice), None);
        assert_eq!(
            rollout.next(13 + PROTECTED_MINUTES, &replicas, &advice),
            None,
            "they have what they need"
        );
    }

    #[test]
    fn single_replicas_and_containers_without_a_recommendation_are_not_updated() {
        let far = advice(amount(1000, 1000), amount(900, 900), amount(2000, 2000));
        assert_eq!(Rollout::default().next(9999, &pods(&[0], amount(5, 5)), &far), None);
        let many = pods(&[0, 0], amount(5, 5));
        assert_eq!(Rollout::default().next(9999, &many, &[None]), None);
        assert!(Rollout::default().next(9999, &many, &far).is_some());
    }
}
