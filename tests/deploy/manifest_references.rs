//! References within the manifests: names, labels and ports refer to exactly one existing object.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    manifest_fields::check,
    rendered_manifests::{all, of_kind, title},
};

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the labels match a non-empty selector.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().filter(|wanted| !wanted.is_empty());
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// The pod templates that a selector matches.
fn found<'a>(objects: &'a [Value], selector: &Value) -> Vec<&'a Value> {
    let deployments = of_kind(objects, "Deployment").into_iter().map(|one| &one["spec"]);
    let jobs =
        of_kind(objects, "CronJob").into_iter().map(|one| &one["spec"]["jobTemplate"]["spec"]);
    deployments
        .chain(jobs)
        .map(|spec| &spec["template"])
        .filter(|template| selects(selector, &template["metadata"]["labels"]))
        .collect()
}

fn port_names(template: &Value) -> BTreeSet<String> {
    let ports = template["spec"]["containers"][0]["ports"].as_array().into_iter().flatten();
    ports.map(|port| port["name"].as_str().expect("ports have names").to_owned()).collect()
}

#[test]
fn built_manifests_have_only_known_fields_and_unique_objects() {
    let Some(all) = all() else { return };
    for (name, objects) in all {
        let mut titles = BTreeSet::new();
        for object in &objects {
            check(object, &name);
            assert!(titles.insert(title(object)), "{name}: {} twice", title(object));
        }
        assert!(titles.len() > 6, "{name}: only {titles:?}");
    }
}

#[test]
fn every_pod_selector_matches_one_deployment_and_its_ports() {
    let Some(all) = all() else { return };
    for (name, objects) in all {
        for object in &objects {
            let (kind, spec) = (object["kind"].as_str().unwrap_or_default(), &object["spec"]);
            let (selector, ports) = match kind {
                "Deployment" | "PodDisruptionBudget" => (&spec["selector"]["matchLabels"], vec![]),
                "PodMonitor" => {
                    (&spec["selector"]["matchLabels"], vec![&spec["podMetricsEndpoints"]])
                }
                "NetworkPolicy" => {
                    let rules = spec["ingress"].as_array().into_iter().flatten();
                    let ports = rules.map(|rule| &rule["ports"]).collect();
                    (&spec["podSelector"]["matchLabels"], ports)
                }
                "Service" => (&spec["selector"], vec![&spec["ports"]]),
                _ => continue,
            };
            let object_name = format!("{name}: {}", title(object));
            let pods = found(&objects, selector);
            assert_eq!(pods.len(), 1, "{object_name}");
            let known = port_names(pods[0]);
            for port in ports.into_iter().flat_map(|list| list.as_array().into_iter().flatten()) {
                let field = if kind == "Service" { "targetPort" } else { "port" };
                let named = port[field].as_str().expect("a name");
                assert!(known.contains(named), "{object_name}: {named}");
            }
        }
        for monitor in of_kind(&objects, "ServiceMonitor") {
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            let services = of_kind(&objects, "Service");
            let found = services.iter().filter(|one| selects(selector, &one["metadata"]["labels"]));
            assert_eq!(found.count(), 1, "{name}: {}", title(monitor));
        }
    }
}

