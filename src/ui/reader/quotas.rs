//! Reads the ResourceQuotas of a cluster.

use std::time::Duration;

use kube::{
    Client, ResourceExt as _,
    api::{Api, ListParams},
};
use plimsoll_core::rightsizing::survey::Resource;
use tokio::time::timeout;

use crate::{
    cluster::{cache::resource_quota::PartialResourceQuota, list_stream::error_message},
    ui::quota::{QuotaAmount, QuotaFacts},
};

/// Objects in one response.
const PAGE_SIZE: u32 = 500;
/// The most objects that are kept.
const MAX_QUOTAS: usize = 10_000;
/// Timeout of one request.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// The resources that pages show.
const RESOURCES: [(&str, Resource); 6] = [
    ("requests.cpu", Resource::Cpu),
    ("cpu", Resource::Cpu),
    ("limits.cpu", Resource::Cpu),
    ("requests.memory", Resource::Memory),
    ("memory", Resource::Memory),
    ("limits.memory", Resource::Memory),
];

/// The quotas of CPU and memory.
pub(super) async fn list_quotas(client: &Client) -> Result<Vec<QuotaFacts>, String> {
    let api = Api::<PartialResourceQuota>::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    let mut quotas = Vec::new();
    loop {
        let listed = timeout(ANSWER_LIMIT, api.list(&parameters)).await;
        let listed = listed.map_err(|_| format!("the list timed out after {ANSWER_LIMIT:?}"))?;
        let listed = listed.map_err(|error| error_message(&error))?;
        let next = listed.metadata.continue_.filter(|next| !next.is_empty());
        quotas.extend(listed.items.into_iter().filter_map(facts));
        match next {
            Some(next) if quotas.len() < MAX_QUOTAS => {
                parameters = parameters.continue_token(&next);
            }
            _ => break,
        }
    }
    quotas.truncate(MAX_QUOTAS);
    Ok(quotas)
}

/// What pages show of a quota; `None` if it restricts neither CPU nor memory.
fn facts(object: PartialResourceQuota) -> Option<QuotaFacts> {
    let namespace = object.namespace().unwrap_or_default();
    let quota = object.quota();
    let amounts: Vec<QuotaAmount> = RESOURCES
        .iter()
        .filter_map(|(name, resource)| {
            let amount = |list: &plimsoll_core::api::ResourceList| {
                let amount = list.get(&(*name).into())?;
                Some(match resource {
                    Resource::Cpu => amount.milli_value(),
                    Resource::Memory => amount.value(),
                })
            };
            Some(QuotaAmount {
                name: (*name).to_owned(),
                resource: *resource,
                hard: amount(&quota.hard)?,
                used: amount(&quota.used),
                needed: None,
            })
        })
        .collect();
    (!amounts.is_empty()).then(|| QuotaFacts {
        namespace,
        name: quota.name.to_string(),
        is_scoped: !quota.scopes.is_empty(),
        amounts,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_of_cpu_and_memory_is_read_and_one_of_objects_is_not() {
        let read = |hard: serde_json::Value, scopes: serde_json::Value| {
            let object = json!({
                "metadata": {"name": "compute", "namespace": "shop"},
                "spec": {"scopes": scopes},
                "status": {"hard": hard, "used": {"requests.cpu": "1500m"}},
            });
            facts(serde_json::from_value(object).expect("a quota"))
        };
        let hard = json!({"requests.cpu": "2", "limits.memory": "4Gi", "pods": "10"});
        let quota = read(hard, json!([])).expect("facts");
        let amounts: Vec<_> =
            quota.amounts.iter().map(|one| (&*one.name, one.hard, one.used)).collect();
        assert_eq!(amounts, [("requests.cpu", 2000, Some(1500)), ("limits.memory", 4 << 30, None)]);
        assert!(!quota.is_scoped);
        let scoped = read(json!({"cpu": "1"}), json!(["NotTerminating"])).expect("facts");
        assert!(scoped.is_scoped);
        assert_eq!(read(json!({"pods": "10"}), json!([])), None);
    }
}
