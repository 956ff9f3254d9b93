//! What is said of a new pod. Nothing that goes wrong here keeps one from being created: it is let through as it is,
//! with a line in the log and a count that say why.

use std::sync::Arc;

use async_trait::async_trait;

use super::AdmissionController;
use crate::cluster::server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer};
use plimsoll_core::{
    admission::validation::truncated,
    sizing::{AdmissionPod, NamespaceLimitRanges, SizingError},
};

/// Decides about pods.
pub(super) struct PodReviewer(pub Arc<AdmissionController>);

#[async_trait]
impl Reviewer for PodReviewer {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let role = &self.0;
        // What is not known yet must not look as if there were none.
        if !role.has_synced() {
            return AdmissionDecision::allow("not_ready");
        }
        let let_through = |outcome: &'static str, why: &dyn std::fmt::Display| {
            let (namespace, name) = (&*request.namespace, &*request.name);
            let why = truncated(why.to_string());
            tracing::warn!(namespace, name, outcome, %why, "a new pod is let through as it is");
            AdmissionDecision::allow(outcome)
        };
        if request.resource.version != "v1" {
            let why = format!("only v1 is known, and this is {}", request.resource.version);
            return let_through("unknown_version", &why);
        }
        let Some(object) = request.object else {
            return let_through("unreadable_pod", &"the review has no object");
        };
        let mut young: AdmissionPod = match serde_json::from_str(object) {
            Ok(young) => young,
            Err(why) => return let_through("unreadable_pod", &why),
        };
        let vpa = match role.find_vpa(&request.namespace, &mut young).await {
            Ok(vpa) => vpa,
            Err(outcome) => return AdmissionDecision::allow(outcome),
        };
        let mut pod = young.pod;
        pod.namespace = (&*request.namespace).into();
        let ranges =
            NamespaceLimitRanges::merge(&role.stores.limit_range_items(&request.namespace));
        let quotas = role.quotas.in_namespace(&request.namespace);
        let decided = role.decide_pod(&pod, &vpa, &ranges, &quotas);
        let operations = match decided {
            Ok(operations) => operations,
            Err(refusal) => {
                let verdict = let_through(refusal.name(), &refusal);
                let is_large = matches!(refusal, SizingError::TooLarge { .. });
                let warnings = is_large.then(|| refusal.to_string()).into_iter().collect();
                return verdict.with_warnings(warnings);
            }
        };
        AdmissionDecision::patch(&operations)
            .unwrap_or_else(|why| let_through("unwritable_patch", &why))
    }
}
