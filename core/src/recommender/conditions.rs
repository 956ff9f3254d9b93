//! Merges the conditions that a recommender sets into the existing ones of a VPA.

use super::plan::PlanProfile;
use crate::types::Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;

use crate::api::{
    annotations::InvalidAnnotation,
    condition_message::{MAX_MESSAGE_BYTES, truncate},
    vpa::Condition,
};

/// The VPA has a recommendation.
pub const RECOMMENDATION_PROVIDED: &str = "RecommendationProvided";
pub const NO_PODS_MATCHED: &str = "NoPodsMatched";
/// The target cannot be resolved.
pub const CONFIG_UNSUPPORTED: &str = "ConfigUnsupported";
/// Deprecated: no longer set, and removed.
pub const CONFIG_DEPRECATED: &str = "ConfigDeprecated";
/// The stored history is still being loaded. Recommenders do not write it while this is set.
pub const FETCHING_HISTORY: &str = "FetchingHistory";
/// The history server has no series of the VPA's pods, though it has others of the namespace. Not upstream's.
pub const HISTORY_NOT_FOUND: &str = "HistoryNotFound";
/// Invalid annotations are ignored. Not upstream's.
pub const ANNOTATIONS_IGNORED: &str = "AnnotationsIgnored";
/// The recommendation is capped because it exceeds what a pod may have. Not upstream's.
pub const RECOMMENDATION_CAPPED: &str = "RecommendationCapped";

/// The requests of all containers are planned by the profile in the reason. The updater then changes pods only if their
/// requests are outside of the bounds. Not upstream's.
pub const REQUESTS_PLANNED: &str = "RequestsPlanned";

const READING_HISTORY: (&str, &str) =
    ("Reading", "Loading the stored history; the previous recommendation is kept");
const WITHOUT_HISTORY: (&str, &str) = (
    "Unavailable",
    "The stored history is not available; the recommendation is based on usage since the recommender started",
);
const NO_SERIES: (&str, &str) = (
    "NoSeriesOfPods",
    "Prometheus has series of this namespace, but none of this VPA's pods: the recommendation starts from live usage. \
     Run `plimsoll doctor` to compare its series with the pods",
);
const PLANNED_MESSAGE: &str =
    "Requests are planned; a change within the bounds would save less than its price";
const NO_PODS_MESSAGE: &str = "No pods match this VPA object";

#[derive(Clone, Copy, Debug, Default)]
pub struct ConditionInput<'a> {
    pub pods: usize,
    /// Whether any container has a recommendation.
    pub recommended: bool,
    /// Why the target is not supported.
    pub unsupported: Option<&'a str>,
    pub ignored: &'a [InvalidAnnotation],
    /// Reason and message if targets are capped to the maximum of a pod.
    pub pod_cap: Option<(&'a str, &'a str)>,
    /// Whether the stored history is still to be loaded; `None` leaves the condition as it is, as upstream does.
    pub fetching: Option<bool>,
    /// The profile by which all requests are planned.
    pub planned_by: Option<PlanProfile>,
    /// Whether no history was found although there should be some.
    pub not_found: bool,
}

/// Returns the merged conditions, ordered by type. Conditions of other controllers stay; a transition time only
/// changes with the status.
pub fn merge(known: &[Condition], now: Time, input: &ConditionInput<'_>) -> Vec<Condition> {
    let mut merged = ConditionMerger { conditions: known.to_vec(), now };
    let ConditionInput { pods, recommended, unsupported, ignored, pod_cap, fetching, .. } = *input;
    let reason = if pods == 0 { NO_PODS_MATCHED } else { "" };
    let message = if pods == 0 { NO_PODS_MESSAGE } else { "" };
    if recommended {
        merged.set(RECOMMENDATION_PROVIDED, true, "", "");
    } else {
        merged.set(RECOMMENDATION_PROVIDED, false, reason, message);
    }
    merged.set_true_or_remove(
        NO_PODS_MATCHED,
        (pods == 0).then_some((NO_PODS_MATCHED, NO_PODS_MESSAGE)),
    );
    merged.set_true_or_remove(CONFIG_UNSUPPORTED, unsupported.map(|message| ("", message)));
    merged.set_true_or_remove(CONFIG_DEPRECATED, None);
    let lines: Vec<String> = ignored.iter().map(ToString::to_string).collect();
    let lines = lines.join("; ");
    merged.set_true_or_remove(
        ANNOTATIONS_IGNORED,
        (!lines.is_empty()).then_some(("BadValue", &lines)),
    );
    merged.set_true_or_remove(RECOMMENDATION_CAPPED, pod_cap);
    let planned_by = input.planned_by.map(|profile| match profile {
        PlanProfile::Steady => "Steady",
        PlanProfile::Balanced => "Balanced",
        PlanProfile::Tide => "Tide",
    });
    merged.set_true_or_remove(REQUESTS_PLANNED, planned_by.map(|name| (name, PLANNED_MESSAGE)));
    if let Some(fetching) = fetching {
        merged.set_true_or_remove(FETCHING_HISTORY, fetching.then_some(WITHOUT_HISTORY));
        merged.set_true_or_remove(HISTORY_NOT_FOUND, input.not_found.then_some(NO_SERIES));
    }
    merged.sorted()
}

pub fn are_requests_planned(conditions: &[Condition]) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|known| known.kind == REQUESTS_PLANNED && known.status == "True")
}

