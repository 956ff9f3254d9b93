//! `plimsoll explain pod`: makes the updater's decision about one pod from a snapshot of its namespace and from persisted
//! state. It writes nothing and contacts no running updater.

mod build;
mod decide;
mod leases;
pub mod preview;
mod unmatched;

use std::{collections::HashMap, sync::Arc};

use kube::{Client, ResourceExt};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    coordination::{Retargeting, SharingContext},
    sizing::{LimitPolicy, LimitRangeItem, quota::Quota},
    types::{Time, compat::Compat},
    updater::{
        DisruptionBudget, PassContext, PersistedState, PodOwner, Settings, WorkloadState,
        guard::{BudgetKind, disruption_budget::PodCounts, workload_state},
    },
    vpa_match,
};

use self::{
    build::ExplainedPod,
    decide::{DisruptionBudgets, decide},
    leases::Leases,
};
use super::{
    lookup::{ExplainError, find_object, required},
    shared_requests::{is_hpa_controller_replaced, shared_requests},
};
use crate::{
    cluster::{
        cache::{resource_quota::PartialResourceQuota, updater_pod::UpdaterPod},
        snapshot::{ClusterSnapshot, ReadError, SnapshotPart, read_leases},
    },
    controllers::{
        runtime::command_client::Cluster,
        updater::{
            AdmissionCheck,
            decision_inputs::{DecisionFlags, DecisionInputs},
            matching::{Workload, WorkloadMatcher},
            owner_lookups::OwnerLookups,
            permissions::discover_resize,
        },
    },
    report::explain::PodReport,
};

/// The parts of the snapshot that matching pods to VPAs needs.
const MATCHED_PARTS: [SnapshotPart; 3] =
    [SnapshotPart::Vpas, SnapshotPart::Pods, SnapshotPart::Controllers];

/// Which pod is to be explained, and by which flags the updater decides.
#[derive(Clone, Debug)]
pub struct ExplainPodConfig {
    /// Namespace of the pod; `None` selects the namespace of the kubeconfig's current context.
    pub namespace: Option<String>,
    pub name: String,
    pub settings: Settings,
    pub native_sidecars: bool,
    pub limit_policy: LimitPolicy,
    /// The Lease of the admission controller to check; `None` disables the check.
    pub admission_check: Option<AdmissionCheck>,
    pub heartbeat_namespace: String,
    /// Whether targets of HorizontalPodAutoscalers change together with requests.
    pub retarget_hpas: bool,
    pub horizontal_lease_namespace: String,
    /// Namespace of the updater's Lease, which stores the recent disruptions.
    pub lease_namespace: String,
    pub lease_name: String,
}

