//! The shipped RBAC rules: each is minimal, and kustomize and Helm produce the same ones.

use std::collections::BTreeSet;

use plimsoll_core::hpa::sentinel::SENTINEL_NAME;
use serde_json::Value;

use super::rendered_manifests::{all, chart_template, kustomize, of_kind, title};

/// A single permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RbacRight {
    /// The namespace, if it is restricted to one.
    pub namespace: Option<String>,
    pub group: String,
    pub resource: String,
    pub verb: String,
    /// The object name, if it is restricted to one.
    pub name: Option<String>,
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|one| one.as_str().expect("text").to_owned()).collect()
}

/// All permissions of a Role or a ClusterRole.
pub fn of_role(role: &Value) -> Vec<RbacRight> {
    let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().expect("rules") {
        assert_eq!(rule["nonResourceURLs"], Value::Null, "{}", title(role));
        let names: Vec<Option<String>> = match texts(&rule["resourceNames"]) {
            names if names.is_empty() => vec![None],
            names => names.into_iter().map(Some).collect(),
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        rights.push(RbacRight {
                            namespace: namespace.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        });
                    }
                }
            }
        }
    }
    rights
}

/// The permissions of each account, by `namespace/name`.
pub fn of_accounts(objects: &[Value]) -> Vec<(String, BTreeSet<RbacRight>)> {
    let mut found: Vec<(String, BTreeSet<RbacRight>)> = of_kind(objects, "ServiceAccount")
        .into_iter()
        .map(|account| (place(&account["metadata"]), BTreeSet::new()))
        .collect();
    for kind in ["Role", "ClusterRole"] {
        for binding in of_kind(objects, &format!("{kind}Binding")) {
            let roles = of_kind(objects, kind);
            let role = roles.into_iter().find(|role| {
                role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
            });
            let subject = place(&binding["subjects"][0]);
            let (_, rights) =
                found.iter_mut().find(|(account, _)| *account == subject).expect("an account");
            rights.extend(of_role(role.expect("a role")));
        }
    }
    found
}

fn place(about: &Value) -> String {
    let word = |key: &str| about[key].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", word("namespace"), word("name"))
}

/// Allowed wildcards, with the reason.
const WILD: [(&str, &str, &[&str]); 3] = [
    // The target of a VPA may be of any kind, and its scale has the selector of its pods.
    ("*", "*/scale", &["get"]),
    // In these groups, metric names take the place of resources.
    ("custom.metrics.k8s.io", "*", &["get"]),
    ("external.metrics.k8s.io", "*", &["list"]),
];

/// Objects that may be written anywhere in a cluster, whatever their name, because autoscalers need it.
const WRITTEN: [(&str, &str, &[&str]); 18] = [
    ("", "events", &["create"]),
    ("", "pods", &["patch"]),
    ("", "pods/eviction", &["create"]),
    ("", "pods/resize", &["patch"]),
    ("", "replicationcontrollers/scale", &["update"]),
    ("apps", "deployments/scale", &["patch", "update"]),
    ("apps", "replicasets/scale", &["update"]),
    ("apps", "statefulsets/scale", &["update"]),
    ("argoproj.io", "rollouts/scale", &["update"]),
    // Reviews of users store nothing.
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("autoscaling", "horizontalpodautoscalers", &["create", "patch"]),
    ("autoscaling", "horizontalpodautoscalers/status", &["patch"]),
    ("autoscaling.k8s.io", "verticalpodautoscalercheckpoints", &["create", "patch", "delete"]),
    ("autoscaling.k8s.io", "verticalpodautoscalers", &["patch"]),
    ("autoscaling.k8s.io", "verticalpodautoscalers/status", &["patch"]),
    ("datadoghq.com", "watermarkpodautoscalers", &["patch"]),
    ("datadoghq.com", "watermarkpodautoscalers/status", &["patch"]),
];

