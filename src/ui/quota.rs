//! ResourceQuotas against what the workloads of their namespaces need.

use plimsoll_core::rightsizing::survey::Resource;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{access::Scope, pages::NamespaceTotals, snapshot::Snapshot};

/// A ResourceQuota of CPU or memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaFacts {
    pub namespace: String,
    pub name: String,
    /// Whether it counts only some of the pods.
    pub is_scoped: bool,
    /// Its limits, in millicores and bytes.
    pub amounts: Vec<QuotaAmount>,
}

/// A limit of a quota.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaAmount {
    /// The resource as in the quota, such as `requests.cpu`.
    pub name: String,
    /// CPU or memory.
    pub resource: Resource,
    /// The limit.
    pub hard: i64,
    /// What is used, if the status says so.
    pub used: Option<i64>,
    /// What the workloads need; only of requests, and only if the quota counts all pods.
    pub needed: Option<i64>,
}

impl QuotaAmount {
    /// The larger of what is used and what is needed, as a fraction of the limit.
    pub(super) fn share(&self) -> Option<f64> {
        let most = self.used.max(self.needed)?;
        Some(if self.hard > 0 { most as f64 / self.hard as f64 } else { f64::INFINITY })
    }
}

impl QuotaFacts {
    /// The quota with what the workloads of its namespace need. Without targets nothing is known about the need.
    fn with_need(&self, totals: Option<&NamespaceTotals>) -> Self {
        let mut quota = self.clone();
        let Some(totals) = totals.filter(|_| !self.is_scoped) else { return quota };
        for amount in &mut quota.amounts {
            let of_resource = match amount.resource {
                Resource::Cpu => &totals.cpu,
                Resource::Memory => &totals.memory,
            };
            let is_request = !amount.name.starts_with("limits.");
            amount.needed = Some(of_resource.needed).filter(|needed| is_request && *needed > 0);
        }
        quota
    }

    fn share(&self) -> f64 {
        self.amounts.iter().filter_map(QuotaAmount::share).fold(0.0, f64::max)
    }
}

/// The quotas that may be seen, of one namespace or of all. Those that are nearest to their limits come first.
pub(super) fn quotas(
    snapshot: &Snapshot,
    scope: &Scope,
    namespace: Option<&str>,
) -> Vec<QuotaFacts> {
    let parts = &snapshot.parts;
    let visible = parts.quotas.iter().filter(|quota| scope.allows(&quota.namespace));
    let wanted = visible.filter(|quota| namespace.is_none_or(|name| quota.namespace == name));
    let mut quotas: Vec<QuotaFacts> = wanted
        .map(|quota| {
            let totals = parts.report.namespaces.get(&quota.namespace);
            quota.with_need(totals.map(NamespaceTotals::from).as_ref())
        })
        .collect();
    quotas.sort_by(|one, other| {
        let names = (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name));
        other.share().total_cmp(&one.share()).then(names)
    });
    quotas
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rightsizing::report::ResourceTotals;

    use super::*;

    fn amount(name: &str, hard: i64, used: Option<i64>) -> QuotaAmount {
        QuotaAmount { name: name.to_owned(), resource: Resource::Cpu, hard, used, needed: None }
    }

    #[test]
    fn only_requests_of_quotas_that_count_all_pods_have_a_need() {
        let totals = NamespaceTotals {
            cpu: ResourceTotals { needed: 1_800, ..ResourceTotals::default() },
            ..NamespaceTotals::default()
        };
        let quota = QuotaFacts {
            amounts: vec![amount("requests.cpu", 2_000, Some(500)), amount("limits.cpu", 1, None)],
            ..QuotaFacts::default()
        };
        let needs = |quota: &QuotaFacts, totals: Option<&NamespaceTotals>| -> Vec<Option<i64>> {
            quota.with_need(totals).amounts.iter().map(|one| one.needed).collect()
        };
        assert_eq!(needs(&quota, Some(&totals)), [Some(1_800), None]);
        assert_eq!(needs(&quota, None), [None, None]);
        assert_eq!(needs(&quota, Some(&NamespaceTotals::default())), [None, None], "unknown");
        let scoped = QuotaFacts { is_scoped: true, ..quota.clone() };
        assert_eq!(needs(&scoped, Some(&totals)), [None, None]);
        assert_eq!(quota.with_need(Some(&totals)).share(), 0.9);
        assert_eq!(amount("cpu", 0, Some(1)).share(), Some(f64::INFINITY));
        assert_eq!(amount("cpu", 10, None).share(), None);
    }
}
