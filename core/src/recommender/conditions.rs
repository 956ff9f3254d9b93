//! The conditions of a VPA that a recommender sets, merged into those that are there.

use crate::types::Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;

use crate::api::{
    annotations::InvalidAnnotation,
    message::{MAX_MESSAGE_BYTES, truncate},
    vpa::Condition,
};

/// There is a recommendation.
pub const RECOMMENDATION_PROVIDED: &str = "RecommendationProvided";
/// No pod is matched.
pub const NO_PODS_MATCHED: &str = "NoPodsMatched";
/// The target cannot be resolved.
pub const CONFIG_UNSUPPORTED: &str = "ConfigUnsupported";
/// Set by nobody any more; taken away.
pub const CONFIG_DEPRECATED: &str = "ConfigDeprecated";
/// The stored history is still being read. Who sees it leaves the stored history alone.
pub const FETCHING_HISTORY: &str = "FetchingHistory";
/// The server that history is read from has none of the pods, though it has others of the namespace: ours.
pub const HISTORY_NOT_FOUND: &str = "HistoryNotFound";
/// Annotations that make no sense are ignored: ours.
pub const ANNOTATIONS_IGNORED: &str = "AnnotationsIgnored";
/// A pod may not have all that its containers need: ours.
pub const RECOMMENDATION_CAPPED: &str = "RecommendationCapped";

const READING_HISTORY: (&str, &str) =
    ("Reading", "The stored history is being read; what was recommended before stays");
const WITHOUT_HISTORY: (&str, &str) = (
    "Unavailable",
    "The stored history cannot be read now; the recommendation rests on what was seen since the start",
);
const NO_SERIES: (&str, &str) = (
    "NoSeriesOfPods",
    "The Prometheus has series of this namespace, but none of the pods of this VPA: the recommendation starts from live usage. \
     Run `plimsoll doctor` to compare its series with the pods",
);
const NO_PODS_MESSAGE: &str = "No pods match this VPA object";

/// What the conditions follow from.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConditionInput<'a> {
    /// Number of pods that match.
    pub pods: usize,
    /// Whether any container has a recommendation.
    pub recommended: bool,
    /// What is wrong with the target.
    pub unsupported: Option<&'a str>,
    /// Annotations that were ignored.
    pub ignored: &'a [InvalidAnnotation],
    /// Who holds targets down that a pod has no room for, and what it may have.
    pub pod_cap: Option<(&'a str, &'a str)>,
    /// Whether the stored history is still to be read; `None` leaves what is said of that as it is, as upstream does.
    pub fetching: Option<bool>,
    /// Whether no history was found where there should be one.
    pub not_found: bool,
}

/// The conditions as they are to be, ordered by type. Those of others stay; a time moves only when a status
/// flips.
pub fn merge(known: &[Condition], now: Time, circumstances: &ConditionInput<'_>) -> Vec<Condition> {
    let mut merged = ConditionMerger { conditions: known.to_vec(), now };
    let ConditionInput {
        pods,
        recommended,
        unsupported,
        ignored,
        pod_cap: room,
        fetching,
        not_found,
    } = *circumstances;
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
    merged.set_true_or_remove(RECOMMENDATION_CAPPED, room);
    if let Some(fetching) = fetching {
        merged.set_true_or_remove(FETCHING_HISTORY, fetching.then_some(WITHOUT_HISTORY));
        merged.set_true_or_remove(HISTORY_NOT_FOUND, not_found.then_some(NO_SERIES));
    }
    merged.sorted()
}

/// The conditions of a VPA about which nothing else is said yet than that its history is being read.
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
        self.conditions.sort_by(|one, other| one.kind.cmp(&other.kind));
        self.conditions
    }

    /// True with these words, or gone.
    fn set_true_or_remove(&mut self, kind: &str, words: Option<(&str, &str)>) {
        match words {
            Some((reason, message)) => self.set(kind, true, reason, message),
            None => self.conditions.retain(|known| known.kind != kind),
        }
    }

    fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        // Objects tell times to the second.
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
        conditions.iter().map(|one| (&*one.kind, &*one.status, &*one.reason)).collect()
    }

    #[test]
    fn a_time_moves_only_when_a_status_flips() {
        let (one, two) = (Time::from_secs(100), Time::from_secs(200));
        let none = merge(&[], one, &ConditionInput::default());
        assert_eq!(
            kinds(&none),
            [
                (NO_PODS_MATCHED, "True", NO_PODS_MATCHED),
                (RECOMMENDATION_PROVIDED, "False", NO_PODS_MATCHED)
            ]
        );
        let still = ConditionInput { pods: 1, ..ConditionInput::default() };
        let matched = merge(&none, two, &still);
        assert_eq!(kinds(&matched), [(RECOMMENDATION_PROVIDED, "False", "")]);
        assert_eq!(matched[0].last_transition_time, none[1].last_transition_time);
        let provided = merge(&matched, two, &ConditionInput { recommended: true, ..still });
        assert_eq!(kinds(&provided), [(RECOMMENDATION_PROVIDED, "True", "")]);
        assert_ne!(provided[0].last_transition_time, matched[0].last_transition_time);
    }

    #[test]
    fn a_message_that_quotes_what_a_user_wrote_is_short() {
        let bad = |key| InvalidAnnotation { key, value: "x".repeat(100_000), wanted: "a number" };
        let ignored = ["a", "b", "c", "d", "e"].map(bad);
        let unsupported = "y".repeat(100_000);
        let circumstances = ConditionInput {
            ignored: &ignored,
            unsupported: Some(&unsupported),
            ..ConditionInput::default()
        };
        let merged = merge(&[], Time::EPOCH, &circumstances);
        let message = |kind: &str| {
            let of_kind = |one: &&Condition| one.kind == kind;
            merged.iter().find(of_kind).expect("is there").message.clone()
        };
        assert!(message(CONFIG_UNSUPPORTED).ends_with("… (100000 bytes)"));
        let of_annotations = message(ANNOTATIONS_IGNORED);
        assert!(of_annotations.starts_with("annotation a: `xxx"), "{of_annotations}");
        assert!(of_annotations.contains("annotation c: `xxx"), "each is quoted a little");
        let longest = merged.iter().map(|one| one.message.len()).max();
        assert!(longest <= Some(MAX_MESSAGE_BYTES), "{longest:?}");
    }

    #[test]
    fn conditions_of_others_stay_and_the_deprecated_one_goes() {
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
        let names: Vec<&str> = merged.iter().map(|one| &*one.kind).collect();
        let expected =
            ["Aardvark", CONFIG_UNSUPPORTED, NO_PODS_MATCHED, RECOMMENDATION_PROVIDED, "Zebra"];
        assert_eq!(names, expected);
        assert_eq!(merged[0], known[2]);
        assert_eq!(merged[1].message, "no such thing");
    }
}
