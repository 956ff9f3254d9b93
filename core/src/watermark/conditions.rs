//! The conditions of an object, with upstream's reasons and messages, and how the list is updated.

use std::cmp::Reverse;

use crate::types::Time;

use super::{
    cooldown::{CooldownRemaining, StateSince},
    pending_scale::{INDETERMINATE, PENDING},
    propose::{ConvergeTowards, Convergence},
};
pub use crate::api::scale_decision::{from_timestamp, to_timestamp};
use crate::{
    api::wpa::{Condition, WatermarkPodAutoscalerStatus},
    scaling::Position,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum ConditionType {
    /// The scale of the target can be read and updated.
    AbleToScale,
    /// A replica count can be computed.
    ScalingActive,
    ScalingLimited,
    /// The object is in dry-run mode, so that no replicas are changed.
    DryRun,
    AboveHighWatermark,
    BelowLowWatermark,
    /// Replicas are stepped towards a watermark.
    ConvergeToWatermark,
    /// Scaling is blocked by a monitor or an alert.
    ScalingBlocked,
    /// Some annotations are invalid and ignored. Not in upstream.
    AnnotationsIgnored,
    /// The spec is valid, but probably not what its author meant. Not in upstream.
    SpecDoubtful,
}

impl ConditionType {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The label value of the gauge that exports the condition, if it is exported.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::AbleToScale => Some("able_to_scale"),
            Self::ScalingLimited => Some("scaling_limited"),
            Self::ScalingBlocked => Some("scaling_blocked"),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    pub condition_type: ConditionType,
    /// Whether the status is `True`.
    pub holds: bool,
    /// The reason, in CamelCase where upstream's is.
    pub reason: String,
    pub message: String,
}

/// The longest message of a condition, in bytes. Messages are rewritten with each status update and returned with each
/// list of objects, and some quote user input.
const MAX_MESSAGE_BYTES: usize = 4096;

fn truncated(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push_str("...");
    }
    message
}

impl ConditionUpdate {
    pub fn new(
        condition_type: ConditionType,
        holds: bool,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { condition_type, holds, reason: reason.into(), message: truncated(message.into()) }
    }

    /// What upstream sets on every object before it is reconciled. Plimsoll sets it only if reconciling failed.
    pub fn unprocessed() -> [Self; 2] {
        let message = "Error happened while processing the WPA";
        [ConditionType::ScalingActive, ConditionType::AbleToScale]
            .map(|condition_type| Self::new(condition_type, false, "FailedProcessWPA", message))
    }

    /// It is unknown whether a scale update was applied.
    pub fn indeterminate(why: &str) -> Self {
        let message = format!("outcome of the scale update is unknown: {why}");
        Self::new(ConditionType::AbleToScale, false, INDETERMINATE, message)
    }

    pub fn dry_run(is_on: bool) -> Self {
        let (reason, message) = if is_on {
            ("DryRun mode enabled", "Scaling changes won't be applied")
        } else {
            ("DryRun mode disabled", "Scaling changes can be applied")
        };
        Self::new(ConditionType::DryRun, is_on, reason, message)
    }

    pub fn above_high_watermark(holds: bool) -> Self {
        let message = "Allow upscaling if the value stays over the Watermark";
        Self::new(ConditionType::AboveHighWatermark, holds, "Value above High Watermark", message)
    }

    /// Whether a metric is below its band. The reason says "above", as upstream's does.
    pub fn below_low_watermark(holds: bool) -> Self {
        let message = "Allow downscaling if the value stays under the Watermark";
        Self::new(ConditionType::BelowLowWatermark, holds, "Value above Low Watermark", message)
    }

    /// A scale update is about to be sent.
    pub fn ready_for_scale() -> Self {
        let message = "the last scaling time was sufficiently old as to warrant a new scale";
        Self::new(ConditionType::AbleToScale, true, PENDING, message)
    }

    /// Which forbidden windows are open; `None` if none is.
    pub fn backoff(remaining: CooldownRemaining) -> Option<Self> {
        let (reason, which) = match (remaining.up > 0.0, remaining.down > 0.0) {
            (true, true) => ("BackoffBoth", "both the downscale and upscale forbidden windows"),
            (true, false) => ("BackoffUpscale", "the upscale forbidden window"),
            (false, true) => ("BackoffDownscale", "the downscale forbidden window"),
            (false, false) => return None,
        };
        let message = format!("the time since the previous scale is still within {which}");
        Some(Self::new(ConditionType::AbleToScale, false, reason, message))
    }

