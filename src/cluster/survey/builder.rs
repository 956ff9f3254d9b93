//! Puts workloads together from objects that arrive in any order. Sends no requests.
//!
//! A large cluster has tens of thousands of controllers and pods, so they share values, and what is read of them moves into
//! the workloads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    sync::Arc,
};

use kube::core::ObjectMeta;
use plimsoll_core::rightsizing::{
    owner_groups::group_of,
    survey::{
        AutoscalerRef, Container, GroupMember, ReplicaRange, Survey, Unread, UtilizationTarget,
        Workload,
    },
};

use super::{
    controller_id::{ControllerId, CustomKind},
    limit_ranges::DefaultResources,
    objects::{HpaSpec, Surveyed, SurveyedController, SurveyedPod, SurveyedWpa, VpaSpec},
    pod_groups::{Draft, KeptMetadata, PodGroup, SharedValues, by_name, differs},
    reader::UnlistedPlaces,
    scope::SurveyScope,
};
use crate::cluster::cache::{
    controllers::{Owner, WellKnown},
    selector::Selector,
};

/// How far above a pod an owner is looked for that others are grouped by.
const MAX_OWNERS: usize = 10;

/// What a survey has read so far.
#[derive(Debug, Default)]
pub(super) struct SurveyBuilder {
    scope: SurveyScope,
    shared: SharedValues,
    // Boxed, because a map has room for twice as many as it has.
    controllers: HashMap<ControllerId, Box<ListedController>>,
    /// Pods by their direct owner. Pods without one, and static pods, are owned by themselves.
    pods: HashMap<ControllerId, Box<PodGroup>>,
    /// Pods that have finished, by their direct owner, if pods are grouped by owners.
    finished_pods: HashMap<ControllerId, Box<PodGroup>>,
    /// The owners of pods that may own others, if pods are grouped by owners.
    owners_of_pods: HashMap<ControllerId, ControllerId>,
    /// Whether objects of a kind can be scaled. The owners of those that cannot are not followed.
    custom_kinds: HashMap<CustomKind, bool>,
    targets: Vec<(ControllerId, UtilizationTarget)>,
    ranges: Vec<(ControllerId, ReplicaRange)>,
    autoscalers: Vec<(ControllerId, AutoscalerRef)>,
    vpas: BTreeMap<ControllerId, Box<str>>,
    pub(super) defaults: DefaultResources,
    /// Where autoscalers may be missing.
    pub(super) unknown_autoscalers: UnlistedPlaces,
}

#[derive(Debug, Default)]
struct ListedController {
    api_version: Arc<str>,
    owner: Option<(ControllerId, Arc<str>)>,
    metadata: KeptMetadata,
    replicas: Option<u32>,
    containers: Arc<[Container]>,
    template_owner: Option<Box<ControllerId>>,
}

