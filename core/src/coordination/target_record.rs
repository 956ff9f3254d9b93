//! The target of an object that another controller scales, while the requests that it is relative to change: whether it may be
//! changed with them, and what is recorded of it on the object.
//!
//! The scale point has to stay what the user meant. It can no longer be read from the target once that was changed, so the first
//! change records it, together with the target of the user. From then on the record counts, until the user writes another
//! target or another request in the pod template.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    RequestRange, Resource, ScalePoint, ScalePointSource,
    request_range::{MAX_TARGET_PERCENT, MIN_TARGET_PERCENT},
    scaled,
};
use crate::{api::annotations::MAX_VALUE_BYTES, types::Time};

/// After this many resets within [`RESET_PERIOD`], the target is left alone: another client, such as a GitOps controller,
/// keeps writing it.
const MAX_RESETS: usize = 2;
/// See [`MAX_RESETS`].
const RESET_PERIOD: Duration = Duration::from_hours(1);

/// What is recorded of the targets of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRecord {
    pub metrics: Vec<RecordedTarget>,
    /// When another client wrote the target of the user again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resets: Vec<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedTarget {
    pub resource: Resource,
    /// The container; `None` for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<str>>,
    /// The scale point in milli-units.
    pub scale_point: i64,
    /// The request in the pod template that it is derived from, in milli-units.
    pub template: i64,
    /// The target of the user in percent.
    pub original: i32,
    pub written: i32,
}

/// What an object shows of its targets, for a rule that changes them together with the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTargets {
    /// What is recorded of them.
    pub record: TargetRecord,
    /// Kind and name of the controller that owns the object.
    pub owner: Option<(Box<str>, Box<str>)>,
    /// Whether the replicas follow nothing but these targets while the HPA controller of the cluster acts.
    pub may_follow: bool,
}

/// A target that has to be written before requests change, or after they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetChange {
    /// The name of the HorizontalPodAutoscaler.
    pub hpa: Box<str>,
    /// The target that the decision was based on.
    pub target: RecordedTarget,
    /// The new target in percent.
    pub percent: i32,
}

/// The target of a metric, as the object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentTarget<'a> {
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<&'a str>,
    pub percent: i32,
}

/// Why a target is not changed together with the requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetargetRefusal {
    #[error("{kind} {name} owns the object and writes its spec")]
    Owned { kind: String, name: String },
    #[error(
        "another client has written the original target again {count} times within an hour; exclude the target from what it writes"
    )]
    Reset { count: usize },
    #[error("the request in the pod template is unknown")]
    NoScalePoint,
    /// The target is relative to requests that the pod template does not have.
    #[error(
        "pods have containers that are not in the pod template; use a ContainerResource metric, which does not count them"
    )]
    OtherContainers,
}

/// A target that may be changed together with the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retargetable {
    /// What is known of it. `written` is the current target.
    pub target: RecordedTarget,
    /// Whether another client has written the target of the user again.
    pub was_reset: bool,
    /// Whether the target of the object is the recorded one.
    pub is_recorded: bool,
}

impl TargetRecord {
    /// Reads an annotation. One that cannot be read counts as missing: the targets of the object are then those of the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_VALUE_BYTES {
            return Err(format!("it has {} bytes, more than {MAX_VALUE_BYTES}", text.len()));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn find(&self, current: CurrentTarget<'_>) -> Option<&RecordedTarget> {
        self.metrics.iter().find(|one| {
            one.resource == current.resource && one.container.as_deref() == current.container
        })
    }

    /// The target of the user: that of the object, unless it was changed together with the requests.
    pub fn original(&self, current: CurrentTarget<'_>) -> i32 {
        let recorded = self.find(current).filter(|recorded| recorded.written == current.percent);
        recorded.map_or(current.percent, |recorded| recorded.original)
    }

    /// Whether the target of the object is one that was changed together with the requests.
    pub fn has_written(&self, current: CurrentTarget<'_>) -> bool {
        self.find(current).is_some_and(|recorded| recorded.written == current.percent)
    }