    pub fn convergence(convergence: Convergence) -> Self {
        const HIGH: &str = "Allow downscaling to converge to the High Watermark";
        const LOW: &str = "Allow upscaling to converge to the Low Watermark";
        const OUTSIDE: &str = "Converging to Watermark only allowed in stable regime";
        const UNSTABLE: &str = "Proposal could lead to an unstable regime";
        const BETWEEN: &str = "Value between Watermarks";
        let (holds, reason, message) = match convergence {
            Convergence::Outside(Position::Below) => (false, OUTSIDE, OUTSIDE),
            Convergence::Outside(_) => (false, HIGH, OUTSIDE),
            Convergence::WouldOvershoot(ConvergeTowards::High) => (false, HIGH, UNSTABLE),
            Convergence::Step(ConvergeTowards::High) => (true, HIGH, BETWEEN),
            Convergence::WouldOvershoot(ConvergeTowards::Low) => (false, LOW, UNSTABLE),
            Convergence::Step(ConvergeTowards::Low) => (true, LOW, BETWEEN),
            Convergence::Off => (false, "Feature not enabled", BETWEEN),
        };
        Self::new(ConditionType::ConvergeToWatermark, holds, reason, message)
    }
}

/// Whether a condition is `True`, and its last transition. A missing condition is `False` since the epoch.
pub fn condition_since(
    status: &WatermarkPodAutoscalerStatus,
    condition_type: ConditionType,
) -> StateSince {
    let found =
        status.conditions.iter().find(|condition| condition.kind == condition_type.into_str());
    found.map_or(StateSince { holds: false, at: Time::EPOCH }, |condition| StateSince {
        holds: condition.status == "True",
        at: condition.last_transition_time.as_ref().map_or(Time::EPOCH, from_timestamp),
    })
}

/// Sets a condition in the list: the transition time changes only with the status, and the latest transition is first.
pub fn set_condition(
    status: &mut WatermarkPodAutoscalerStatus,
    update: &ConditionUpdate,
    now: Time,
) {
    let status_text = if update.holds { "True" } else { "False" };
    let name = update.condition_type.into_str();
    let index = status.conditions.iter().position(|condition| condition.kind == name);
    let mut condition = index.map_or_else(
        || Condition { kind: name.to_owned(), ..Condition::default() },
        |index| status.conditions.remove(index),
    );
    let unchanged_index = index.filter(|_| condition.status == status_text);
    if unchanged_index.is_none() {
        status_text.clone_into(&mut condition.status);
        condition.last_transition_time = Some(to_timestamp(now));
    }
    condition.reason.clone_from(&update.reason);
    condition.message.clone_from(&update.message);
    // Times have whole seconds: insert first, so that the stable sort keeps the later transition of one second first.
    status.conditions.insert(unchanged_index.unwrap_or(0), condition);
    status.conditions.sort_by_key(|entry| {
        Reverse(entry.last_transition_time.as_ref().map_or(Time::EPOCH, from_timestamp))
    });
    name.clone_into(&mut status.last_condition_type);
    status_text.clone_into(&mut status.last_condition_state);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn ago(minutes: u64) -> Time {
        NOW.earlier(Duration::from_mins(minutes))
    }

    /// Vectors M1 to M3.
    #[test]
    fn the_last_changed_condition_is_first_and_unchanged_ones_keep_their_time() {
        let mut status = WatermarkPodAutoscalerStatus::default();
        set_condition(&mut status, &ConditionUpdate::dry_run(false), ago(10));
        set_condition(&mut status, &ConditionUpdate::above_high_watermark(false), ago(2));
        let order = |status: &WatermarkPodAutoscalerStatus| {
            status.conditions.iter().map(|one| one.kind.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(&status), ["AboveHighWatermark", "DryRun"]);
        set_condition(&mut status, &ConditionUpdate::dry_run(false), NOW);
        assert_eq!(
            condition_since(&status, ConditionType::DryRun),
            StateSince { holds: false, at: ago(10) }
        );
        assert_eq!(status.last_condition_type, "DryRun");
        set_condition(&mut status, &ConditionUpdate::dry_run(true), NOW);
        assert_eq!(order(&status), ["DryRun", "AboveHighWatermark"]);
        assert_eq!(
            condition_since(&status, ConditionType::DryRun),
            StateSince { holds: true, at: NOW }
        );
        assert_eq!(
            condition_since(&status, ConditionType::ScalingActive),
            StateSince { holds: false, at: Time::EPOCH }
        );
    }
}