/// Makes the updater's decision about a pod at this time.
pub async fn explain(
    config: &ExplainPodConfig,
    cluster: &Cluster,
    now: Time,
) -> Result<PodReport, ExplainError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, compat) = (&cluster.client, config.settings.compat);
    let (snapshot, can_resize) = read_namespace(config, client, namespace).await;
    let pod = find_object(cluster, &snapshot.pods, namespace, &config.name)?;
    let vpas = &required(cluster, &snapshot.vpas)?.objects;
    let unreadable = |error| ExplainError::unreadable(cluster, &error);
    let constraints = Constraints::of(&snapshot, compat).map_err(unreadable)?;
    let workloads = match_workloads(client, &snapshot, compat).await.map_err(unreadable)?;
    let found = workloads.iter().find_map(|workload| {
        let is_same = |other: &Arc<UpdaterPod>| Arc::ptr_eq(other, &pod.updater);
        Some((workload, workload.pods.iter().position(is_same)?))
    });
    let Some((workload, index)) = found else {
        let targets = snapshot.target_resolver(client);
        let why = unmatched::explain(&targets, namespace, pod, vpas, compat).await;
        return Ok(build::unmatched_report(config, namespace, &pod.updater, why, now));
    };

    let mut leases = Leases::of(config, &snapshot, now);
    let mut notes = std::mem::take(&mut leases.notes);
    let persisted = PersistedState {
        workload: persisted_state(&workload.vpa, &mut notes),
        budget: std::mem::take(&mut leases.ledger),
        ..PersistedState::default()
    };
    let known = count_pods(&workloads);
    let cluster_pods = if is_cluster_limit_reached(config, &persisted.budget, known, now) {
        count_cluster_pods(client, compat, &mut notes).await
    } else {
        None
    };
    let disruptions = DisruptionBudgets::of(&snapshot.disruption_budgets, &mut notes);
    if can_resize.is_none() {
        notes
            .push("Failed to find out whether the API server supports in-place resize.".to_owned());
    }
    let desired_replicas = |owner: &PodOwner| workload.desired_replicas_of(owner);
    let context = PassContext {
        desired_replicas: &desired_replicas,
        pod_counts: PodCounts { cluster: cluster_pods.unwrap_or(known), namespace: known },
        heartbeat: leases.heartbeat(config, workload, &mut notes),
        is_admission_ready: leases.is_admission_ready(&mut notes),
        can_resize: can_resize.unwrap_or(false),
        now,
    };
    let inputs = decision_inputs(config, (&snapshot, &constraints), workload, now, &mut notes);
    let decision =
        decide(&config.settings, workload, &inputs, index, context, persisted, disruptions);
    let found = ExplainedPod {
        config,
        workload,
        index,
        decision,
        windows: inputs.windows.as_ref(),
        pass_context: context,
        leases: &leases,
        competing_vpas: competing_vpas(workload, vpas),
    };
    Ok(build::report(found, notes))
}

/// Reads what decisions about the pods of a namespace need, and whether they can be resized in place, if that is known.
async fn read_namespace(
    config: &ExplainPodConfig,
    client: &Client,
    namespace: &str,
) -> (ClusterSnapshot, Option<bool>) {
    let compat = config.settings.compat;
    let other_parts = [SnapshotPart::Constraints, SnapshotPart::DisruptionBudgets];
    let hpas: &[_] = match compat {
        Compat::Upstream => &[],
        Compat::Plimsoll => &[SnapshotPart::Hpas],
    };
    let parts = [&MATCHED_PARTS[..], &other_parts, hpas].concat();
    let (snapshot, leases, can_resize) = tokio::join!(
        ClusterSnapshot::read(client, Some(namespace), &parts),
        read_leases(client, Leases::namespaces(config)),
        async {
            match compat {
                // Upstream does not check.
                Compat::Upstream => Some(true),
                Compat::Plimsoll => discover_resize(client).await,
            }
        },
    );
    (ClusterSnapshot { leases, ..snapshot }, can_resize)
}

/// The inputs of decisions about a workload, for an updater with all permissions.
fn decision_inputs<'a>(
    config: &'a ExplainPodConfig,
    (snapshot, constraints): (&ClusterSnapshot, &Constraints),
    workload: &Workload,
    now: Time,
    notes: &mut Vec<String>,
) -> DecisionInputs<'a> {
    let flags = DecisionFlags {
        settings: &config.settings,
        native_sidecars: config.native_sidecars,
        limit_policy: config.limit_policy,
        may_scale: true,
    };
    let horizontal_leases = snapshot.leases.get(&config.horizontal_lease_namespace);
    let is_replaced = is_hpa_controller_replaced(horizontal_leases, now);
    let retargeting = config.retarget_hpas.then_some(Retargeting { now, needs_record: false });
    let sharing = SharingContext { is_replaced, retargeting };
    let shared = shared_requests(snapshot, &snapshot.controllers, &workload.vpa, sharing, notes);
    let Constraints { limit_ranges, quotas } = constraints;
    DecisionInputs::new(workload, flags, limit_ranges, quotas.clone(), shared, now)
}

/// The objects of a namespace that constrain the sizes of pods.
struct Constraints {
    limit_ranges: Vec<LimitRangeItem>,
    quotas: Vec<Quota>,
}