    /// Whether a target may be changed. `template` is the request in the pod template that it is relative to, and `owner` the
    /// kind and name of a controller that owns the object.
    pub fn review(
        &self,
        current: CurrentTarget<'_>,
        template: Option<i64>,
        owner: Option<(&str, &str)>,
        now: Time,
    ) -> Result<Retargetable, RetargetRefusal> {
        if let Some((kind, name)) = owner {
            return Err(RetargetRefusal::Owned { kind: kind.to_owned(), name: name.to_owned() });
        }
        let recorded = self.find(current);
        let percent = current.percent;
        let (original, was_reset) = match recorded {
            Some(recorded) if percent == recorded.written => (recorded.original, false),
            Some(recorded) if percent == recorded.original => (percent, true),
            // The first change, or the user has written another target.
            _ => (percent, false),
        };
        let count = self.recent_resets(now).count() + usize::from(was_reset);
        if count >= MAX_RESETS {
            return Err(RetargetRefusal::Reset { count });
        }
        let is_recorded = recorded.is_some_and(|recorded| {
            recorded.original == original && template.is_none_or(|now| now == recorded.template)
        });
        let kept = recorded.filter(|_| is_recorded).map(|one| (one.scale_point, one.template));
        let derived = || {
            let scale_point = ScalePoint::of(original, template, None)?;
            Some((scale_point.milli, template?))
        };
        let (scale_point, template) = kept.or_else(derived).ok_or(RetargetRefusal::NoScalePoint)?;
        let target = RecordedTarget {
            resource: current.resource,
            container: current.container.map(Into::into),
            scale_point,
            template,
            original,
            written: percent,
        };
        Ok(Retargetable { target, was_reset, is_recorded: self.has_written(current) })
    }

    fn recent_resets(&self, now: Time) -> impl Iterator<Item = Time> {
        self.resets.iter().copied().filter(move |at| at.later(RESET_PERIOD) > now)
    }

    /// The record with a target that is about to be written.
    #[must_use]
    pub fn with_target(&self, retargetable: &Retargetable, percent: i32, now: Time) -> Self {
        let Retargetable { target, was_reset, .. } = retargetable;
        let is_other = |one: &&RecordedTarget| {
            (one.resource, &one.container) != (target.resource, &target.container)
        };
        let mut metrics: Vec<_> = self.metrics.iter().filter(is_other).cloned().collect();
        metrics.push(RecordedTarget { written: percent, ..target.clone() });
        let resets = self.recent_resets(now).chain(was_reset.then_some(now)).collect();
        Self { metrics, resets }
    }
}

impl RecordedTarget {
    pub fn scale_point(&self) -> ScalePoint {
        ScalePoint { milli: self.scale_point, source: ScalePointSource::Template }
    }

    /// The range of the request within which the target can follow it.
    pub fn range(&self) -> RequestRange {
        RequestRange::for_utilization(self.scale_point())
    }

    /// The target in percent that belongs to a mean request of the pods. It is within the bounds, unless that of the user is
    /// not: then it approaches them as the requests do.
    pub fn percent(&self, mean_request: i64) -> i32 {
        let min = MIN_TARGET_PERCENT.min(self.original);
        let max = MAX_TARGET_PERCENT.max(self.original);
        let percent = scaled(self.scale_point, 100, mean_request);
        i32::try_from(percent.clamp(min.into(), max.into())).unwrap_or(max)
    }

