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

/// Runs all checks. The findings are in the order of their ids.
pub fn diagnose(facts: &ClusterFacts) -> Vec<Finding> {
    let mut findings = vec![
        api_server::api_version(facts),
        api_server::crds_served(facts),
        api_server::resize_supported(facts),
        metrics::nodes_cgroup2(facts),
        metrics::nodes_psi(facts),
        api_server::clock_skew(facts),
        metrics::metrics_api(facts),
        metrics::ksm_families(facts),
        autoscalers::vpa_target_missing(facts),
        autoscalers::two_vpas_one_workload(facts),
        autoscalers::hpa_same_metric(facts),
        autoscalers::wpa_and_hpa(facts),
        workloads::single_replica_skipped(facts),
        workloads::pdb_blocks_all(facts),
        namespaces::quota_without_room(facts),
        namespaces::limitrange_fights(facts),
        workloads::gomemlimit_static(facts),
        workloads::xmx_above_limit(facts),
        webhooks::webhook_registered(facts),
        webhooks::webhook_order(facts),
        webhooks::ca_expiring(facts),
        roles::leases(facts),
        roles::two_updaters(facts),
        roles::version_skew(facts),
        roles::rights(facts),
    ];
    findings.extend(webhooks::webhook_answers(facts));
    findings.sort_by_key(|finding| finding.id);
    findings
}
