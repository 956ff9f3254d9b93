//! The conditions of an object: which there are, in upstream's words, and how the list is kept.

use std::cmp::Reverse;

use crate::types::Time;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time as Stamp, jiff};

use super::{
    band::Position,
    converge::{ConvergeTowards, Convergence},
    cooldown::{Backoff, StateSince},
    pending_scale::{INDETERMINATE, PENDING},
};
use crate::api::wpa::{Condition, WatermarkPodAutoscalerStatus};

/// Which facts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// The target can be read and written.
    AbleToScale,
    /// A number of replicas can be worked out.
    ScalingActive,
    /// A proposal ran into a limit.
    ScalingLimited,
    /// Nothing is changed.
    DryRun,
    /// A metric is above its band.
    AboveHighWatermark,
    /// A metric is below its band.
    BelowLowWatermark,
    /// Replicas go towards a mark.
    ConvergeToWatermark,
    /// Something else does not let it go on.
    ScalingBlocked,
    /// Some of its annotations make no sense: ours alone.
    AnnotationsIgnored,
    /// It can be followed, and is hardly what was meant: ours alone.
    SpecDoubtful,
}

impl ConditionType {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::AbleToScale,
        Self::ScalingActive,
        Self::ScalingLimited,
        Self::DryRun,
        Self::AboveHighWatermark,
        Self::BelowLowWatermark,
        Self::ConvergeToWatermark,
        Self::ScalingBlocked,
        Self::AnnotationsIgnored,
        Self::SpecDoubtful,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbleToScale => "AbleToScale",
            Self::ScalingActive => "ScalingActive",
            Self::ScalingLimited => "ScalingLimited",
            Self::DryRun => "DryRun",
            Self::AboveHighWatermark => "AboveHighWatermark",
            Self::BelowLowWatermark => "BelowLowWatermark",
            Self::ConvergeToWatermark => "ConvergeToWatermark",
            Self::ScalingBlocked => "ScalingBlocked",
            Self::AnnotationsIgnored => "AnnotationsIgnored",
            Self::SpecDoubtful => "SpecDoubtful",
        }
    }

    /// The label of the gauge that shows it, if one does.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::AbleToScale => Some("able_to_scale"),
            Self::ScalingLimited => Some("scaling_limited"),
            Self::ScalingBlocked => Some("scaling_blocked"),
            _ => None,
        }
    }
}

/// One fact, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Which.
    pub condition_type: ConditionType,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in short.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// The longest message of a condition, in bytes. It is written again with each change, and read by everybody who lists
/// objects; what users write is quoted in some.
const MAX_MESSAGE_BYTES: usize = 4096;

/// A message, without what is too much of it.
fn truncated(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push_str("...");
    }
    message
}

impl ConditionUpdate {
    /// A fact with its reason.
    pub fn new(
        fact: ConditionType,
        holds: bool,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition_type: fact,
            holds,
            reason: reason.into(),
            message: truncated(message.into()),
        }
    }

    /// What upstream says of every object before it looks at it; ours says it of one that it could not look at.
    pub fn unprocessed() -> [Self; 2] {
        let message = "Error happened while processing the WPA";
        [ConditionType::ScalingActive, ConditionType::AbleToScale]
            .map(|fact| Self::new(fact, false, "FailedProcessWPA", message))
    }

    /// Nobody knows whether a change was made that was about to be.
    pub fn indeterminate(why: &str) -> Self {
        let message = format!("the answer leaves open whether replicas were changed: {why}");
        Self::new(ConditionType::AbleToScale, false, INDETERMINATE, message)
    }

    /// Whether the target is left as it is.
    pub fn dry_run(is_on: bool) -> Self {
        let (reason, message) = if is_on {
            ("DryRun mode enabled", "Scaling changes won't be applied")
        } else {
            ("DryRun mode disabled", "Scaling changes can be applied")
        };
        Self::new(ConditionType::DryRun, is_on, reason, message)
    }

    /// Whether a metric is above its band.
    pub fn above_high_watermark(holds: bool) -> Self {
        let message = "Allow upscaling if the value stays over the Watermark";
        Self::new(ConditionType::AboveHighWatermark, holds, "Value above High Watermark", message)
    }

    /// Whether a metric is below its band. The reason is upstream's, whose slip it is.
    pub fn below_low_watermark(holds: bool) -> Self {
        let message = "Allow downscaling if the value stays under the Watermark";
        Self::new(ConditionType::BelowLowWatermark, holds, "Value above Low Watermark", message)
    }

    /// A change is about to be made.
    pub fn ready_for_scale() -> Self {
        let message = "the last scaling time was sufficiently old as to warrant a new scale";
        Self::new(ConditionType::AbleToScale, true, PENDING, message)
    }

    /// Which windows are open.
    pub fn backoff(backoff: Backoff) -> Self {
        let (reason, which) = match backoff {
            Backoff::Downscale => ("BackoffDownscale", "within the downscale forbidden window"),
            Backoff::Upscale => ("BackoffUpscale", "within the upscale forbidden window"),
            Backoff::Both => {
                ("BackoffBoth", "within both the downscale and upscale forbidden windows")
            }
        };
        let message = format!("the time since the previous scale is still {which}");
        Self::new(ConditionType::AbleToScale, false, reason, message)
    }

    /// What came of going towards a mark.
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

/// Times of objects have no fractions.
pub fn to_timestamp(at: Time) -> Stamp {
    Stamp(jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default())
}

/// The time that a stamp says.
pub fn from_timestamp(stamp: &Stamp) -> Time {
    Time::from_secs(stamp.0.as_second())
}

/// Whether a fact holds, and since when. What nobody ever said does not, and never did.
pub fn condition_since(status: &WatermarkPodAutoscalerStatus, fact: ConditionType) -> StateSince {
    let found = status.conditions.iter().find(|one| one.kind == fact.name());
    found.map_or(StateSince { holds: false, at: Time::EPOCH }, |one| StateSince {
        holds: one.status == "True",
        at: one.last_transition_time.as_ref().map_or(Time::EPOCH, from_timestamp),
    })
}

/// Writes a fact into the list: the time changes only with the answer, and what changed last stands first.
pub fn set_condition(status: &mut WatermarkPodAutoscalerStatus, said: &ConditionUpdate, now: Time) {
    let answer = if said.holds { "True" } else { "False" };
    let name = said.condition_type.name();
    let place = status.conditions.iter().position(|one| one.kind == name);
    let mut condition = place.map_or_else(
        || Condition { kind: name.to_owned(), ..Condition::default() },
        |place| status.conditions.remove(place),
    );
    let kept = place.filter(|_| condition.status == answer);
    if kept.is_none() {
        answer.clone_into(&mut condition.status);
        condition.last_transition_time = Some(to_timestamp(now));
    }
    condition.reason.clone_from(&said.reason);
    condition.message.clone_from(&said.message);
    // Times have no fractions: what changed later in the same second stands first all the same.
    status.conditions.insert(kept.unwrap_or(0), condition);
    status.conditions.sort_by_key(|one| {
        Reverse(one.last_transition_time.as_ref().map_or(Time::EPOCH, from_timestamp))
    });
    name.clone_into(&mut status.last_condition_type);
    answer.clone_into(&mut status.last_condition_state);
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
    fn what_changed_last_stands_first_and_what_did_not_change_keeps_its_time() {
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