    /// The target to write before a step changes the mean request: see [`super::retarget::target_for_step`].
    pub fn percent_for_step(&self, mean_before: i64, mean_after: i64) -> i32 {
        self.percent(mean_before.min(mean_after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::retarget::{target_for_step, target_percent};

    const NOW: Time = Time::from_secs(1_800_000_000);
    const MINUTE: Duration = Duration::from_mins(1);

    fn current(percent: i32) -> CurrentTarget<'static> {
        CurrentTarget { resource: Resource::Cpu, container: None, percent }
    }

    /// A target of 60 % of 500m in the template, that was changed to 75 % for requests of 400m.
    fn record() -> TargetRecord {
        let target = RecordedTarget {
            resource: Resource::Cpu,
            container: None,
            scale_point: 300,
            template: 500,
            original: 60,
            written: 75,
        };
        TargetRecord { metrics: vec![target], resets: Vec::new() }
    }

    #[test]
    fn the_scale_point_is_that_of_the_record_until_the_user_changes_target_or_template() {
        let none = TargetRecord::default();
        for (record, percent, template, scale_point, original, was_reset) in [
            (&none, 60, Some(500), 300, 60, false),
            // Ours.
            (&record(), 75, Some(500), 300, 60, false),
            // The template cannot be read for a moment.
            (&record(), 75, None, 300, 60, false),
            // The user edits the template: what was meant is the user's target, not the one that is written.
            (&record(), 75, Some(1000), 600, 60, false),
            // The user edits the target.
            (&record(), 80, Some(500), 400, 80, false),
            // Another client writes the user's target again.
            (&record(), 60, Some(500), 300, 60, true),
            (&record(), 60, Some(1000), 600, 60, true),
        ] {
            let found = record.review(current(percent), template, None, NOW).expect("allowed");
            let target = &found.target;
            assert_eq!(
                (target.scale_point, target.original, target.written, found.was_reset),
                (scale_point, original, percent, was_reset),
                "{percent} {template:?}"
            );
        }
        let unknown = none.review(current(60), None, None, NOW);
        assert_eq!(unknown, Err(RetargetRefusal::NoScalePoint));
        let edited = record().review(current(80), None, None, NOW);
        assert_eq!(edited, Err(RetargetRefusal::NoScalePoint), "the record is of another target");
    }

    #[test]
    fn an_object_of_another_controller_is_left_alone() {
        let owner = Some(("ScaledObject", "web"));
        let refusal = record().review(current(75), Some(500), owner, NOW).expect_err("refused");
        assert_eq!(refusal.to_string(), "ScaledObject web owns the object and writes its spec");
    }

    #[test]
    fn two_resets_within_an_hour_end_it_until_the_first_is_an_hour_old() {
        let mut stored = record();
        let review = |stored: &TargetRecord, percent, now| {
            stored.review(current(percent), Some(500), None, now)
        };
        let first = review(&stored, 60, NOW).expect("the first reset is tolerated");
        stored = stored.with_target(&first, 75, NOW);
        assert_eq!(stored.resets, [NOW]);
        assert!(review(&stored, 75, NOW).is_ok(), "it is ours again");
        let later = NOW.later(MINUTE * 59);
        assert_eq!(review(&stored, 60, later), Err(RetargetRefusal::Reset { count: 2 }));
        let next = NOW.later(MINUTE * 60);
        let second = review(&stored, 60, next).expect("the first one is forgotten");
        assert_eq!(stored.with_target(&second, 75, next).resets, [next]);
    }

    #[test]
    fn the_target_follows_the_request_within_its_range() {
        let found = record().review(current(75), Some(500), None, NOW).expect("allowed");
        let range = found.target.range();
        assert_eq!((range.min, range.max), (Some(316), Some(600)));
        let scale_point = found.target.scale_point();
        for (request, percent) in [(316, 95), (400, 75), (450, 67), (451, 67), (600, 50), (700, 50)]
        {
            assert_eq!(target_percent(scale_point, request), percent, "{request}");
        }
        // Of the lower mean request before and after the step.
        assert_eq!(target_for_step(scale_point, 500, 400), 75);
        assert_eq!(target_for_step(scale_point, 400, 500), 75);
    }

    #[test]
    fn a_target_of_the_user_beyond_the_bounds_stays_until_the_requests_are_within_their_range() {
        let of = |original: i32| {
            let found = TargetRecord::default().review(current(original), Some(500), None, NOW);
            found.expect("allowed").target
        };
        for (original, request, percent) in [
            // 200m of 500m; from 400m on it is within the bounds.
            (40, 500, 40),
            (40, 450, 44),
            (40, 400, 50),
            (40, 700, 40),
            (60, 700, 50),
            // 600m of 500m.
            (120, 500, 120),
            (120, 640, 94),
            (120, 400, 120),
            (60, 300, 95),
        ] {
            assert_eq!(of(original).percent(request), percent, "{original} {request}");
        }
        assert_eq!(of(60).percent_for_step(500, 400), 75);
        assert_eq!(of(60).percent_for_step(400, 500), 75);
    }

    #[test]
    fn the_target_of_the_user_is_the_recorded_one_while_ours_is_in_place() {
        for (percent, original, has_written) in [(75, 60, true), (60, 60, false), (80, 80, false)] {
            assert_eq!(record().original(current(percent)), original, "{percent}");
            assert_eq!(record().has_written(current(percent)), has_written, "{percent}");
        }
    }

    #[test]
    fn each_container_has_a_target_of_its_own() {
        let of = |container, percent| CurrentTarget {
            resource: Resource::Cpu,
            container: Some(container),
            percent,
        };
        let mut stored = TargetRecord::default();
        for (container, percent, template, written) in
            [("app", 60, 500, 75), ("proxy", 80, 100, 90), ("app", 75, 500, 70)]
        {
            let found = stored.review(of(container, percent), Some(template), None, NOW);
            stored = stored.with_target(&found.expect("allowed"), written, NOW);
        }
        let kept: Vec<_> = stored.metrics.iter().map(|one| (one.original, one.written)).collect();
        assert_eq!(kept, [(80, 90), (60, 70)]);
        let text = serde_json::to_string(&stored).expect("JSON");
        assert_eq!(TargetRecord::parse(&text), Ok(stored));
        assert!(TargetRecord::parse("{").is_err());
    }
}
