//! Samples of pods from usage that was computed from series, which do not tell what a pod consists of.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasher,
};

use super::{
    pod::{Pod, Resources},
    samples::PodMetrics,
};
use crate::scaling::pod_usage::{PodUsage, Resource};

/// The samples of pods. A pod without usage is left out, and so is one whose usage is from before it started: then it is that
/// of another pod of the same name. A container of the pod without an amount has no usage, so its pod is missing for a metric
/// of all containers.
pub fn pod_samples<S: BuildHasher>(
    pods: &[Pod],
    usage: &HashMap<String, PodUsage, S>,
    resource: Resource,
) -> Vec<PodMetrics> {
    let sample = |pod: &Pod| {
        let usage = usage.get(&pod.name)?;
        let is_earlier_pod = pod.start_time.is_some_and(|start| usage.at < start);
        (!is_earlier_pod).then(|| pod_sample(pod, usage, resource))
    };
    pods.iter().filter_map(sample).collect()
}

fn pod_sample(pod: &Pod, usage: &PodUsage, resource: Resource) -> PodMetrics {
    let mut containers: BTreeMap<&str, Resources> = BTreeMap::new();
    for (name, amount) in &usage.containers {
        let amount = amount.map(|amount| (resource.into_str().to_owned(), amount));
        containers.insert(name, amount.into_iter().collect());
    }
    for container in &pod.init_containers {
        if container.is_restartable {
            containers.entry(&container.name).or_default();
        } else {
            // It ended less than a minute ago.
            containers.remove(&*container.name);
        }
    }
    for container in &pod.containers {
        containers.entry(&container.name).or_default();
    }
    PodMetrics {
        pod: pod.name.clone(),
        timestamp: usage.at,
        window: usage.window,
        containers: containers.into_iter().map(|(name, usage)| (name.to_owned(), usage)).collect(),
    }
}
