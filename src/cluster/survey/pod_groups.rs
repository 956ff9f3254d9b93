//! Pods with the same owner, and the pods of a workload, while a survey is read.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use plimsoll_core::{
    rightsizing::survey::{Amounts, Container, GroupMember, RunningAmounts},
    types::Time,
};

use super::objects::SurveyedPod;

/// Prefixes of the annotations that decisions use.
const KEPT_ANNOTATION_PREFIXES: [&str; 3] = ["plimsoll.dev/", "meta.helm.sh/", "helm.sh/"];

/// The unfinished pods of an owner.
#[derive(Debug)]
pub(super) struct PodGroup {
    pub(super) api_version: Box<str>,
    /// Whether the pods belong to no controller.
    pub(super) is_bare: bool,
    /// Whether their containers end.
    pub(super) ends: bool,
    /// Names of pods and of their nodes.
    pub(super) pods: BTreeMap<Box<str>, Option<Box<str>>>,
    pub(super) newest: NewestPod,
}

impl PodGroup {
    /// Without any pods.
    pub(super) fn new(api_version: Box<str>, is_bare: bool, ends: bool) -> Self {
        let (pods, newest) = (BTreeMap::new(), NewestPod::default());
        Self { api_version, is_bare, ends, pods, newest }
    }

    pub(super) fn add(&mut self, name: &str, pod: &SurveyedPod) {
        let node = pod.spec.node_name.clone().filter(|node| !node.is_empty());
        self.pods.insert(name.into(), node);
        let key = (created(&pod.metadata), Box::from(name));
        if self.newest.key < key {
            self.newest.key = key;
            self.newest.containers = pod.spec.containers();
            self.newest.metadata = KeptMetadata::new(&pod.metadata);
        }
        for (container, amounts) in pod.running() {
            let known = self.newest.running.entry(container).or_default();
            known.requests = known.requests.max(amounts.requests);
            known.limits = known.limits.max(amounts.limits);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct NewestPod {
    pub(super) key: (Option<Time>, Box<str>),
    pub(super) containers: Vec<Container>,
    /// What containers run with, by name. Of all pods with the same owner the largest amounts count.
    pub(super) running: BTreeMap<Box<str>, RunningAmounts>,
    pub(super) metadata: KeptMetadata,
}

#[derive(Clone, Debug, Default)]
pub(super) struct KeptMetadata {
    pub(super) labels: BTreeMap<Box<str>, Box<str>>,
    pub(super) annotations: BTreeMap<Box<str>, Box<str>>,
    pub(super) created: Option<Time>,
}

/// Whether pods run with other amounts than their template asks for. The API server sets a missing request to the limit.
pub(super) fn differs(container: &Container, running: &RunningAmounts) -> bool {
    let requests = |requests: Amounts, limits: Amounts| Amounts {
        cpu: requests.cpu.or(limits.cpu),
        memory: requests.memory.or(limits.memory),
    };
    let template = requests(container.requests, container.limits);
    template != requests(running.requests, running.limits) || container.limits != running.limits
}

/// The pods of a workload.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) api_version: Option<Box<str>>,
    pub(super) is_bare: bool,
    pub(super) pods: BTreeMap<Box<str>, Option<Box<str>>>,
    pub(super) newest: NewestPod,
    /// Whether the containers of its newest pods end.
    pub(super) ends: bool,
    /// The owners of its pods, if they are grouped.
    pub(super) members: Vec<GroupMember>,
}

impl Draft {
    pub(super) fn add(&mut self, group: &PodGroup, version: Option<&str>) {
        self.api_version = self.api_version.take().or_else(|| version.map(Box::from));
        self.is_bare = group.is_bare;
        self.pods.extend(group.pods.iter().map(|(name, node)| (name.clone(), node.clone())));
        self.add_newest(group);
    }

    /// Adds what finished pods show about the containers.
    pub(super) fn add_finished(&mut self, group: &PodGroup, version: Option<&str>) {
        self.api_version = self.api_version.take().or_else(|| version.map(Box::from));
        self.add_newest(group);
    }

    fn add_newest(&mut self, group: &PodGroup) {
        if self.newest.key < group.newest.key {
            self.newest = group.newest.clone();
            self.ends = group.ends;
        }
    }
}

impl KeptMetadata {
    pub(super) fn new(metadata: &ObjectMeta) -> Self {
        let boxed = |(key, value): (&String, &String)| (key.as_str().into(), value.as_str().into());
        let is_kept = |key: &str| KEPT_ANNOTATION_PREFIXES.iter().any(|one| key.starts_with(one));
        let annotations = metadata.annotations.iter().flatten();
        Self {
            labels: metadata.labels.iter().flatten().map(boxed).collect(),
            annotations: annotations.filter(|(key, _)| is_kept(key)).map(boxed).collect(),
            created: created(metadata),
        }
    }
}

pub(super) fn created(metadata: &ObjectMeta) -> Option<Time> {
    metadata.creation_timestamp.as_ref().map(|at| at.0.into())
}
