//! Pods of roles and of upstream's updater, and the permissions of their accounts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::ListParams};
use plimsoll_core::diagnosis::facts::{Reading, RightFacts, UpdaterFacts};

use super::{ListReader, list_reader::ListedResource, objects::names};
use crate::cluster::write::{AccessReview, AccessRule, ServiceAccount, check_access_as};

/// More accounts than these are not reviewed.
const MAX_ACCOUNTS: usize = 10;

/// A permission: verb, API group, resource.
type Permission = (&'static str, &'static str, &'static str);

/// What each role needs in all namespaces. The manifests in `deploy/` grant more, for options.
const NEEDED: [(&str, &[Permission]); 5] = [
    (
        "recommender",
        &[
            ("list", "", "pods"),
            ("list", "apps", "deployments"),
            ("list", "metrics.k8s.io", "pods"),
            ("list", "autoscaling.k8s.io", "verticalpodautoscalers"),
            ("patch", "autoscaling.k8s.io", "verticalpodautoscalers/status"),
        ],
    ),
    (
        "updater",
        &[
            ("list", "", "pods"),
            ("list", "apps", "deployments"),
            ("list", "autoscaling.k8s.io", "verticalpodautoscalers"),
            ("create", "", "pods/eviction"),
            ("patch", "", "pods/resize"),
        ],
    ),
    (
        "admission-controller",
        &[
            ("list", "", "limitranges"),
            ("list", "apps", "deployments"),
            ("list", "autoscaling.k8s.io", "verticalpodautoscalers"),
        ],
    ),
    (
        "watermark",
        &[
            ("list", "", "pods"),
            ("list", "datadoghq.com", "watermarkpodautoscalers"),
            ("patch", "datadoghq.com", "watermarkpodautoscalers/status"),
        ],
    ),
    ("horizontal", &[("list", "", "pods"), ("list", "autoscaling", "horizontalpodautoscalers")]),
];

/// What no role needs, and what would make its account a way into the cluster.
const EXCESSIVE: [Permission; 4] = [
    ("list", "", "secrets"),
    ("create", "", "pods/exec"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("delete", "", "nodes"),
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoleAccount {
    pub role: Box<str>,
    pub namespace: Box<str>,
    pub account: Box<str>,
}

/// Updaters of any project, and the accounts of the roles, from pods that have not terminated.
pub(crate) async fn role_pods(
    reader: &ListReader<'_>,
) -> (Reading<Vec<UpdaterFacts>>, Reading<BTreeSet<RoleAccount>>) {
    let (mut updaters, mut accounts, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    // Roles may run in another namespace than the one that is checked.
    let everywhere = ListReader::new(reader.client, None);
    for selector in [
        "app.kubernetes.io/name=plimsoll",
        "app.kubernetes.io/component=updater",
        "app=vpa-updater",
    ] {
        let selectors = ListParams::default().labels(selector);
        let resource = ListedResource { selectors, ..ListedResource::new("v1", "pods") };
        let add = |pod: Pod| {
            let phase = pod.status.and_then(|status| status.phase);
            let label = |key: &str| {
                let labels = pod.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
            };
            let is_plimsoll = label("app.kubernetes.io/name") == "plimsoll";
            let component = label("app.kubernetes.io/component");
            let is_updater =
                matches!(component, "updater" | "all-in-one") || label("app") == "vpa-updater";
            let role: Box<str> = component.into();
            let [namespace, name] = names(pod.metadata);
            let pod_name = format!("{namespace}/{name}");
            if matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
                || !seen.insert(pod_name.clone())
            {
                return;
            }
            if is_updater {
                updaters.push(UpdaterFacts { pod: pod_name, is_plimsoll });
            }
            let account = pod.spec.and_then(|spec| spec.service_account_name);
            if let Some(account) = account.filter(|name| is_plimsoll && !name.is_empty()) {
                accounts.insert(RoleAccount { role, namespace, account: account.into() });
            }
        };
        if let Err(why) = everywhere.fold(&resource, add).await {
            return (Err(why.clone()), Err(why));
        }
    }
    (Ok(updaters), Ok(accounts))
}

pub(crate) async fn rights(
    client: &Client,
    accounts: Reading<BTreeSet<RoleAccount>>,
) -> Reading<Vec<RightFacts>> {
    let mut facts = Vec::new();
    for RoleAccount { role, namespace, account } in accounts?.into_iter().take(MAX_ACCOUNTS) {
        let needed = NEEDED.iter().find(|(name, _)| *name == &*role);
        let Some((_, needed)) = needed else { continue };
        let permissions = needed.iter().chain(&EXCESSIVE);
        let rules: Vec<AccessRule> = permissions
            .map(|&(verb, group, resource)| AccessRule::new(verb, group, resource))
            .collect();
        let account = ServiceAccount { namespace: namespace.into(), name: account.into() };
        let reviews = check_access_as(client, &account, &rules).await;
        for (index, (rule, review)) in rules.iter().zip(reviews).enumerate() {
            let resource = if rule.group.is_empty() {
                rule.resource.to_owned()
            } else {
                format!("{}.{}", rule.resource, rule.group)
            };
            facts.push(RightFacts {
                role: role.to_string(),
                account: account.user(),
                permission: format!("{} {resource}", rule.verb),
                is_needed: index < needed.len(),
                is_granted: match review {
                    AccessReview::Allowed => Ok(true),
                    AccessReview::Denied => Ok(false),
                    AccessReview::Unknown(why) => Err(why),
                },
            });
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn the_manifests_grant_what_roles_need_and_nothing_excessive() {
        for (role, needed) in NEEDED {
            let path = format!("{}/deploy/{role}/rbac.yaml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).expect("the manifest exists");
            let mut rules = Vec::new();
            for document in
                text.split("\n---\n").filter(|text| text.contains("kind: ClusterRole\n"))
            {
                let value: serde_json::Value = serde_saphyr::from_str(document).expect("YAML");
                if value["kind"] == "ClusterRole" {
                    let role = ClusterRole::deserialize(value).expect("a ClusterRole");
                    rules.extend(role.rules.unwrap_or_default());
                }
            }
            let is_granted = |(verb, group, resource): &Permission| {
                rules.iter().any(|rule| {
                    let has = |list: &[String], wanted: &str| {
                        list.iter().any(|one| one == wanted || one == "*")
                    };
                    rule.resource_names.is_none()
                        && has(&rule.verbs, verb)
                        && has(rule.api_groups.as_deref().unwrap_or_default(), group)
                        && has(rule.resources.as_deref().unwrap_or_default(), resource)
                })
            };
            for permission in needed {
                assert!(is_granted(permission), "{role}: {permission:?}");
            }
            for permission in &EXCESSIVE {
                assert!(!is_granted(permission), "{role}: {permission:?}");
            }
        }
    }
}