#[test]
fn every_pod_has_probes_resources_an_account_a_pdb_and_a_network_policy() {
    let Some(all) = all() else { return };
    for (name, objects) in all {
        for deployment in of_kind(&objects, "Deployment") {
            let object_name = format!("{name}: {}", title(deployment));
            let template = &deployment["spec"]["template"];
            let (pod, container) = (&template["spec"], &template["spec"]["containers"][0]);
            let ports = port_names(template);
            for probe in ["livenessProbe", "readinessProbe"] {
                let port = container[probe]["httpGet"]["port"].as_str().unwrap_or_default();
                assert!(ports.contains(port), "{object_name}: {probe}");
            }
            for amount in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                assert!(
                    container["resources"].pointer(amount).is_some(),
                    "{object_name}: {amount}"
                );
            }
            assert_eq!(pod["automountServiceAccountToken"], true, "{object_name}");
            assert_eq!(pod["enableServiceLinks"], false, "{object_name}");
            let account = &pod["serviceAccountName"];
            let accounts = of_kind(&objects, "ServiceAccount");
            let own: Vec<_> =
                accounts.iter().filter(|one| one["metadata"]["name"] == *account).collect();
            assert_eq!(own.len(), 1, "{object_name}: {account}");
            assert_eq!(own[0]["automountServiceAccountToken"], false, "{object_name}");
            let labels = &template["metadata"]["labels"];
            for (kind, place) in [
                ("PodDisruptionBudget", "/spec/selector/matchLabels"),
                ("NetworkPolicy", "/spec/podSelector/matchLabels"),
            ] {
                let of = of_kind(&objects, kind);
                let of = of.iter().filter(|one| {
                    one.pointer(place).is_some_and(|selector| selects(selector, labels))
                });
                assert_eq!(of.count(), 1, "{object_name}: {kind}");
            }
            // A single replica is not spread, and a rollout does not wait for the old one to leave.
            let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
            let replicas = deployment["spec"]["replicas"].as_i64().expect("a number");
            assert!(replicas > 1 || rolling["maxUnavailable"] == 0, "{object_name}");
        }
        for budget in of_kind(&objects, "PodDisruptionBudget") {
            assert_eq!(budget["spec"]["maxUnavailable"], 1, "{name}: {}", title(budget));
            assert_eq!(
                budget["spec"]["unhealthyPodEvictionPolicy"],
                "AlwaysAllow",
                "{name}: {}",
                title(budget)
            );
        }
        for policy in of_kind(&objects, "NetworkPolicy") {
            let types: BTreeSet<_> = texts(&policy["spec"]["policyTypes"]).collect();
            assert_eq!(types, BTreeSet::from(["Egress", "Ingress"]), "{name}: {}", title(policy));
            let out = policy["spec"]["egress"].as_array().expect("rules");
            let mut ports: Vec<i64> = out
                .iter()
                .flat_map(|rule| rule["ports"].as_array().expect("no rule is for all ports"))
                .map(|port| port["port"].as_i64().expect("a number"))
                .collect();
            ports.sort_unstable();
            ports.dedup();
            // DNS (5353 in OpenShift) and API servers, also those of minikube (8443) and MicroK8s (16443).
            let required = [53, 443, 5353, 6443, 8443, 16443];
            assert!(
                required.iter().all(|port| ports.contains(port)),
                "{name}: {} {ports:?}",
                title(policy)
            );
            ports.retain(|port| !required.contains(port));
            assert!(ports.iter().all(|port| *port == 9090), "{name}: {} {ports:?}", title(policy));
        }
    }
}

#[test]
fn every_binding_references_an_existing_role_and_account_and_every_role_is_bound() {
    let Some(all) = all() else { return };
    for (name, objects) in all {
        let mut bound = BTreeSet::new();
        for kind in ["Role", "ClusterRole"] {
            for binding in of_kind(&objects, &format!("{kind}Binding")) {
                let object_name = format!("{name}: {}", title(binding));
                assert_eq!(binding["roleRef"]["kind"], kind, "{object_name}");
                let role = &binding["roleRef"]["name"];
                let is_it = |one: &&Value| {
                    one["metadata"]["name"] == *role
                        && one["metadata"]["namespace"] == binding["metadata"]["namespace"]
                };
                let roles = of_kind(&objects, kind);
                let role = roles
                    .into_iter()
                    .find(is_it)
                    .unwrap_or_else(|| panic!("{object_name}: {role}"));
                bound.insert(title(role));
                let subjects = binding["subjects"].as_array().expect("subjects");
                assert_eq!(subjects.len(), 1, "{object_name}");
                let is_there = |one: &&Value| {
                    one["metadata"]["name"] == subjects[0]["name"]
                        && one["metadata"]["namespace"] == subjects[0]["namespace"]
                };
                assert!(of_kind(&objects, "ServiceAccount").iter().any(is_there), "{object_name}");
            }
            for role in of_kind(&objects, kind) {
                assert!(bound.contains(&title(role)), "{name}: {} is not bound", title(role));
            }
        }
    }
}

#[test]
fn every_deployment_has_flags_that_its_role_accepts() {
    let Some(all) = all() else { return };
    for (name, objects) in all {
        for deployment in of_kind(&objects, "Deployment") {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            let words: Vec<&str> =
                texts(&container["command"]).chain(texts(&container["args"])).collect();
            let checked = plimsoll::cli::check(&words);
            assert_eq!(checked, Ok(()), "{name}: {} {words:?}", title(deployment));
        }
    }
}
