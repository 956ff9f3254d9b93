//! The texts in which the VPA and the HPA name each other.

use super::{
    Coordination, RatioRule, ReplicaWriter, change_timing::RequestChange, decide::Finding,
    scale_point::ScalePointSource,
};

/// The two autoscalers of a workload, as `namespace/name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The VerticalPodAutoscaler.
    pub vpa: &'a str,
    /// The autoscaler of replicas.
    pub hpa: &'a str,
    /// Its kind.
    pub hpa_kind: &'a str,
}

impl Pair<'_> {
    /// The message for the VPA: what the other autoscaler does, and what that means for the requests.
    pub fn for_vpa(self, decision: &Coordination) -> String {
        let Self { hpa, hpa_kind, .. } = self;
        let resource = decision.resource;
        let amount = |milli| resource.quantity(milli).to_string();
        let range = match (decision.range.min, decision.range.max) {
            (Some(min), Some(max)) => {
                format!(": requests stay between {} and {}", amount(min), amount(max))
            }
            (Some(min), None) => format!(": requests stay at {} or above", amount(min)),
            _ if decision.is_idle => {
                ": the workload is idle, so requests have no lower bound".to_owned()
            }
            _ => String::new(),
        };
        let held = match decision.change {
            RequestChange::Held { to, by, .. } => {
                format!(
                    "; a change to {} waits: {}",
                    amount(to),
                    by.cause(&format!("{hpa_kind} {hpa}"))
                )
            }
            _ => String::new(),
        };
        format!(
            "{hpa_kind} {hpa} scales the same pods by the utilization of {resource}{range}{held}"
        )
    }

    /// The message for the autoscaler of replicas: what the VPA changes, and what the replicas follow.
    pub fn for_hpa(self, decision: &Coordination) -> String {
        let resource = decision.resource;
        let what = format!(
            "VerticalPodAutoscaler {} changes the {resource} requests of the same pods",
            self.vpa
        );
        let rule = match (decision.ratio_rule, decision.scale_point) {
            (RatioRule::Usage { average_milli }, Some(scale_point)) => format!(
                "replicas follow the usage per pod relative to {} ({})",
                resource.quantity(average_milli),
                origin(scale_point.source)
            ),
            (RatioRule::Utilization { percent }, _) if decision.target_percent.is_some() => {
                format!("the target follows the requests, now {percent}%")
            }
            _ => "replicas follow the requests".to_owned(),
        };
        format!("{what}: {rule}")
    }

    /// The warning when either object is written: which rule applies.
    pub fn warning(self, decision: &Coordination, writer: ReplicaWriter) -> String {
        let Self { vpa, hpa, hpa_kind } = self;
        let resource = decision.resource;
        let what = format!(
            "VerticalPodAutoscaler {vpa} and {hpa_kind} {hpa} both use {resource} of the same pods, and the target is a \
             Utilization of the request"
        );
        let rule = match writer {
            ReplicaWriter::Plimsoll if decision.findings.contains(&Finding::FollowsRequests) => {
                format!(
                    "{resource} requests are not changed because plimsoll.dev/utilization-of is request"
                )
            }
            ReplicaWriter::Plimsoll => {
                "replicas follow the usage relative to the pod template's request".to_owned()
            }
            ReplicaWriter::Other { may_retarget: true } => {
                "the target is changed together with the requests".to_owned()
            }
            ReplicaWriter::Other { may_retarget: false } => {
                format!("{resource} requests are not changed{}", advice(decision))
            }
        };
        format!("{what}: {rule}")
    }
}

/// What the user can do about it.
fn advice(decision: &Coordination) -> String {
    decision.scale_point.map_or_else(String::new, |scale_point| {
        let amount = decision.resource.quantity(scale_point.milli);
        format!("; with averageValue: {amount} as target they can be")
    })
}

fn origin(source: ScalePointSource) -> &'static str {
    match source {
        ScalePointSource::Template => "the target utilization of the pod template's request",
        ScalePointSource::FirstRequests => {
            "the target utilization of the first requests, because the pod template has none"
        }
        ScalePointSource::RaisedAtMax { .. } => "raised because maxReplicas was not enough",
    }
}
