//! What is wrong with autoscaling in a cluster: one finding for each check.
//!
//! ```text
//!   ClusterFacts: what was read, and why the rest was not ──▶ checks ──▶ Finding: level, measured, wanted, objects
//! ```
//!
//! A check whose facts could not be read returns [`Level::Unknown`] with the reason: unknown is not ok.

mod api_server;
mod autoscalers;
mod crd_fields;
pub mod facts;
mod finding;
mod metrics;
mod namespaces;
mod roles;
#[cfg(test)]
mod tests;
mod webhooks;
mod workloads;

pub use self::{
    crd_fields::missing_fields,
    facts::ClusterFacts,
    finding::{CheckId, Finding, Level, MAX_OBJECTS, Topic},
};

use self::facts::Reading;

/// A check of the facts. The error says why its result is unknown.
type Check = fn(CheckId, &ClusterFacts) -> Reading<Finding>;

/// All checks but [`CheckId::WebhookAnswers`], which is not always tried.
const CHECKS: [(CheckId, Check); 25] = [
    (CheckId::ApiVersion, api_server::api_version),
    (CheckId::CrdsServed, api_server::crds_served),
    (CheckId::ResizeSupported, api_server::resize_supported),
    (CheckId::NodesCgroup2, metrics::nodes_cgroup2),
    (CheckId::NodesPsi, metrics::nodes_psi),
    (CheckId::ClockSkew, api_server::clock_skew),
    (CheckId::MetricsApi, metrics::metrics_api),
    (CheckId::KsmFamilies, metrics::ksm_families),
    (CheckId::VpaTargetMissing, autoscalers::vpa_target_missing),
    (CheckId::TwoVpasOneWorkload, autoscalers::two_vpas_one_workload),
    (CheckId::HpaSameMetric, autoscalers::hpa_same_metric),
    (CheckId::WpaAndHpa, autoscalers::wpa_and_hpa),
    (CheckId::SingleReplicaSkipped, workloads::single_replica_skipped),
    (CheckId::PdbBlocksAll, workloads::pdb_blocks_all),
    (CheckId::QuotaWithoutRoom, namespaces::quota_without_room),
    (CheckId::LimitrangeFights, namespaces::limitrange_fights),
    (CheckId::GomemlimitStatic, workloads::gomemlimit_static),
    (CheckId::XmxAboveLimit, workloads::xmx_above_limit),
    (CheckId::WebhookRegistered, webhooks::webhook_registered),
    (CheckId::WebhookOrder, webhooks::webhook_order),
    (CheckId::CaExpiring, webhooks::ca_expiring),
    (CheckId::Leases, roles::leases),
    (CheckId::TwoUpdaters, roles::two_updaters),
    (CheckId::VersionSkew, roles::version_skew),
    (CheckId::Rights, roles::rights),
];

/// Runs all checks. The findings are in the order of their ids.
pub fn diagnose(facts: &ClusterFacts) -> Vec<Finding> {
    let finding =
        |id, found: Reading<Finding>| found.unwrap_or_else(|why| Finding::unknown(id, why));
    let mut findings: Vec<Finding> =
        CHECKS.iter().map(|(id, check)| finding(*id, check(*id, facts))).collect();
    if let Some(live) = &facts.live_pod {
        let id = CheckId::WebhookAnswers;
        findings.push(finding(id, webhooks::webhook_answers(id, live)));
    }
    findings.sort_by_key(|finding| finding.id);
    findings
}