/// Returns the conditions of a VPA whose history is being loaded.
pub fn mark_fetching_history(known: &[Condition], now: Time) -> Vec<Condition> {
    let mut merged = ConditionMerger { conditions: known.to_vec(), now };
    merged.set_true_or_remove(FETCHING_HISTORY, Some(READING_HISTORY));
    merged.sorted()
}

struct ConditionMerger {
    conditions: Vec<Condition>,
    now: Time,
}

impl ConditionMerger {
    fn sorted(mut self) -> Vec<Condition> {
        self.conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
        self.conditions
    }

    fn set_true_or_remove(&mut self, kind: &str, reason_and_message: Option<(&str, &str)>) {
        match reason_and_message {
            Some((reason, message)) => self.set(kind, true, reason, message),
            None => self.conditions.retain(|known| known.kind != kind),
        }
    }

    fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        // The API server stores times in whole seconds.
        let now = MetaTime(Time::from_secs(self.now.as_secs()).into());
        let index = self.conditions.iter().position(|known| known.kind == kind);
        let index = index.unwrap_or_else(|| {
            self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
            self.conditions.len() - 1
        });
        let condition = &mut self.conditions[index];
        if condition.status != status {
            status.clone_into(&mut condition.status);
            condition.last_transition_time = Some(now);
        }
        reason.clone_into(&mut condition.reason);
        condition.message = truncate(message, MAX_MESSAGE_BYTES).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(conditions: &[Condition]) -> Vec<(&str, &str, &str)> {
        conditions
            .iter()
            .map(|condition| (&*condition.kind, &*condition.status, &*condition.reason))
            .collect()
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let (one, two) = (Time::from_secs(100), Time::from_secs(200));
        let none = merge(&[], one, &ConditionInput::default());
        assert_eq!(
            kinds(&none),
            [
                (NO_PODS_MATCHED, "True", NO_PODS_MATCHED),
                (RECOMMENDATION_PROVIDED, "False", NO_PODS_MATCHED)
            ]
        );
        let with_pod = ConditionInput { pods: 1, ..ConditionInput::default() };
        let matched = merge(&none, two, &with_pod);
        assert_eq!(kinds(&matched), [(RECOMMENDATION_PROVIDED, "False", "")]);
        assert_eq!(matched[0].last_transition_time, none[1].last_transition_time);
        let provided = merge(&matched, two, &ConditionInput { recommended: true, ..with_pod });
        assert_eq!(kinds(&provided), [(RECOMMENDATION_PROVIDED, "True", "")]);
        assert_ne!(provided[0].last_transition_time, matched[0].last_transition_time);
    }

    #[test]
    fn planned_requests_have_a_condition_with_their_profile() {
        let input = ConditionInput { pods: 1, recommended: true, ..ConditionInput::default() };
        let planned = ConditionInput { planned_by: Some(PlanProfile::Tide), ..input };
        let conditions = merge(&[], Time::EPOCH, &planned);
        assert!(kinds(&conditions).contains(&(REQUESTS_PLANNED, "True", "Tide")));
        assert!(are_requests_planned(&conditions));
        let conditions = merge(&conditions, Time::EPOCH, &input);
        assert_eq!(kinds(&conditions), [(RECOMMENDATION_PROVIDED, "True", "")]);
        assert!(!are_requests_planned(&conditions));
        let unknown = Condition {
            kind: REQUESTS_PLANNED.into(),
            status: "Unknown".into(),
            ..Condition::default()
        };
        assert!(!are_requests_planned(&[unknown]));
    }

    #[test]
    fn quoted_user_input_in_messages_is_short() {
        let invalid =
            |key| InvalidAnnotation { key, value: "x".repeat(100_000), wanted: "a number" };
        let ignored = ["a", "b", "c", "d", "e"].map(invalid);
        let unsupported = "y".repeat(100_000);
        let input = ConditionInput {
            ignored: &ignored,
            unsupported: Some(&unsupported),
            ..ConditionInput::default()
        };
        let merged = merge(&[], Time::EPOCH, &input);
        let message = |kind: &str| {
            let of_kind = |condition: &&Condition| condition.kind == kind;
            merged.iter().find(of_kind).expect("the condition exists").message.clone()
        };
        assert!(message(CONFIG_UNSUPPORTED).ends_with("… (100000 bytes)"));
        let of_annotations = message(ANNOTATIONS_IGNORED);
        assert!(of_annotations.starts_with("annotation a: `xxx"), "{of_annotations}");
        assert!(of_annotations.contains("annotation c: `xxx"), "each is quoted a little");
        let longest = merged.iter().map(|condition| condition.message.len()).max();
        assert!(longest <= Some(MAX_MESSAGE_BYTES), "{longest:?}");
    }

    #[test]
    fn foreign_conditions_stay_and_the_deprecated_one_is_removed() {
        let other = |kind: &str| Condition {
            kind: kind.into(),
            status: "Unknown".into(),
            message: "theirs".into(),
            ..Condition::default()
        };
        let known = [other("Zebra"), other(CONFIG_DEPRECATED), other("Aardvark")];
        let merged = merge(
            &known,
            Time::EPOCH,
            &ConditionInput { unsupported: Some("no such thing"), ..ConditionInput::default() },
        );
        let names: Vec<&str> = merged.iter().map(|condition| &*condition.kind).collect();
        let expected =
            ["Aardvark", CONFIG_UNSUPPORTED, NO_PODS_MATCHED, RECOMMENDATION_PROVIDED, "Zebra"];
        assert_eq!(names, expected);
        assert_eq!(merged[0], known[2]);
        assert_eq!(merged[1].message, "no such thing");
    }
}
