//! Generates the input of both updaters: workloads of every kind with their VPAs, recommendations, and restrictions on
//! updates.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::generated_pods::{NODES, PodKind, PodOwner};
use super::generated_restrictions::{budgets, create_lease, limits, node};
use super::generated_vpas::{self, AUTOSCALING, ContainerTarget, VPAS, vpa};
use crate::support::bulk_objects::{self, ApiWrite, Workload, collection};
use crate::support::random::Random;

const MEBIBYTE: u64 = 1 << 20;
/// One in this many namespaces has LimitRanges of type Pod. With those, upstream crashes, repeatedly, if a container has no
/// recommendation; so all containers there have one.
const POD_RANGES_EVERY: usize = 4;

/// A workload with its VPAs and pods.
#[derive(Debug)]
pub struct ScenarioWorkload {
    /// Owner of the pods.
    pub workload: Workload,
    /// Kinds of its pods.
    pub kinds: Vec<PodKind>,
    /// The kind of each pod; the index is the pod's number.
    pub pods: Vec<usize>,
    vpas: Vec<Value>,
    status: Value,
    budgets: Vec<(Value, Value)>,
    /// Additional owners, and the fields that make them owners.
    owners: Vec<ApiWrite>,
    scales: Vec<ApiWrite>,
    now: Timestamp,
}

/// The input of both updaters.
#[derive(Debug)]
pub struct Scenario {
    /// Workloads by number.
    pub subjects: Vec<ScenarioWorkload>,
    ranges: Vec<ApiWrite>,
    now: Timestamp,
}

// === impl Scenario ===

impl Scenario {
    /// Generates this many workloads, spread over the namespaces, at this time.
    pub fn draw(seed: u64, count: usize, namespaces: &[&str], now: Timestamp) -> Self {
        let subjects = (0..count).map(|index| {
            let place = index % namespaces.len();
            let is_whole = place.is_multiple_of(POD_RANGES_EVERY);
            ScenarioWorkload::draw(seed, index as u64, (namespaces[place], is_whole), now)
        });
        let ranges = namespaces.iter().enumerate().filter_map(|(place, namespace)| {
            let mut noise = Random::derive(seed, &[7, place as u64]);
            let limits = limits(&mut noise, place.is_multiple_of(POD_RANGES_EVERY))?;
            let object = json!({
                "apiVersion": "v1", "kind": "LimitRange",
                "metadata": { "name": "range", "namespace": namespace }, "spec": { "limits": limits },
            });
            Some(ApiWrite::create(collection("v1", namespace, "limitranges"), &object))
        });
        Self { ranges: ranges.collect(), subjects: subjects.collect(), now }
    }

    /// Returns all objects in rounds: each round depends on the previous ones.
    pub fn rounds(&self) -> Vec<Vec<ApiWrite>> {
        let collect = |of: &dyn Fn(&ScenarioWorkload) -> Vec<ApiWrite>| -> Vec<ApiWrite> {
            self.subjects.iter().flat_map(of).collect()
        };
        let pods = |of: &dyn Fn(&ScenarioWorkload, &PodKind, u64) -> Option<ApiWrite>| {
            let of_subject = |subject: &ScenarioWorkload| -> Vec<ApiWrite> {
                let numbered = subject.pods.iter().zip(0..);
                numbered.filter_map(|(&kind, n)| of(subject, &subject.kinds[kind], n)).collect()
            };
            collect(&of_subject)
        };
        let mut owners = collect(&|subject| {
            let mut writes = subject.workload.owners();
            writes.extend(subject.owners.iter().cloned());
            writes
        });
        let mut reports =
            pods(&|subject, kind, number| Some(kind.report(&subject.workload, number)));
        let mut statuses = collect(&ScenarioWorkload::statuses);
        owners.extend(NODES.map(|(name, _, _)| node(name)));
        reports.extend(NODES.map(|(name, cpu, memory)| {
            let amounts = json!({ "cpu": cpu, "memory": memory, "pods": "10000" });
            let status = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
            ApiWrite::patch(format!("/api/v1/nodes/{name}/status"), &status)
        }));
        statuses.push(create_lease(self.now));
        vec![
            owners,
            pods(&|subject, kind, number| Some(kind.create(&subject.workload, number))),
            reports,
            collect(&|subject| subject.vpas_and_budgets()),
            statuses,
            pods(&|subject, kind, number| kind.leave(&subject.workload, number)),
            // Create LimitRanges last, since pods that violate one could not be created.
            self.ranges.clone(),
        ]
    }
}

