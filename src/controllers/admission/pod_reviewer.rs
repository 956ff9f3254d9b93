//! Reviews new pods. An internal error never rejects a pod: it is allowed unchanged, with a log line and a metric
//! that give the reason.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    config::AdmissionConfig,
    decide::{SizingInputs, decide_pod},
    matching::VpaMatcher,
    watches::Watches,
};
use crate::cluster::{
    clock::Clock,
    server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer},
};
use plimsoll_core::{
    admission::validation::truncated,
    sizing::{AdmissionPod, NamespaceLimitRanges, SizingError},
};

pub(super) struct PodReviewer {
    pub config: Arc<AdmissionConfig>,
    pub watches: Arc<Watches>,
    pub vpas: VpaMatcher,
    pub clock: Clock,
}

#[async_trait]
impl Reviewer for PodReviewer {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        // Before the caches are synced, a missing VPA may just not be known yet.
        if !self.watches.have_synced() {
            return AdmissionDecision::allow("not_ready");
        }
        let allow_unchanged = |outcome: &'static str, error: &dyn std::fmt::Display| {
            let (namespace, name) = (&*request.namespace, &*request.name);
            let error = truncated(error.to_string());
            tracing::warn!(namespace, name, outcome, %error, "admitting a new pod unchanged");
            AdmissionDecision::allow(outcome)
        };
        if request.resource.version != "v1" {
            let message = format!(
                "unsupported version {} of pods: only v1 is supported",
                request.resource.version
            );
            return allow_unchanged("unknown_version", &message);
        }
        let Some(object) = request.object else {
            return allow_unchanged("unreadable_pod", &"admission review has no object");
        };
        let mut review_pod: AdmissionPod = match serde_json::from_str(object) {
            Ok(review_pod) => review_pod,
            Err(error) => return allow_unchanged("unreadable_pod", &error),
        };
        let vpa = match self.vpas.find_vpa(&request.namespace, &mut review_pod).await {
            Ok(vpa) => vpa,
            Err(outcome) => return AdmissionDecision::allow(outcome),
        };
        let mut pod = review_pod.pod;
        pod.namespace = (&*request.namespace).into();
        let stores = &self.watches.stores;
        let namespace = &*request.namespace;
        let retargets_at = self.config.retarget_hpas.then(|| self.clock.now());
        let inputs = SizingInputs {
            limit_ranges: NamespaceLimitRanges::merge(&stores.limit_range_items(namespace)),
            quotas: stores.quotas.in_namespace(namespace),
            shared_requests: stores.shared_requests(namespace, &vpa, retargets_at),
        };
        let operations = match decide_pod(&self.config, &pod, &vpa, &inputs) {
            Ok(operations) => operations,
            Err(error) => {
                let decision = allow_unchanged(error.name(), &error);
                let is_large = matches!(error, SizingError::TooLarge { .. });
                let warnings = is_large.then(|| error.to_string()).into_iter().collect();
                return decision.with_warnings(warnings);
            }
        };
        AdmissionDecision::patch(&operations)
            .unwrap_or_else(|error| allow_unchanged("unwritable_patch", &error))
    }
}
