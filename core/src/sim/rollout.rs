//! The simulation's updater: when pods are replaced so that they start with what is recommended.
//!
//! It stands in for the VerticalPodAutoscaler's mode `Recreate`, in its main rules:
//! - a pod is due **at once** when a request lies below the recommended bounds, or when one of its
//!   containers was killed for lack of memory and the target gives it more;
//! - a pod is due **after a day of its life** when a request lies above the bounds, or its requests are off
//!   the target by a tenth or more in all;
//! - nothing is **taken away** from a pod that is younger than a day, whyever it is replaced: a daily peak
//!   or a filling heap may be still to come. Its successor gets the larger of what it had and the target;
//! - nothing is given at once before every container of the pod is known, because the first ones to be
//!   known share out the pod's whole floor among themselves;
//! - one pod of a workload a minute, and only with two replicas or more; the others follow it;
//! - a container that was killed starts again in place with what it had, as in a cluster;
//! - pods of jobs are never replaced: the next run starts with the target.
//!
//! Upstream's updater also takes away early; waiting a day is this stand-in's choice. Disruption budgets,
//! resizes in place and the order among workloads belong to the real updater.

use super::{
    pod::Pod,
    workload::{ContainerResources, ResourceAmounts, ResourceRecommendation},
};

/// Nothing is taken from a younger pod, in minutes.
const PROTECTED_MINUTES: u64 = 24 * 60;
/// Off the target by this fraction in all is worth a restart.
const UPDATE_THRESHOLD: f64 = 0.1;
/// Fewer replicas than that are not disturbed.
const MIN_REPLICAS: usize = 2;

/// How far the rollout of one workload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// When the latest one began; pods from before are still to be replaced.
    began: Option<u64>,
}

impl Rollout {
    /// Which pod is to be replaced in this minute, if any.
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
        if let Some(left) = self.began.and_then(older_than) {
            return Some(left);
        }
        if !pods.iter().any(|pod| is_due(pod, minute - pod.created, advice)) {
            return None;
        }
        // The others follow, so that replicas keep the same age and get the same requests.
        self.began = Some(minute);
        older_than(minute)
    }
}

/// What the successor of a pod may not go below: all that it had, if it was too young to lose anything.
pub fn lower_bounds_for_successor(pod: &Pod, minute: u64) -> impl Iterator<Item = ResourceAmounts> {
    let young = minute.saturating_sub(pod.created) < PROTECTED_MINUTES;
    pod.resources().map(move |share| if young { share.request } else { ResourceAmounts::default() })
}

/// Whether a pod should be replaced.
fn is_due(pod: &Pod, age: u64, advice: &[Option<ResourceRecommendation>]) -> bool {
    // Where nothing is recommended, a request is what it should be.
    let pairs =
        || pod.resources().zip(advice).filter_map(|(share, advice)| Some((share, (*advice)?)));
    let starving = || {
        pairs().zip(pod.restarts()).any(|((share, advice), restarts)| {
            is_below(share, advice)
                || restarts > 0 && advice.target.memory > Some(share.request.memory)
        })
    };
    // Whom nobody knows after a day is left out on purpose.
    let grown_up = age >= PROTECTED_MINUTES;
    (grown_up || advice.iter().all(Option::is_some)) && starving()
        || grown_up
            && (pairs().any(|(share, advice)| is_above(share, advice))
                || resource_diff(pairs()) >= UPDATE_THRESHOLD)
}

fn is_below(
    ContainerResources { request, .. }: ContainerResources,
    ResourceRecommendation { lower, .. }: ResourceRecommendation,
) -> bool {
    // No bound is less than any.
    Some(request.cpu) < lower.cpu || Some(request.memory) < lower.memory
}

fn is_above(
    ContainerResources { request, .. }: ContainerResources,
    ResourceRecommendation { upper, .. }: ResourceRecommendation,
) -> bool {
    upper.cpu.is_some_and(|most| request.cpu > most)
        || upper.memory.is_some_and(|most| request.memory > most)
}

/// By which fraction the requests of a pod are off the target, both resources together.
fn resource_diff(pairs: impl Iterator<Item = (ContainerResources, ResourceRecommendation)>) -> f64 {
    let (mut requested, mut off) = ([0_i128; 2], [0_i128; 2]);
    for (ContainerResources { request, .. }, ResourceRecommendation { target, .. }) in pairs {
        let target = target.or(request);
        requested[0] += i128::from(request.cpu.0);
        requested[1] += i128::from(request.memory.0);
        off[0] += i128::from(target.cpu.0) - i128::from(request.cpu.0);
        off[1] += i128::from(target.memory.0) - i128::from(request.memory.0);
    }
    let fraction =
        |off: i128, of: i128| if off == 0 { 0.0 } else { off.abs() as f64 / of.max(1) as f64 };
    fraction(off[0], requested[0]) + fraction(off[1], requested[1])
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
    fn a_tenth_off_the_target_in_all_is_due_after_a_day() {
        let advice = advice(amount(100, 100), amount(1, 1), amount(1000, 1000));
        let off = pods(&[0, 0], amount(106, 106));
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES - 1, &off, &advice), None);
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES, &off, &advice), Some(0));
        let near = pods(&[0, 0], amount(104, 104));
        assert_eq!(Rollout::default().next(PROTECTED_MINUTES, &near, &advice), None);
    }

    #[test]
    fn a_resource_that_is_not_recommended_makes_no_pod_due() {
        let memory = |bytes| OptionalAmounts { cpu: None, memory: Some(Bytes(bytes)) };
        let said =
            ResourceRecommendation { target: memory(100), lower: memory(80), upper: memory(120) };
        let due = |request| {
            let pods = pods(&[0, 0], request);
            Rollout::default().next(PROTECTED_MINUTES, &pods, &[Some(said)]).is_some()
        };
        assert!(!due(amount(0, 100)) && !due(amount(1, 100)) && !due(amount(9999, 100)));
        assert!(due(amount(1, 79)) && due(amount(1, 121)));
    }

    #[test]
    fn a_pod_waits_until_all_its_containers_are_known_but_not_for_ever() {
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
    fn pods_go_one_a_minute_until_all_are_new() {
        let advice = advice(amount(100, 100), amount(80, 80), amount(120, 120));
        let mut rollout = Rollout::default();
        let mut all = pods(&[0, 0, 0], amount(50, 100));
        for minute in 10..13 {
            let index = rollout.next(minute, &all, &advice).expect("pods are left");
            let new = pods(&[minute], amount(100, 100)).remove(0);
            all[index] = new;
        }
        assert!(all.iter().all(|pod| pod.created >= 10));
        assert_eq!(rollout.next(13, &all, &advice), None);
        assert_eq!(
            rollout.next(13 + PROTECTED_MINUTES, &all, &advice),
            None,
            "they have what they need"
        );
    }

    #[test]
    fn a_single_replica_and_a_container_without_advice_are_left_alone() {
        let far = advice(amount(1000, 1000), amount(900, 900), amount(2000, 2000));
        assert_eq!(Rollout::default().next(9999, &pods(&[0], amount(5, 5)), &far), None);
        let many = pods(&[0, 0], amount(5, 5));
        assert_eq!(Rollout::default().next(9999, &many, &[None]), None);
        assert!(Rollout::default().next(9999, &many, &far).is_some());
    }
}
