//! Reads how an installation is: Leases and pods, and no object of those that it looks after.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::controllers::runtime::cluster::Cluster;
use crate::report::explain::status::{Facts, LeaseFacts, PodFacts};
use plimsoll_core::api::role_health;

/// What all pods of this project are labelled with.
const LABEL_SELECTOR: &str = "app.kubernetes.io/name=plimsoll";
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Where Leases of the vertical roles are by themselves.
const DEFAULT_LEASE_NAMESPACE: &str = "kube-system";
/// Where else Leases have these names, in whatever namespace.
const LEASE_NAMES: [&str; 4] = [
    "vpa-recommender-lease",
    "vpa-updater",
    "vpa-admission-controller",
    "watermarkpodautoscaler-lock",
];
/// So many are read at once: nobody has as many pods of autoscalers.
const LIST_LIMIT: u32 = 500;

/// Reads it. `namespace` is one more in which Leases are looked for. What may not be read is told, and all else is read.
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
    let mut places: BTreeSet<String> =
        namespace.into_iter().chain([DEFAULT_LEASE_NAMESPACE]).map(Into::into).collect();
    match pods {
        Ok(found) => {
            places.extend(found.items.iter().filter_map(ResourceExt::namespace));
            facts.pods = found.items.iter().map(pod_facts).collect();
        }
        Err(why) => facts.unread.push(format!("pods could not be listed: {}", error_message(&why))),
    }
    let mut leases = Vec::new();
    let mut denied: Option<String> = None;
    for answer in by_name {
        match answer {
            Ok(found) => leases.extend(found.items),
            Err(why) => denied = Some(error_message(&why)),
        }
    }
    if let Some(why) = denied {
        facts.unread.push(format!(
            "Leases could not be looked for in all namespaces: {why}; name those of the roles with -n"
        ));
    }
    let in_places = join_all(places.iter().map(|place| {
        let leases = Api::<Lease>::namespaced(cluster.client.clone(), place);
        async move { (place, leases.list(&ListParams::default().limit(LIST_LIMIT)).await) }
    }));
    for (place, answer) in in_places.await {
        match answer {
            Ok(found) => leases.extend(found.items),
            Err(why) => {
                facts.unread.push(format!(
                    "Leases of {place} could not be listed: {}",
                    error_message(&why)
                ));
            }
        }
    }
    let mut seen = BTreeSet::new();
    leases.retain(|lease| {
        let is_ours = LEASE_NAMES.iter().any(|name| lease.name_any() == *name)
            || lease.annotations().contains_key(role_health::ANNOTATION);
        is_ours && seen.insert((lease.namespace(), lease.name_any()))
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
    let read =
        lease.annotations().get(role_health::ANNOTATION).map(|text| serde_json::from_str(text));
    let (vitals, unreadable) = match read {
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