/// The problem of a permission, if it has one.
fn finding(right: &RbacRight) -> Option<&'static str> {
    let RbacRight { group, resource, verb, name, .. } = right;
    let listed = |list: &[(&str, &str, &[&str])]| {
        list.iter().any(|(of, what, verbs)| {
            group == of && resource == what && verbs.contains(&verb.as_str())
        })
    };
    if (group.contains('*') || resource.contains('*') || verb.contains('*')) && !listed(&WILD) {
        return Some("a wildcard that is not listed");
    }
    if !["get", "list", "watch", "create", "update", "patch", "delete"].contains(&&**verb) {
        return Some("a verb that allows escalation, or affects many objects at once");
    }
    let reads = ["get", "list", "watch"].contains(&&**verb);
    if !reads && name.is_none() && !listed(&WRITTEN) {
        return Some("a write that is neither for one name nor listed");
    }
    if verb == "create" && name.is_some() {
        return Some("RBAC cannot restrict a create to a name: this allows nothing");
    }
    if resource == "secrets" && name.is_none() {
        return Some("Secrets that are not named");
    }
    if ["nodes/proxy", "pods/exec", "pods/attach", "serviceaccounts/token"].contains(&&**resource) {
        return Some("access to the inside of a pod");
    }
    None
}

#[test]
fn no_permission_is_wider_than_necessary() {
    let Some(all) = all() else { return };
    for (set, objects) in all {
        for role in [of_kind(&objects, "Role"), of_kind(&objects, "ClusterRole")].concat() {
            for right in of_role(role) {
                assert_eq!(finding(&right), None, "{set}: {}: {right:?}", title(role));
                // A name that does not exist grants access to any future object with this name.
                let Some(name) = &right.name else { continue };
                let is_it = |one: &Value| {
                    one["metadata"]["name"] == **name
                        && one["metadata"]["namespace"].as_str() == right.namespace.as_deref()
                };
                let comes_from_a_neighbour =
                    ["vpa-admission-controller", "plimsoll-horizontal"].contains(&&**name);
                // A user who creates an object of this name can only make the controller stop.
                let is_sentinel = name == SENTINEL_NAME;
                assert!(
                    comes_from_a_neighbour || is_sentinel || objects.iter().any(is_it),
                    "{set}: no object is called {name} in {:?}",
                    right.namespace
                );
            }
        }
    }
}

#[test]
fn a_permission_that_is_too_wide_is_found() {
    let right = |group: &str, resource: &str, verb: &str, name: Option<&str>| RbacRight {
        namespace: None,
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: verb.to_owned(),
        name: name.map(str::to_owned),
    };
    for bad in [
        right("*", "*", "get", None),
        right("*", "*/scale", "update", None),
        right("apps", "deployments", "*", None),
        right("apps", "deployments", "patch", None),
        right("", "pods", "deletecollection", None),
        right("", "secrets", "list", None),
        right("", "secrets", "create", None),
        right("", "nodes/proxy", "get", None),
        right("coordination.k8s.io", "leases", "create", None),
        right("coordination.k8s.io", "leases", "create", Some("a")),
        right("rbac.authorization.k8s.io", "roles", "escalate", None),
        right("", "users", "impersonate", None),
        right("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch", None),
    ] {
        assert!(finding(&bad).is_some(), "{bad:?}");
    }
    assert_eq!(finding(&right("coordination.k8s.io", "leases", "update", Some("a"))), None);
    assert_eq!(finding(&right("", "pods", "list", None)), None);
}

#[test]
fn scales_of_all_kinds_are_readable_unless_kinds_are_listed() {
    let scales = |values: &[&str]| {
        let accounts = of_accounts(&chart_template(values)?).into_iter();
        let of = |(account, rights): (String, BTreeSet<RbacRight>)| {
            let rights = rights.into_iter().filter(|right| right.resource.ends_with("/scale"));
            let rights: Vec<_> =
                rights.map(|it| format!("{} {} {}", it.verb, it.group, it.resource)).collect();
            (account, rights)
        };
        Some(accounts.map(of).filter(|(_, rights)| !rights.is_empty()).collect::<Vec<_>>())
    };
    let listed = [
        "targets.any=false",
        "targets.kinds[0].group=argoproj.io",
        "targets.kinds[0].resource=rollouts",
    ];
    for (values, expected) in [
        (&[][..], Some("get * */scale")),
        (&listed, Some("get argoproj.io rollouts/scale")),
        (&listed[..1], None),
    ] {
        let Some(found) = scales(values) else { return };
        assert_eq!(found.len(), if expected.is_some() { 3 } else { 0 }, "{found:?}");
        for (account, rights) in found {
            assert_eq!(rights, Vec::from_iter(expected), "{account}");
        }
    }
}