// === impl ScenarioWorkload ===

impl ScenarioWorkload {
    /// Whether its VPAs boost, so that passes skip boosted pods.
    pub fn is_boosting(&self) -> bool {
        self.vpas.iter().all(generated_vpas::is_boosting)
    }

    /// Describes its VPAs and kinds of pods, for a message.
    pub fn described(&self) -> String {
        let kinds = self.kinds.iter().map(|kind| format!("  {kind}\n"));
        let vpas = self.vpas.iter().map(|vpa| format!("  {}\n", vpa["spec"]));
        let lines: Vec<String> = vpas.chain(kinds).collect();
        format!("  {}\n{}", self.status, lines.concat())
    }

    fn draw(seed: u64, index: u64, (namespace, is_whole): (&str, bool), now: Timestamp) -> Self {
        let mut noise = Random::derive(seed, &[1, index]);
        let count = noise.between(1, 3) as usize;
        let containers = ["main", "proxy", "log-2"][..count].iter();
        let workload = Workload {
            namespace: namespace.to_owned(),
            name: format!("w{index:03}"),
            kind: bulk_objects::WorkloadKind::ALL
                [index as usize % bulk_objects::WorkloadKind::ALL.len()],
            containers: containers.map(|name| (*name).to_owned()).collect(),
            has_init: false,
            request: MEBIBYTE,
        };
        let targets: Vec<ContainerTarget> = workload
            .containers
            .iter()
            .map(|name| ContainerTarget::draw(&mut noise, name, is_whole))
            .collect();
        let mut vpas = vec![vpa(&mut noise, &workload, &targets, is_whole, "")];
        if noise.chance(8) {
            vpas.push(vpa(&mut noise, &workload, &targets, is_whole, "-too"));
        }
        let mut recommended: Vec<Value> =
            targets.iter().filter_map(ContainerTarget::recommendation_json).collect();
        if noise.chance(10) {
            recommended
                .extend(ContainerTarget::draw(&mut noise, "mesh", true).recommendation_json());
        }
        let status = if !is_whole && noise.chance(5) {
            json!({ "conditions": [] })
        } else {
            json!({ "recommendation": { "containerRecommendations": recommended } })
        };
        let mut subject = Self {
            vpas,
            status,
            budgets: budgets(&mut noise, &workload),
            owners: Vec::new(),
            scales: Vec::new(),
            now,
            kinds: Vec::new(),
            pods: Vec::new(),
            workload,
        };
        subject.add_pods(&mut noise, &targets);
        subject
    }

