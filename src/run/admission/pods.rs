//! What is said of a new pod. Nothing that goes wrong here keeps one from being created: it is let through as it is,
//! with a line in the log and a count that say why.

use std::sync::Arc;

use async_trait::async_trait;

use super::Role;
use crate::serve::webhook::{Request, Reviewer, Verdict};
use plimsoll_core::{
    admission::validation::shortened,
    sizing::{Ranges, Refusal, Young},
};

/// Decides about pods.
pub(super) struct Pods(pub Arc<Role>);

#[async_trait]
impl Reviewer for Pods {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &Request<'_>) -> Verdict {
        let role = &self.0;
        // What is not known yet must not look as if there were none.
        if !role.has_read_all() {
            return Verdict::allow("not_ready");
        }
        let let_through = |outcome: &'static str, why: &dyn std::fmt::Display| {
            let (namespace, name) = (&*request.namespace, &*request.name);
            let why = shortened(why.to_string());
            tracing::warn!(namespace, name, outcome, %why, "a new pod is let through as it is");
            Verdict::allow(outcome)
        };
        if request.resource.version != "v1" {
            let why = format!("only v1 is known, and this is {}", request.resource.version);
            return let_through("unknown_version", &why);
        }
        let Some(object) = request.object else {
            return let_through("unreadable_pod", &"the review has no object");
        };
        let mut young: Young = match serde_json::from_str(object) {
            Ok(young) => young,
            Err(why) => return let_through("unreadable_pod", &why),
        };
        let vpa = match role.find_vpa(&request.namespace, &mut young).await {
            Ok(vpa) => vpa,
            Err(outcome) => return Verdict::allow(outcome),
        };
        let mut pod = young.pod;
        pod.namespace = (&*request.namespace).into();
        let ranges = Ranges::merge(&role.seen.limits(&request.namespace));
        let quotas = role.quotas.of(&request.namespace);
        let decided = role.decide_pod(&pod, &vpa, &ranges, &quotas);
        let operations = match decided {
            Ok(operations) => operations,
            Err(refusal) => {
                let verdict = let_through(refusal.name(), &refusal);
                let is_large = matches!(refusal, Refusal::TooLarge { .. });
                let warnings = is_large.then(|| refusal.to_string()).into_iter().collect();
                return verdict.with_warnings(warnings);
            }
        };
        Verdict::patch(&operations).unwrap_or_else(|why| let_through("unwritable_patch", &why))
    }
}