#[test]
fn kustomize_and_helm_grant_each_role_the_same_permissions() {
    let Some(full) = kustomize("overlays/full-vpa") else { return };
    let Some(marks) = kustomize("overlays/watermark-only") else { return };
    let Some(horizontal) = kustomize("overlays/horizontal-only") else { return };
    let Some(page) = kustomize("overlays/ui") else { return };
    let enabled = ["watermark.enabled=true", "horizontal.enabled=true", "ui.enabled=true"];
    let values = [&enabled[..], &["tests.enabled=false"]].concat();
    let Some(chart) = chart_template(&values) else { return };
    // Namespaces differ: Helm uses that of the release.
    let plain = |objects: &[Value]| {
        let accounts = of_accounts(objects).into_iter();
        let mut accounts: Vec<_> = accounts
            .map(|(account, rights)| {
                let name = account.split_once('/').expect("two parts").1.to_owned();
                let of_all = |right: RbacRight| {
                    let namespace = right.namespace.map(|_| "one".to_owned());
                    RbacRight { namespace, ..right }
                };
                (name, rights.into_iter().map(of_all).collect::<BTreeSet<_>>())
            })
            .collect();
        accounts.sort();
        accounts
    };
    assert_eq!(plain(&[full, marks, horizontal, page].concat()), plain(&chart));
}

/// The permissions of the account of a role with kustomize, and with the chart; `None` if one of the tools is missing.
fn of_role_account(
    role: &str,
    overlay: &str,
    values: &[&str],
) -> Option<[(String, BTreeSet<RbacRight>); 2]> {
    let of = |objects: &[Value]| {
        let mut accounts = of_accounts(objects).into_iter();
        let name = format!("/plimsoll-{role}");
        accounts.find(|(account, _)| account.ends_with(&name)).expect("an account")
    };
    let overlay = kustomize(&format!("overlays/{overlay}"))?;
    Some([of(&overlay), of(&chart_template(values)?)])
}

/// The permissions to write, sorted, as `text` says them.
fn writes(rights: &BTreeSet<RbacRight>, text: impl Fn(&RbacRight) -> String) -> Vec<String> {
    let writes = rights.iter().filter(|right| !["get", "list", "watch"].contains(&&*right.verb));
    let mut writes: Vec<_> = writes.map(text).collect();
    writes.sort_unstable();
    writes
}

#[test]
fn the_updater_may_patch_horizontalpodautoscalers_only_if_it_changes_their_targets() {
    let rights_with = |values: &[&str]| {
        let mut accounts = of_accounts(&chart_template(values)?).into_iter();
        accounts.find(|(account, _)| account.ends_with("/plimsoll-updater"))
    };
    let [Some((_, without)), Some((_, with))] =
        [&[][..], &["updater.retargetHpas=true"]].map(rights_with)
    else {
        return;
    };
    let added = with.difference(&without).map(|right| {
        let RbacRight { verb, group, resource, name, .. } = right;
        format!("{verb} {group} {resource} {name:?}")
    });
    let expected =
        ["get", "patch"].map(|verb| format!("{verb} autoscaling horizontalpodautoscalers None"));
    assert_eq!(added.collect::<Vec<_>>(), expected);
    assert!(without.is_subset(&with));
}

/// In the mode shadow nothing is ever changed.
#[test]
fn the_horizontal_controller_may_write_only_its_lease() {
    let values = ["horizontal.enabled=true"];
    let Some(found) = of_role_account("horizontal", "horizontal-only", &values) else { return };
    for (account, rights) in found {
        let writes = writes(&rights, |right| format!("{} {:?}", right.resource, right.name));
        assert_eq!(writes, ["leases Some(\"plimsoll-horizontal\")"], "{account}");
    }
}

