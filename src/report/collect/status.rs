//! Collects the status of an installation from its Leases and pods, without reading the objects that it manages.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    cluster::snapshot::{list, read_leases},
    controllers::runtime::command_client::Cluster,
    report::status::{Facts, LeaseFacts, PodFacts},
};
use plimsoll_core::api::role_health;

/// The label that all pods of this project have.
const LABEL_SELECTOR: &str = "app.kubernetes.io/name=plimsoll";
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The default namespace of the Leases of the VPA controllers.
const DEFAULT_LEASE_NAMESPACE: &str = "kube-system";
const LEASE_NAMES: [&str; 5] = [
    "vpa-recommender-lease",
    "vpa-updater",
    "vpa-admission-controller",
    "watermarkpodautoscaler-lock",
    "plimsoll-horizontal",
];

/// Collects the status. `namespace` is an additional namespace of Leases. What cannot be read is listed in the result.
pub async fn collect(cluster: &Cluster, namespace: Option<&str>) -> Facts {
    let mut facts = Facts { cluster: cluster.address.clone(), ..Facts::default() };
    let client = &cluster.client;
    let labelled = ListParams::default().labels(LABEL_SELECTOR);
    let by_name = join_all(LEASE_NAMES.map(|name| {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        list::<Lease>(Api::all(client.clone()), "Leases", named)
    }));
    let (pods, by_name) =
        tokio::join!(list::<Pod>(Api::all(client.clone()), "pods", labelled), by_name);
    let mut namespaces: BTreeSet<String> =
        namespace.into_iter().chain([DEFAULT_LEASE_NAMESPACE]).map(Into::into).collect();
    match pods {
        Ok(found) => {
            namespaces.extend(found.objects.iter().filter_map(ResourceExt::namespace));
            facts.pods = found.objects.iter().map(pod_facts).collect();
        }
        Err(error) => facts.unread.push(format!("failed to list pods: {}", error.why)),
    }
    let mut leases = Vec::new();
    let mut denied: Option<String> = None;
    for listed in by_name {
        match listed {
            Ok(found) => leases.extend(found.objects),
            Err(error) => denied = Some(error.why),
        }
    }
    if let Some(why) = denied {
        facts.unread.push(format!(
            "failed to list Leases in all namespaces: {why}; specify the namespace of the controllers with -n"
        ));
    }
    for (namespace, listed) in read_leases(client, namespaces.iter().map(String::as_str)).await {
        match listed {
            Ok(found) => leases.extend(found.objects),
            Err(error) => {
                let why = error.why;
                facts.unread.push(format!("failed to list Leases in namespace {namespace}: {why}"));
            }
        }
    }
    let mut unique = BTreeSet::new();
    leases.retain(|lease| {
        let is_ours = LEASE_NAMES.iter().any(|name| lease.name_any() == *name)
            || lease.annotations().contains_key(role_health::ANNOTATION);
        is_ours && unique.insert((lease.namespace(), lease.name_any()))
    });
    facts.leases = leases.iter().map(lease_facts).collect();
    facts
}

fn lease_facts(lease: &Lease) -> LeaseFacts {
    let spec = lease.spec.clone().unwrap_or_default();
    let parsed =
        lease.annotations().get(role_health::ANNOTATION).map(|text| serde_json::from_str(text));
    let (vitals, unreadable) = match parsed {
        None => (None, None),
        Some(Ok(vitals)) => (Some(vitals), None),
        Some(Err(why)) => (None, Some(why.to_string())),
    };
    LeaseFacts {
        namespace: lease.namespace().unwrap_or_default(),
        name: lease.name_any(),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|at| at.0.into()),
        seconds: spec.lease_duration_seconds.unwrap_or(15).into(),
        vitals,
        unreadable,
    }
}

fn pod_facts(pod: &Pod) -> PodFacts {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let mut images = pod.spec.iter().flat_map(|spec| &spec.containers);
    PodFacts {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        component: pod.labels().get(COMPONENT_LABEL).cloned().unwrap_or_default(),
        image: images.find_map(|container| container.image.clone()).unwrap_or_default(),
        is_ready: status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        restarts: containers.iter().map(|container| i64::from(container.restart_count)).sum(),
    }
}