impl Constraints {
    fn of(snapshot: &ClusterSnapshot, compat: Compat) -> Result<Self, ReadError> {
        let ranges = snapshot.limit_ranges.as_ref().map_err(Clone::clone)?;
        let quotas = match &snapshot.quotas {
            // As in the updater, quotas restrict nothing if they may not be read.
            Err(error) if !error.is_forbidden() => return Err(error.clone()),
            Ok(quotas) if compat == Compat::Plimsoll => &quotas.objects[..],
            _ => &[],
        };
        Ok(Self {
            limit_ranges: ranges
                .objects
                .iter()
                .flat_map(|range| range.spec.limits.clone())
                .collect(),
            quotas: quotas.iter().cloned().map(PartialResourceQuota::quota).collect(),
        })
    }
}

/// The active VPAs of a snapshot with their pods.
async fn match_workloads(
    client: &Client,
    snapshot: &ClusterSnapshot,
    compat: Compat,
) -> Result<Vec<Workload>, ReadError> {
    if let Some(error) = snapshot.controller_errors.first() {
        return Err(error.clone());
    }
    let vpas = snapshot.vpas.as_ref().map_err(Clone::clone)?.objects.iter();
    let vpas = vpas.filter(|vpa| vpa_match::changes_running_pods(vpa, compat));
    let mut pods: HashMap<&str, Vec<Arc<UpdaterPod>>> = HashMap::new();
    for pod in &snapshot.pods.as_ref().map_err(Clone::clone)?.objects {
        if pod.is_running() {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            pods.entry(namespace).or_default().push(Arc::clone(&pod.updater));
        }
    }
    let (targets, owner_lookups) = (snapshot.target_resolver(client), OwnerLookups::default());
    let matcher = WorkloadMatcher::new(&targets, owner_lookups.start_pass(None));
    let pods = |namespace: &str| pods.get(namespace).cloned().unwrap_or_default();
    Ok(matcher.match_pods(vpas.cloned().map(Arc::new).collect(), pods).await.workloads)
}

fn count_pods(workloads: &[Workload]) -> u32 {
    workloads.iter().map(|workload| workload.pods.len() as u32).sum()
}

fn persisted_state(vpa: &VerticalPodAutoscaler, notes: &mut Vec<String>) -> WorkloadState {
    let Some(text) = vpa.annotations().get(workload_state::ANNOTATION) else {
        return WorkloadState::default();
    };
    WorkloadState::read(text, &vpa.spec.target_ref).unwrap_or_else(|why| {
        notes.push(format!(
            "The updater's state in the annotation of the VPA is unreadable and was ignored: {why}."
        ));
        WorkloadState::default()
    })
}

/// Whether the hourly limit on changes, a share of all pods, is reached for this number of pods.
fn is_cluster_limit_reached(
    config: &ExplainPodConfig,
    ledger: &DisruptionBudget,
    pods: u32,
    now: Time,
) -> bool {
    let guards = &config.settings.guards;
    let limits = [
        (BudgetKind::Disruption, guards.cluster_disruptions),
        (BudgetKind::Resize, guards.cluster_resizes),
    ];
    limits.into_iter().any(|(kind, allowance)| {
        let used = ledger.changes(kind).in_cluster(now);
        allowance.is_some_and(|limit| limit.share > 0.0 && used >= limit.limit_for(pods))
    })
}

async fn count_cluster_pods(
    client: &Client,
    compat: Compat,
    notes: &mut Vec<String>,
) -> Option<u32> {
    let snapshot = ClusterSnapshot::read(client, None, &MATCHED_PARTS).await;
    let workloads = match_workloads(client, &snapshot, compat).await.ok();
    if workloads.is_none() {
        notes.push(
            "Failed to count the pods of the cluster, of which a share may be changed: \
             using the pods of the namespace instead."
                .to_owned(),
        );
    }
    workloads.map(|workloads| count_pods(&workloads))
}

/// Other VPAs with the same target, which are ignored.
fn competing_vpas(workload: &Workload, vpas: &[VerticalPodAutoscaler]) -> Vec<String> {
    let (kind, name) = &workload.target;
    let others = vpas.iter().filter(|vpa| {
        let target = &vpa.spec.target_ref;
        vpa.name_any() != *workload.key.name && *target.kind == **kind && *target.name == **name
    });
    others.map(ResourceExt::name_any).collect()
}