#[test]
fn the_horizontal_controller_may_scale_and_annotate_only_where_it_adopts() {
    let values = ["horizontal.enabled=true", "horizontal.mode=adopted"];
    let Some(found) = of_role_account("horizontal", "horizontal-adopted", &values) else { return };
    for (account, rights) in found {
        let expected = [
            "create events",
            "patch horizontalpodautoscalers",
            "update deployments/scale",
            "update leases",
            "update replicasets/scale",
            "update replicationcontrollers/scale",
            "update statefulsets/scale",
        ];
        let writes = writes(&rights, |right| format!("{} {}", right.verb, right.resource));
        assert_eq!(writes, expected, "{account}");
    }
}

#[test]
fn the_horizontal_controller_may_write_statuses_and_its_sentinel_only_where_it_replaces() {
    let values = ["horizontal.enabled=true", "horizontal.mode=replace"];
    let Some(found) = of_role_account("horizontal", "horizontal-replace", &values) else { return };
    for (account, rights) in found {
        let writes = writes(&rights, |RbacRight { verb, resource, name, namespace, .. }| {
            let name = name.as_deref().unwrap_or("*");
            let of = if namespace.is_some() { "one namespace" } else { "all" };
            format!("{verb} {resource} {name} in {of}")
        });
        let expected = [
            "create events * in all",
            "create horizontalpodautoscalers * in one namespace",
            "delete horizontalpodautoscalers plimsoll-sentinel in one namespace",
            "patch horizontalpodautoscalers * in all",
            "patch horizontalpodautoscalers/status * in all",
            "update deployments/scale * in all",
            "update leases plimsoll-horizontal in one namespace",
            "update replicasets/scale * in all",
            "update replicationcontrollers/scale * in all",
            "update statefulsets/scale * in all",
        ];
        assert_eq!(writes, expected, "{account}");
        let reads = |group: &str| {
            let of_group = rights.iter().filter(|right| right.group == group);
            of_group.map(|right| &*right.verb).collect::<Vec<_>>()
        };
        assert_eq!(reads("custom.metrics.k8s.io"), ["get"], "{account}");
        assert_eq!(reads("external.metrics.k8s.io"), ["list"], "{account}");
    }
}

#[test]
fn the_controllers_of_replicas_may_read_what_their_decisions_need() {
    let read = |group: &str, resource: &str, verb: &str| RbacRight {
        namespace: None,
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: verb.to_owned(),
        name: None,
    };
    // Without it, pods of other workloads would be counted if their labels match.
    let owners = read("apps", "replicasets", "get");
    // Without them, replicas are removed while pods are updated.
    let vpas =
        ["list", "watch"].map(|verb| read("autoscaling.k8s.io", "verticalpodautoscalers", verb));
    for (role, overlay, values) in [
        ("watermark", "watermark-only", &["watermark.enabled=true"][..]),
        ("horizontal", "horizontal-only", &["horizontal.enabled=true"]),
        (
            "horizontal",
            "horizontal-adopted",
            &["horizontal.enabled=true", "horizontal.mode=adopted"],
        ),
        (
            "horizontal",
            "horizontal-replace",
            &["horizontal.enabled=true", "horizontal.mode=replace"],
        ),
    ] {
        let Some(found) = of_role_account(role, overlay, values) else { return };
        for (account, rights) in found {
            assert!(rights.contains(&owners), "{overlay}: {account}: {rights:?}");
            // In the mode shadow they would not be used.
            let expected = overlay != "horizontal-only";
            assert!(vpas.iter().all(|right| rights.contains(right) == expected), "{overlay}");
        }
    }
}

#[test]
fn one_account_for_all_roles_has_the_union_of_their_permissions() {
    let Some(apart) = kustomize("overlays/high-availability") else { return };
    let Some(one) = kustomize("overlays/all-in-one") else { return };
    let rights: BTreeSet<_> =
        of_accounts(&apart).into_iter().flat_map(|(_, rights)| rights).collect();
    let accounts = of_accounts(&one);
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].1, rights);
}