impl SurveyBuilder {
    /// Stores only objects in the namespaces of this scope.
    pub fn new(scope: SurveyScope) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Adds a pod. One that has finished only counts if pods are grouped by owners.
    pub fn add_pod(&mut self, pod: &SurveyedPod) {
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let groups_owners = !self.scope.groups.owner_kinds.is_empty();
        if pod.is_finished() && !groups_owners || !self.scope.includes_namespace(namespace) {
            return;
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        let owner = Owner::controller_of(metadata.owner_references.as_deref().unwrap_or_default());
        // The mirror pod of a static pod is owned by its node.
        let owner = owner.filter(|owner| &*owner.kind != "Node");
        let shared = &mut self.shared;
        let (id, api_version) = match &owner {
            Some(owner) => (ControllerId::of_owner(shared, namespace, owner), &*owner.api_version),
            None => (ControllerId::new(shared, namespace, ("v1", "Pod"), name), "v1"),
        };
        let api_version = shared.texts.intern(api_version);
        if groups_owners && owner.is_some() {
            let own = ControllerId::new(shared, namespace, ("v1", "Pod"), name);
            self.owners_of_pods.insert(own, id.clone());
        }
        let pods = if pod.is_finished() { &mut self.finished_pods } else { &mut self.pods };
        let new = || Box::new(PodGroup::new(api_version, owner.is_none(), pod.ends()));
        pods.entry(id).or_insert_with(new).add(name, pod, shared);
    }

    /// Adds a controller of a kind. Pods are added before, because there are many ReplicaSets and Jobs without pods, which
    /// only belong to another controller.
    pub fn add_controller(&mut self, api_version: &str, kind: &str, object: &SurveyedController) {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        if !self.scope.includes_namespace(namespace) {
            return;
        }
        let shared = &mut self.shared;
        let id = ControllerId::new(shared, namespace, (api_version, kind), name);
        let owner = Owner::controller_of(metadata.owner_references.as_deref().unwrap_or_default());
        let known = id.well_known();
        let is_generated =
            matches!(known, Some(WellKnown::ReplicaSet | WellKnown::Job)) && owner.is_some();
        if is_generated && !self.pods.contains_key(&id) {
            return;
        }
        let owner = owner.map(|owner| {
            let id = ControllerId::of_owner(shared, namespace, &owner);
            (id, shared.texts.intern(&owner.api_version))
        });
        if is_generated
            && self.scope.groups.owner_kinds.is_empty()
            && let Some((owner, api_version)) = &owner
            && owner.well_known().is_some()
        {
            self.move_pods(&id, owner, api_version);
            return;
        }
        let SurveyedController { spec, status, .. } = object;
        let replicas = match known {
            Some(WellKnown::DaemonSet) => status.desired_number_scheduled,
            Some(WellKnown::Job | WellKnown::CronJob) => None,
            _ => spec.replicas.or(status.replicas.filter(|_| known.is_none())),
        };
        let template_owner = spec.workload_ref.as_ref();
        let template_owner =
            template_owner.map(|to| Box::new(ControllerId::of_owner(shared, namespace, to)));
        let listed = ListedController {
            api_version: shared.texts.intern(api_version),
            metadata: if is_generated {
                KeptMetadata::default()
            } else {
                KeptMetadata::new(metadata, shared)
            },
            owner,
            replicas,
            containers: spec.pod_template().map_or_else(Arc::default, |pod| pod.containers(shared)),
            template_owner,
        };
        self.controllers.insert(id, Box::new(listed));
    }

    /// Moves pods to the owner of their owner, of which nothing else is needed.
    fn move_pods(&mut self, from: &ControllerId, to: &ControllerId, api_version: &Arc<str>) {
        let Some(mut group) = self.pods.remove(from) else { return };
        group.api_version = Arc::clone(api_version);
        match self.pods.get_mut(to) {
            Some(pods) => pods.merge(*group),
            None => {
                self.pods.insert(to.clone(), group);
            }
        }
    }

    /// Adds an autoscaler whose targets may be relative to requests.
    pub fn add_hpa(&mut self, hpa: &Surveyed<HpaSpec>) {
        let namespace = hpa.metadata.namespace.as_deref().unwrap_or_default();
        let name = hpa.metadata.name.as_deref().unwrap_or_default();
        let id = ControllerId::of_owner(&mut self.shared, namespace, &hpa.spec.scale_target_ref);
        let targets = hpa.spec.utilization_targets(name).into_iter();
        self.targets.extend(targets.map(|target| (id.clone(), target)));
        self.ranges.push((id.clone(), hpa.spec.replica_range(name)));
        let kind = "HorizontalPodAutoscaler".into();
        self.autoscalers.push((id, AutoscalerRef { kind, name: name.into() }));
    }

    /// Adds a WatermarkPodAutoscaler. Its watermarks are amounts and not shares of requests.
    pub fn add_wpa(&mut self, wpa: &SurveyedWpa) {
        let namespace = wpa.metadata.namespace.as_deref().unwrap_or_default();
        let name = wpa.metadata.name.as_deref().unwrap_or_default();
        let id = ControllerId::of_owner(&mut self.shared, namespace, &wpa.spec.scale_target_ref);
        let kind = "WatermarkPodAutoscaler".into();
        self.autoscalers.push((id, AutoscalerRef { kind, name: name.into() }));
    }

    /// Adds a VerticalPodAutoscaler. If several target a workload, the first by name counts.
    pub fn add_vpa(&mut self, vpa: &Surveyed<VpaSpec>) {
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        let name = vpa.metadata.name.as_deref().unwrap_or_default();
        let id = ControllerId::of_owner(&mut self.shared, namespace, &vpa.spec.target_ref);
        let known = self.vpas.entry(id).or_insert_with(|| name.into());
        if name < &**known {
            *known = name.into();
        }
    }

    /// The API versions and kinds of owners of which it is not known yet whether they can be scaled.
    pub fn unknown_kinds(&self) -> BTreeSet<(Arc<str>, Arc<str>)> {
        let pods = self.pods.iter().chain(&self.finished_pods);
        let of_pods = pods.map(|(id, group)| (id, &group.api_version));
        let owners = self.controllers.values().filter_map(|listed| listed.owner.as_ref());
        let of_controllers = owners.map(|(id, api_version)| (id, api_version));
        let is_unknown = |id: &ControllerId| {
            let is_built_in = id.well_known().is_some() || matches!(&*id.kind, "Pod" | "Node");
            !is_built_in && !self.custom_kinds.contains_key(&id.custom_kind())
        };
        of_pods
            .chain(of_controllers)
            .filter(|(id, _)| is_unknown(id))
            .map(|(id, api_version)| (api_version.clone(), id.kind.clone()))
            .collect()
    }

    /// Stores whether objects of a kind can be scaled.
    pub fn set_scalable(&mut self, api_version: &str, kind: &str, is_scalable: bool) {
        let id = ControllerId::new(&mut self.shared, "", (api_version, kind), "");
        self.custom_kinds.insert(id.custom_kind(), is_scalable);
    }

    /// The topmost controller above an object, itself included: the last one that is built in or scalable, as for VPAs.
    /// If there is none, the object itself.
    fn top_of(&self, object: &ControllerId) -> ControllerId {
        if let Some(owner) = self.grouping_owner(object) {
            return owner.clone();
        }
        let mut path = vec![object];
        let mut top = object;
        while let Some(&id) = path.last() {
            let is_controller = id.well_known().is_some()
                || self.custom_kinds.get(&id.custom_kind()).copied().unwrap_or_default();
            if !is_controller {
                break;
            }
            top = id;
            let owner = self.controllers.get(id).and_then(|listed| listed.owner.as_ref());
            // A cycle, which only a mistake can make, has no end.
            match owner {
                Some((owner, _)) if !path.contains(&owner) => path.push(owner),
                _ => break,
            }
        }
        top.clone()
    }

    /// The topmost owner of an object, itself included, that others are grouped by. Any kind may be between them.
    fn grouping_owner<'a>(&'a self, object: &'a ControllerId) -> Option<&'a ControllerId> {
        if self.scope.groups.owner_kinds.is_empty() {
            return None;
        }
        let (mut top, mut id) = (None, object);
        for _ in 0..MAX_OWNERS {
            if self.scope.groups.is_by_kind(&id.kind) {
                top = Some(id);
            }
            let listed = self.controllers.get(id).and_then(|listed| listed.owner.as_ref());
            match listed.map(|(owner, _)| owner).or_else(|| self.owners_of_pods.get(id)) {
                Some(owner) => id = owner,
                None => break,
            }
        }
        top
    }

    /// Whether an owner is listed that others are grouped by, or has pods.
    pub fn has_kind(&self, kind: &str) -> bool {
        let is_of_kind = |id: &ControllerId| id.kind.eq_ignore_ascii_case(kind);
        let owners = self.controllers.values().filter_map(|listed| listed.owner.as_ref());
        let pods = self.pods.keys().chain(self.finished_pods.keys());
        self.controllers.keys().chain(owners.map(|(id, _)| id)).chain(pods).any(is_of_kind)
    }

    pub fn has_namespace(&self, namespace: &str) -> bool {
        let is_in = |id: &ControllerId| &*id.namespace == namespace;
        self.controllers.keys().any(is_in) || self.pods.keys().any(is_in)
    }

    /// The workloads in scope whose labels match. Those that are equal to one of an earlier survey are shared with it.
    pub fn build(mut self, selector: &Selector, earlier: Option<&Survey>) -> Survey {
        self.shared = SharedValues::default();
        let mut drafts: BTreeMap<ControllerId, Draft> = BTreeMap::new();
        let (pods, finished_pods) = (mem::take(&mut self.pods), mem::take(&mut self.finished_pods));
        let with_both = finished_pods.keys().filter(|id| pods.contains_key(*id));
        let with_both: HashSet<ControllerId> = with_both.cloned().collect();
        for (id, group) in pods {
            let top = self.top_of(&id);
            // A version is known from the object, or else from the reference to it.
            let version = if top == id {
                Some(Arc::clone(&group.api_version))
            } else {
                self.version_of(&top)
            };
            let member = self.member(&top, &id, &group);
            let draft = drafts.entry(top).or_default();
            draft.add(group, version);
            draft.members.extend(member);
        }
        for (id, group) in finished_pods {
            let top = self.top_of(&id);
            let version = self.version_of(&top);
            // Anything else is no workload because of finished pods.
            let Some(member) = self.member(&top, &id, &group) else { continue };
            let draft = drafts.entry(top).or_default();
            draft.add_finished(group, version);
            if !with_both.contains(&id) {
                draft.members.push(GroupMember { pods: Vec::new(), ..member });
            }
        }
        let template_owners: HashSet<_> = self
            .controllers
            .values()
            .filter_map(|listed| listed.template_owner.as_deref().cloned())
            .collect();
        for (id, listed) in &self.controllers {
            let top = self.top_of(id);
            if top == *id {
                // A Deployment that runs no pods, because a Rollout uses its pod template, is no workload.
                if drafts.contains_key(id) || !template_owners.contains(id) {
                    drafts.entry(top).or_default();
                }
            } else if let Some((owner, version)) = &listed.owner
                && *owner == top
                && let Some(draft) = drafts.get_mut(&top)
            {
                draft.api_version.get_or_insert_with(|| Arc::clone(version));
            }
        }
        let earlier = earlier.map(|survey| &*survey.workloads).unwrap_or_default();
        let mut workloads: Vec<Arc<Workload>> = Vec::with_capacity(drafts.len());
        let mut targets: BTreeMap<ControllerId, Vec<UtilizationTarget>> = BTreeMap::new();
        for (id, target) in &self.targets {
            targets.entry(self.top_of(id)).or_default().push(target.clone());
        }
        let mut ranges: BTreeMap<ControllerId, Vec<ReplicaRange>> = BTreeMap::new();
        for (id, range) in &self.ranges {
            ranges.entry(self.top_of(id)).or_default().push(range.clone());
        }
        let vpas = mem::take(&mut self.vpas);
        let vpas: BTreeMap<_, _> =
            vpas.into_iter().map(|(id, name)| (self.top_of(&id), name)).collect();
        let mut autoscalers: BTreeMap<ControllerId, Vec<AutoscalerRef>> = BTreeMap::new();
        for (id, autoscaler) in &self.autoscalers {
            autoscalers.entry(self.top_of(id)).or_default().push(autoscaler.clone());
        }
        // Only the owners of templates are needed by other workloads.
        self.controllers.retain(|id, _| drafts.contains_key(id) || template_owners.contains(id));
        for (id, draft) in drafts {
            if !self.scope.includes_kind(&id.kind) {
                continue;
            }
            let mut workload = self.workload(&id, draft);
            let label = |key: &str| workload.labels.get(key);
            if workload.containers.is_empty() || !selector.matches_with(label) {
                continue;
            }
            workload.utilization_targets = targets.remove(&id).unwrap_or_default();
            workload
                .utilization_targets
                .sort_by(|a, b| (&a.name, a.metric).cmp(&(&b.name, b.metric)));
            workload.replica_ranges = ranges.remove(&id).unwrap_or_default();
            workload.replica_ranges.sort_unstable();
            workload.scaled_by = autoscalers.remove(&id).unwrap_or_default();
            workload.scaled_by.sort_unstable();
            workload.autoscalers_unknown = self.unknown_autoscalers.include(&id.namespace);
            workload.vpa = vpas.get(&id).cloned();
            let found = earlier.binary_search_by(|of| identity(of).cmp(&identity(&workload)));
            let shared = found.ok().map(|index| &earlier[index]).filter(|of| ***of == workload);
            workloads.push(shared.map_or_else(|| Arc::new(workload), Arc::clone));
            if !template_owners.contains(&id) {
                self.controllers.remove(&id);
            }
        }
        workloads.shrink_to_fit();
        Survey { workloads, ..Survey::default() }
    }

    /// An owner of pods in a group.
    fn member(
        &self,
        top: &ControllerId,
        id: &ControllerId,
        group: &PodGroup,
    ) -> Option<GroupMember> {
        self.scope.groups.is_by_kind(&top.kind).then(|| GroupMember {
            kind: (*id.kind).into(),
            name: (*id.name).into(),
            created: group.newest.created,
            pods: by_name(group.pods.clone()).into_iter().map(|(name, _)| name).collect(),
        })
    }

    fn version_of(&self, id: &ControllerId) -> Option<Arc<str>> {
        self.controllers.get(id).map(|listed| Arc::clone(&listed.api_version))
    }

    fn workload(&self, id: &ControllerId, draft: Draft) -> Workload {
        let group = draft.pods.map(|group| *group).unwrap_or_default();
        let listed = self.controllers.get(id);
        let owner = listed.and_then(|listed| listed.template_owner.as_deref());
        let owner = owner.filter(|owner| self.controllers.contains_key(*owner));
        let template = match owner {
            Some(owner) => self.controllers.get(owner),
            None => listed,
        };
        let template = template.map(|listed| &listed.containers);
        let containers = template.filter(|containers| !containers.is_empty());
        let metadata = match listed {
            Some(listed) => listed.metadata.clone(),
            None if group.is_bare => group.newest.metadata.clone(),
            None => KeptMetadata::default(),
        };
        let pods = by_name(group.pods);
        let count = u32::try_from(pods.len()).ok();
        let replicas = match id.well_known() {
            Some(WellKnown::Job | WellKnown::CronJob) => None,
            _ => listed.and_then(|listed| listed.replicas).or(count),
        };
        let api_version = listed.map(|listed| &listed.api_version).or(draft.api_version.as_ref());
        // Unzipped vectors have room for more.
        let (names, nodes): (Vec<_>, Vec<_>) = pods.into_iter().unzip();
        let (mut pods, mut nodes): (Vec<Box<str>>, Vec<Box<str>>) =
            (names, nodes.into_iter().flatten().collect());
        pods.shrink_to_fit();
        nodes.shrink_to_fit();
        let newest = &group.newest;
        let (containers, injected) = match containers {
            Some(containers) => {
                let is_injected =
                    |one: &&Container| containers.iter().all(|known| known.name != one.name);
                let injected = newest.containers.iter().filter(is_injected).cloned();
                (Arc::clone(containers), injected.collect())
            }
            None => (Arc::clone(&newest.containers), Vec::new().into()),
        };
        let [containers, injected] = [containers, injected].map(|mut containers: Arc<[_]>| {
            self.defaults.apply(&id.namespace, &mut containers);
            for index in 0..containers.len() {
                let container = &containers[index];
                let running = newest.running(&container.name);
                let running = running.filter(|running| differs(container, running));
                if running.is_some() {
                    Arc::make_mut(&mut containers)[index].running = running.map(Box::new);
                }
            }
            containers
        });
        // Pods that run all the time have no runs.
        let is_group = group.ends && !draft.members.is_empty();
        let members = is_group.then(|| group_of("owner", draft.members));
        Workload {
            cluster: None,
            namespace: Arc::clone(&id.namespace),
            api_version: api_version.cloned(),
            kind: Arc::clone(&id.kind),
            name: (*id.name).into(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            replicas,
            created: metadata.created,
            nodes,
            pods,
            utilization_targets: Vec::new(),
            replica_ranges: Vec::new(),
            autoscalers_unknown: false,
            vpa: None,
            template_owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name).into()),
            scaled_by: Vec::new(),
            containers,
            injected,
            group: members,
        }
    }
}

/// What surveys are sorted by.
fn identity(workload: &Workload) -> [&str; 3] {
    [&workload.namespace, &workload.kind, &workload.name]
}

pub(super) fn invalid_object(kind: &str, metadata: &ObjectMeta, reason: &str) -> Unread {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    Unread {
        what: format!("{kind} {namespace}/{name}"),
        why: format!("the object is invalid: {reason}"),
    }
}
