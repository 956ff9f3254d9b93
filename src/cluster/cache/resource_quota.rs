//! ResourceQuotas, reduced to the CPU and memory of pods.

use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use serde::Deserialize;

use crate::cluster::watch::partial_objects::lean_metadata;
use plimsoll_core::{
    api::ResourceList,
    sizing::quota::{Quota, Scope},
};

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "ResourceQuota")]
pub struct PartialResourceQuota {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: QuotaSpec,
    #[serde(default)]
    pub status: QuotaStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaSpec {
    scopes: Option<Vec<Box<str>>>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeSelector {
    match_expressions: Option<Vec<ScopeRequirement>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeRequirement {
    scope_name: Box<str>,
    operator: Box<str>,
    values: Option<Vec<Box<str>>>,
}

/// The amounts of a ResourceQuota. The API server enforces the status, not the spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct QuotaStatus {
    hard: Option<ResourceList>,
    used: Option<ResourceList>,
}

impl PartialResourceQuota {
    pub fn quota(self) -> Quota {
        let name = self.name_any().into();
        let QuotaSpec { scopes, scope_selector } = self.spec;
        let plain = scopes.into_iter().flatten().map(|name| scope(&name, "Exists", Vec::new()));
        let selected = scope_selector.and_then(|selector| selector.match_expressions);
        let selected = selected.into_iter().flatten().map(|requirement| {
            let ScopeRequirement { scope_name, operator, values } = requirement;
            scope(&scope_name, &operator, values.unwrap_or_default())
        });
        Quota {
            name,
            hard: self.status.hard.unwrap_or_default(),
            used: self.status.used.unwrap_or_default(),
            scopes: plain.chain(selected).collect(),
        }
    }
}

fn scope(name: &str, operator: &str, values: Vec<Box<str>>) -> Scope {
    match (name, operator) {
        ("BestEffort", "Exists") => Scope::BestEffort(true),
        ("NotBestEffort", "Exists") => Scope::BestEffort(false),
        ("Terminating", "Exists") => Scope::Terminating(true),
        ("NotTerminating", "Exists") => Scope::Terminating(false),
        ("PriorityClass", "Exists") => Scope::HasPriority(true),
        ("PriorityClass", "DoesNotExist") => Scope::HasPriority(false),
        ("PriorityClass", "In") => Scope::PriorityIn(values),
        ("PriorityClass", "NotIn") => Scope::PriorityNotIn(values),
        _ => Scope::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_from_its_status_and_scopes() {
        let quota = |spec: &str| -> Quota {
            let text = format!(
                r#"{{"metadata": {{"name": "q"}}, "spec": {spec}, "status": {{
                    "hard": {{"requests.cpu": "2", "pods": "5"}}, "used": {{"requests.cpu": "1"}}}}}}"#
            );
            serde_json::from_str::<PartialResourceQuota>(&text).expect("a quota").quota()
        };
        let plain = quota(r#"{"hard": {"requests.cpu": "9"}}"#);
        let cpu = "requests.cpu".into();
        let amount = |list: &ResourceList| list.get(&cpu).map(|it| it.to_string());
        assert_eq!(amount(&plain.hard).as_deref(), Some("2"), "the status is used");
        assert_eq!((&*plain.name, amount(&plain.used).as_deref()), ("q", Some("1")));
        assert_eq!(plain.scopes, []);
        let scoped = quota(
            r#"{"scopes": ["NotBestEffort", "Terminating", "Later"], "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}"#,
        );
        assert_eq!(
            scoped.scopes,
            [
                Scope::BestEffort(false),
                Scope::Terminating(true),
                Scope::Unknown,
                Scope::PriorityIn(vec!["high".into()]),
            ]
        );
    }
}
