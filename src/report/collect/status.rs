//! Collects the status of an installation from its Leases and pods, without reading the objects that it manages.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::controllers::runtime::cluster::Cluster;
use crate::report::explain::status::{Facts, LeaseFacts, PodFacts};
use plimsoll_core::api::role_health;

/// The label that all pods of this project have.
const LABEL_SELECTOR: &str = "app.kubernetes.io/name=plimsoll";
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The default namespace of the Leases of the VPA controllers.
const DEFAULT_LEASE_NAMESPACE: &str = "kube-system";
/// Names of Leases to find in all namespaces.
const LEASE_NAMES: [&str; 4] = [
    "vpa-recommender-lease",
    "vpa-updater",
    "vpa-admission-controller",
    "watermarkpodautoscaler-lock",
];
/// The limit of list requests; installations have far fewer pods.
const LIST_LIMIT: u32 = 500;

/// Collects the status. `namespace` is an additional namespace of Leases. What cannot be read is listed in the result.
pub async fn collect(cluster: &Cluster, namespace: Option<&str>) -> Facts {
    let mut facts = Facts { cluster: cluster.address.clone(), ..Facts::default() };
    let pods = Api::<Pod>::all(cluster.client.clone());
    let by_name = join_all(LEASE_NAMES.map(|name| {
        let leases = Api::<Lease>::all(cluster.client.clone());
        let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
        async move { leases.list(&parameters).await }
    }));
    let parameters = ListParams::default().labels(LABEL_SELECTOR).limit(LIST_LIMIT);
    let (pods, by_name) = tokio::join!(pods.list(&parameters), by_name);
    let mut namespaces: BTreeSet<String> =
        namespace.into_iter().chain([DEFAULT_LEASE_NAMESPACE]).map(Into::into).collect();
    match pods {
        Ok(found) => {
            namespaces.extend(found.items.iter().filter_map(ResourceExt::namespace));
            facts.pods = found.items.iter().map(pod_facts).collect();
        }
        Err(why) => facts.unread.push(format!("failed to list pods: {}", error_message(&why))),
    }
    let mut leases = Vec::new();
    let mut denied: Option<String> = None;
    for response in by_name {
        match response {
            Ok(found) => leases.extend(found.items),
            Err(why) => denied = Some(error_message(&why)),
        }
    }
    if let Some(why) = denied {
        facts.unread.push(format!(
            "failed to list Leases in all namespaces: {why}; specify the namespace of the controllers with -n"
        ));
    }
    let in_namespaces =
        join_all(
            namespaces.iter().map(|namespace_name| {
                let leases = Api::<Lease>::namespaced(cluster.client.clone(), namespace_name);
                async move {
                    (namespace_name, leases.list(&ListParams::default().limit(LIST_LIMIT)).await)
                }
            }),
        );
    for (namespace_name, response) in in_namespaces.await {
        match response {
            Ok(found) => leases.extend(found.items),
            Err(why) => {
                facts.unread.push(format!(
                    "failed to list Leases in namespace {namespace_name}: {}",
                    error_message(&why)
                ));
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

fn error_message(why: &kube::Error) -> String {
    match why {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
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