    /// Adds pods of the workload, and of other owners of some of its pods.
    fn add_pods(&mut self, noise: &mut Random, targets: &[ContainerTarget]) {
        let mut owner = PodOwner::Usual;
        if self.workload.kind == bulk_objects::WorkloadKind::Rollout && noise.chance(50) {
            let mut target = self.workload.target_ref();
            target["controller"] = true.into();
            target["uid"] = format!("uid-of-{}", self.workload.name).into();
            owner = PodOwner::Target(target);
        }
        let now = self.add_kinds(noise, targets, &owner, 3);
        self.scale_to(noise, None, now);
        let former = matches!(self.workload.kind, bulk_objects::WorkloadKind::Deployment)
            && noise.chance(40);
        if former {
            let name = format!("{}-old", self.workload.name);
            let mut reference = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": true,
            });
            reference["uid"] = format!("uid-of-{name}").into();
            let before = self.add_kinds(noise, targets, &PodOwner::Former(reference), 2);
            self.owners.push(self.former_owner(&name));
            self.scale_to(noise, Some(&name), before);
        }
        if noise.chance(5) {
            self.add_kinds(noise, targets, &PodOwner::None, 1);
        }
    }

    fn add_kinds(
        &mut self,
        noise: &mut Random,
        targets: &[ContainerTarget],
        owner: &PodOwner,
        most: u64,
    ) -> u64 {
        let mut count = 0;
        for _ in 0..noise.between(1, most) {
            let name = format!("k{}", self.kinds.len());
            self.kinds.push(PodKind::draw(noise, targets, &name, owner.clone(), self.now));
            for _ in 0..noise.between(1, 3) {
                self.pods.push(self.kinds.len() - 1);
                count += 1;
            }
        }
        count
    }

    /// Sets the owners' replicas to about the number of pods.
    fn scale_to(&mut self, noise: &mut Random, inner: Option<&str>, pods: u64) {
        let wanted = match noise.below(20) {
            0 => 0,
            1..3 => pods - 1,
            3..5 => pods + 1,
            5 => pods + 4,
            _ => pods,
        };
        let Workload { name, namespace, kind, .. } = &self.workload;
        let own = self.workload.intermediate_ref();
        let own = own.as_ref().and_then(|inner| inner["name"].as_str());
        let inner = inner.or(own);
        let replicas = json!({ "spec": { "replicas": wanted } });
        let (api_version, plural, name) = match (kind, inner) {
            (bulk_objects::WorkloadKind::Job | bulk_objects::WorkloadKind::CronJob, _) => return,
            (bulk_objects::WorkloadKind::DaemonSet, _) => {
                let path = collection("apps/v1", namespace, "daemonsets");
                let status = json!({ "status": {
                    "desiredNumberScheduled": wanted, "currentNumberScheduled": pods,
                    "numberReady": pods, "numberMisscheduled": 0,
                } });
                self.scales.push(ApiWrite::patch(format!("{path}/{name}/status"), &status));
                return;
            }
            (_, Some(inner)) => ("apps/v1", "replicasets", inner),
            (bulk_objects::WorkloadKind::StatefulSet, _) => ("apps/v1", "statefulsets", &**name),
            (bulk_objects::WorkloadKind::ReplicationController, _) => {
                ("v1", "replicationcontrollers", &**name)
            }
            _ => ("apps/v1", "replicasets", &**name),
        };
        let path = collection(api_version, namespace, plural);
        self.scales.push(ApiWrite::patch(format!("{path}/{name}"), &replicas));
    }

    /// Returns the ReplicaSet of the previous rollout.
    fn former_owner(&self, name: &str) -> ApiWrite {
        let Workload { namespace, name: target, .. } = &self.workload;
        let labels = json!({ "app": target });
        let mut owner = self.workload.target_ref();
        owner["controller"] = true.into();
        owner["uid"] = format!("uid-of-{target}").into();
        let container = json!({ "name": "main", "image": "example/any" });
        let template =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner],
            },
            "spec": { "selector": { "matchLabels": labels }, "template": template },
        });
        ApiWrite::create(collection("apps/v1", namespace, "replicasets"), &object)
    }

    fn vpas_and_budgets(&self) -> Vec<ApiWrite> {
        let namespace = &self.workload.namespace;
        let vpas = collection(AUTOSCALING, namespace, VPAS);
        let budgets = collection("policy/v1", namespace, "poddisruptionbudgets");
        let vpas = self.vpas.iter().map(|vpa| ApiWrite::create(vpas.clone(), vpa));
        let budgets =
            self.budgets.iter().map(|(budget, _)| ApiWrite::create(budgets.clone(), budget));
        vpas.chain(budgets).collect()
    }

    fn statuses(&self) -> Vec<ApiWrite> {
        let namespace = &self.workload.namespace;
        let mut writes = self.workload.statuses();
        writes.extend(self.scales.iter().cloned());
        for vpa in &self.vpas {
            let path = collection(AUTOSCALING, namespace, VPAS);
            let name = vpa["metadata"]["name"].as_str().expect("has a name");
            let status = json!({ "status": self.status });
            writes.push(ApiWrite::patch(format!("{path}/{name}/status"), &status));
        }
        for (budget, status) in &self.budgets {
            let path = collection("policy/v1", namespace, "poddisruptionbudgets");
            let name = budget["metadata"]["name"].as_str().expect("has a name");
            writes.push(ApiWrite::patch(format!("{path}/{name}/status"), status));
        }
        writes
    }
}
