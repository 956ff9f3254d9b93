//! Pods with the same owner, and the pods of a workload, while a survey is read.

use std::sync::Arc;

use kube::core::ObjectMeta;
use plimsoll_core::{
    rightsizing::{
        labels::Labels,
        survey::{Amounts, Container, GroupMember, RunningAmounts},
    },
    types::{Time, interner::Interner},
};

use super::objects::SurveyedPod;

/// Prefixes of the annotations that decisions use.
const KEPT_ANNOTATION_PREFIXES: [&str; 3] = ["plimsoll.dev/", "meta.helm.sh/", "helm.sh/"];

/// The name of a pod, and that of its node.
type PodAndNode = (Box<str>, Option<Box<str>>);

/// The unfinished pods of an owner.
#[derive(Debug, Default)]
pub(super) struct PodGroup {
    pub(super) api_version: Arc<str>,
    /// Whether the pods belong to no controller.
    pub(super) is_bare: bool,
    /// Whether their containers end.
    pub(super) ends: bool,
    /// In any order, and more than once if a list was interrupted.
    pub(super) pods: Vec<PodAndNode>,
    pub(super) newest: NewestPod,
}

impl PodGroup {
    /// Without any pods.
    pub(super) fn new(api_version: Arc<str>, is_bare: bool, ends: bool) -> Self {
        let newest = NewestPod::default();
        Self { api_version, is_bare, ends, pods: Vec::with_capacity(1), newest }
    }

    pub(super) fn add(&mut self, name: &str, pod: &SurveyedPod, shared: &mut SharedValues) {
        // Before the containers of the newest pod change.
        let known = |(name, _): (&str, _)| self.newest.running(name);
        let known: Vec<Option<RunningAmounts>> = pod.running().map(known).collect();
        let node = pod.spec.node_name.clone().filter(|node| !node.is_empty());
        self.pods.push((name.into(), node));
        let created = created(&pod.metadata);
        if (self.newest.created, &*self.newest.name) < (created, name) {
            self.newest.created = created;
            self.newest.name = name.into();
            self.newest.set_containers(pod.spec.containers(shared));
            // The labels of other pods are those of their controllers.
            if self.is_bare {
                self.newest.metadata = KeptMetadata::new(&pod.metadata, shared);
            }
        }
        for ((container, amounts), known) in pod.running().zip(known) {
            let largest = known.map_or(amounts, |known| RunningAmounts {
                requests: known.requests.max(amounts.requests),
                limits: known.limits.max(amounts.limits),
            });
            self.newest.set_running(container, largest, shared);
        }
    }

    /// Adds the pods of another owner. What the pods of the newest one run with counts.
    pub(super) fn merge(&mut self, other: Self) {
        self.pods.extend(other.pods);
        if self.newest.is_older_than(&other.newest) {
            (self.newest, self.ends) = (other.newest, other.ends);
        }
    }
}

/// Values that many objects of a survey have.
#[derive(Debug, Default)]
pub(super) struct SharedValues {
    /// Namespaces, kinds, API versions, labels, and names of objects and containers.
    pub texts: Interner<str>,
    /// The containers of pods and of their templates.
    pub containers: Interner<[Container]>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NewestPod {
    pub(super) created: Option<Time>,
    pub(super) name: Box<str>,
    pub(super) containers: Arc<[Container]>,
    /// What containers run with, if it differs from their own amounts. Of all pods with the same owner the largest amounts
    /// count.
    running: Vec<(Arc<str>, RunningAmounts)>,
    pub(super) metadata: KeptMetadata,
}

impl NewestPod {
    /// What a container runs with; `None` if no pod has it.
    pub(super) fn running(&self, container: &str) -> Option<RunningAmounts> {
        let found = self.running.iter().find(|(name, _)| **name == *container);
        found.map(|(_, amounts)| *amounts).or_else(|| self.own_amounts(container))
    }

    /// What a container of the newest pod asks for itself.
    fn own_amounts(&self, container: &str) -> Option<RunningAmounts> {
        let found = self.containers.iter().find(|known| *known.name == *container);
        found.map(own_amounts)
    }

    /// Sets the containers. Those of former pods ran with their own amounts, unless it is known that they did not.
    fn set_containers(&mut self, containers: Arc<[Container]>) {
        if self.containers != containers {
            for former in &*self.containers {
                let is_known = self.running.iter().any(|(name, _)| *name == former.name);
                let is_same = containers
                    .iter()
                    .any(|new| new.name == former.name && own_amounts(new) == own_amounts(former));
                if !is_known && !is_same {
                    self.running.push((Arc::clone(&former.name), own_amounts(former)));
                }
            }
            self.containers = containers;
        }
    }

    fn set_running(&mut self, container: &str, amounts: RunningAmounts, shared: &mut SharedValues) {
        let is_own = self.own_amounts(container) == Some(amounts);
        match self.running.iter_mut().find(|(name, _)| **name == *container) {
            Some((_, known)) => *known = amounts,
            None if is_own => {}
            None => {
                self.running.reserve_exact(1);
                self.running.push((shared.texts.intern(container), amounts));
            }
        }
    }

    fn is_older_than(&self, other: &Self) -> bool {
        (self.created, &self.name) < (other.created, &other.name)
    }
}

fn own_amounts(container: &Container) -> RunningAmounts {
    RunningAmounts { requests: container.requests, limits: container.limits }
}

#[derive(Clone, Debug, Default)]
pub(super) struct KeptMetadata {
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
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

/// A workload that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) api_version: Option<Arc<str>>,
    /// All of its pods.
    pub(super) pods: Option<Box<PodGroup>>,
    /// The owners of its pods, if they are grouped.
    pub(super) members: Vec<GroupMember>,
}

impl Draft {
    pub(super) fn add(&mut self, group: Box<PodGroup>, version: Option<Arc<str>>) {
        self.api_version = self.api_version.take().or(version);
        match &mut self.pods {
            Some(pods) => pods.merge(*group),
            None => self.pods = Some(group),
        }
    }

    /// Adds what finished pods show about the containers.
    pub(super) fn add_finished(&mut self, mut group: Box<PodGroup>, version: Option<Arc<str>>) {
        group.is_bare = false;
        group.pods.clear();
        self.add(group, version);
    }
}

/// Each pod once, sorted by name. Of several nodes the last one counts.
pub(super) fn by_name(mut pods: Vec<PodAndNode>) -> Vec<PodAndNode> {
    pods.reverse();
    pods.sort_by(|(one, _), (other, _)| one.cmp(other));
    pods.dedup_by(|(one, _), (other, _)| one == other);
    pods
}

impl KeptMetadata {
    pub(super) fn new(metadata: &ObjectMeta, shared: &mut SharedValues) -> Self {
        let is_kept = |key: &str| KEPT_ANNOTATION_PREFIXES.iter().any(|one| key.starts_with(one));
        let annotations = metadata.annotations.iter().flatten();
        let annotations = annotations.filter(|(key, _)| is_kept(key));
        let mut share = |(key, value): (&String, &String)| {
            (shared.texts.intern(key), shared.texts.intern(value))
        };
        Self {
            labels: metadata.labels.iter().flatten().map(&mut share).collect(),
            annotations: annotations.map(&mut share).collect(),
            created: created(metadata),
        }
    }
}

pub(super) fn created(metadata: &ObjectMeta) -> Option<Time> {
    metadata.creation_timestamp.as_ref().map(|at| at.0.into())
}
