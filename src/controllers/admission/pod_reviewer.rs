//! Reviews new pods. An internal error never rejects a pod: it is allowed unchanged, with a log line and a metric
//! that give the reason.

use std::sync::Arc;

use async_trait::async_trait;

use super::{config::AdmissionConfig, matching::VpaMatcher, watches::Watches};
use crate::cluster::{
    clock::Clock,
    server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer},
};
use plimsoll_core::{
    admission::{self, AdmissionSettings, validation::truncated},
    api::VerticalPodAutoscaler,
    sizing::{
        AdmissionPod, NamespaceLimitRanges, Operation, Pod, SizingError, VpaOptions,
        quota::{self, PodOperation},
    },
    types::quantity::Quantity,
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
        let operations = match self.decide(&pod, &vpa) {
            Ok(operations) => operations,
            Err(error) => {
                let decision = allow_unchanged(error.into_str(), &error);
                let is_large = matches!(error, SizingError::TooLarge { .. });
                let warnings = is_large.then(|| error.to_string()).into_iter().collect();
                return decision.with_warnings(warnings);
            }
        };
        AdmissionDecision::patch(&operations)
            .unwrap_or_else(|error| allow_unchanged("unwritable_patch", &error))
    }
}

impl PodReviewer {
    fn decide(
        &self,
        pod: &Pod,
        vpa: &VerticalPodAutoscaler,
    ) -> Result<Vec<Operation>, SizingError> {
        let (config, stores, namespace) = (&self.config, &self.watches.stores, &*pod.namespace);
        let retargets_at = config.retarget_hpas.then(|| self.clock.now());
        let shared_requests = stores.shared_requests(namespace, vpa, retargets_at);
        let limit_ranges = NamespaceLimitRanges::merge(&stores.sizing.limit_range_items(namespace));
        let settings = AdmissionSettings {
            rules: config.sizing_rules(),
            startup_boost: config.feature_gates.startup_boost,
            max_boosted_cpu: config.max_boost.unwrap_or(Quantity::ZERO),
        };
        let options = VpaOptions::from_vpa(vpa, config.compat);
        let spec = options.sizing_spec(vpa, config.limit_policy);
        let spec = spec.with_shared_requests(&shared_requests);
        let patch = admission::patch_pod(pod, &spec, Some(&limit_ranges), &settings)?;
        let quotas = stores.sizing.quotas(namespace);
        quota::ensure_quota(&quotas, pod, &patch.sized_containers, PodOperation::Create)?;
        Ok(patch.operations)
    }
}
