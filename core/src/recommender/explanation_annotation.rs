//! The annotation on a VPA that says why the numbers in its status are what they are.
//!
//! It is for those who cannot read the history: `plimsoll explain` has nothing else to go by where no
//! checkpoints are kept. It names the recommendation that it belongs to by a hash, so that nobody believes it
//! once the status says something else.

use std::sync::Arc;

use crate::types::Time;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{
    explanation::Explanation,
    pod_cap::PodLimits,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::api::{ResourceList, vpa};

/// Key of the annotation.
pub const ANNOTATION: &str = "plimsoll.dev/explanation";

/// Bytes that the annotation may have.
pub const MAX_BYTES: usize = crate::api::annotations::MAX_STATE_BYTES;

/// Number of the format. It changes when old readers would misunderstand.
const VERSION: u32 = 1;

/// Why an annotation does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplanationError {
    /// The recommendation was written by somebody else, or again, since.
    #[error("it belongs to a recommendation that is no longer in the status")]
    Stale,
    /// Another format.
    #[error("its version is {0} and only {VERSION} can be read")]
    Version(u32),
    /// No format at all.
    #[error("it cannot be read ({0})")]
    Unreadable(String),
}

/// What an annotation says. The numbers themselves are in the status.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredExplanation {
    /// When the numbers were worked out.
    pub at: Time,
    /// What all containers of a pod might have together.
    pub pod_limits: PodLimits,
    /// Why the numbers of each container are what they are. Not every container has to be there.
    pub containers: Vec<StoredContainer>,
}

/// Why the numbers of one container are what they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredContainer {
    /// Its name.
    pub name: Arc<str>,
    /// Why.
    #[serde(flatten)]
    pub explanation: Explanation,
}

#[derive(Serialize)]
struct WrittenExplanation<'a> {
    v: u32,
    of: &'a str,
    at: Time,
    #[serde(skip_serializing_if = "PodLimits::is_unlimited")]
    room: PodLimits,
    containers: &'a [WrittenContainer<'a>],
}

#[derive(Clone, Copy, Serialize)]
struct WrittenContainer<'a> {
    name: &'a str,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

impl<'a> From<&'a ContainerRecommendation> for WrittenContainer<'a> {
    fn from(said: &'a ContainerRecommendation) -> Self {
        Self { name: &said.container, explanation: &said.explanation }
    }
}

#[derive(Deserialize)]
struct ExplanationHeader {
    v: u32,
    of: String,
}

#[derive(Deserialize)]
struct ExplanationBody {
    at: Time,
    #[serde(default)]
    room: PodLimits,
    containers: Vec<StoredContainer>,
}

/// A hash over what a recommendation says, as it is parsed: containers by name, amounts as their values.
/// Annotations are bound to a status by it, so its bytes are part of their format.
pub fn recommendation_hash(said: &vpa::Recommendation) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    let mut containers: Vec<_> = said.container_recommendations.iter().collect();
    containers.sort_by(|one, other| one.container_name.cmp(&other.container_name));
    for one in containers {
        hash_text(&mut bytes, &one.container_name);
        for list in [&one.target, &one.lower_bound, &one.upper_bound, &one.uncapped_target] {
            hash_list(&mut bytes, list);
        }
    }
    XxHash3_64::oneshot(&bytes)
}

fn hash_list(bytes: &mut Vec<u8>, list: &ResourceList) {
    bytes.extend_from_slice(&(list.iter().count() as u64).to_le_bytes());
    for (name, amount) in list.iter() {
        hash_text(bytes, name.as_str());
        bytes.extend_from_slice(&amount.nanos().to_le_bytes());
    }
}

fn hash_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// The annotation for what was said at this time, with the hash of it as an object shows it. Of very many
/// containers only the first are explained, as many as fit. `None` when there is nothing to explain.
pub fn write(said: &Recommendation, fingerprint: u64, room: PodLimits, at: Time) -> Option<String> {
    let of = format!("{fingerprint:016x}");
    let all: Vec<WrittenContainer<'_>> = said.containers.iter().map(Into::into).collect();
    let text = |containers: &[WrittenContainer<'_>]| {
        let written = WrittenExplanation { v: VERSION, of: &of, at, room, containers };
        serde_json::to_string(&written).ok()
    };
    if all.is_empty() {
        return None;
    }
    if let Some(text) = text(&all).filter(|text| text.len() <= MAX_BYTES) {
        return Some(text);
    }
    let mut left = MAX_BYTES.checked_sub(text(&[])?.len())?;
    let mut fitting = 0;
    for one in &all {
        // With the comma after it.
        let Some(rest) = left.checked_sub(serde_json::to_string(one).ok()?.len() + 1) else {
            break;
        };
        (left, fitting) = (rest, fitting + 1);
    }
    if fitting == 0 { None } else { text(&all[..fitting]) }
}

/// The hash in an annotation, as far as it is one of ours.
pub fn stored_recommendation_hash(text: &str) -> Option<u64> {
    let ExplanationHeader { v, of } = serde_json::from_str(text).ok()?;
    if v == VERSION { u64::from_str_radix(&of, 16).ok() } else { None }
}

/// What an annotation says of the recommendation beside it.
pub fn read(
    text: &str,
    said: Option<&vpa::Recommendation>,
) -> Result<StoredExplanation, ExplanationError> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let unreadable = |error: serde_json::Error| ExplanationError::Unreadable(error.to_string());
    let Version { v } = serde_json::from_str(text).map_err(unreadable)?;
    if v != VERSION {
        return Err(ExplanationError::Version(v));
    }
    let ExplanationHeader { of, .. } = serde_json::from_str(text).map_err(unreadable)?;
    if said.is_none_or(|said| of != format!("{:016x}", recommendation_hash(said))) {
        return Err(ExplanationError::Stale);
    }
    let ExplanationBody { at, room, containers } =
        serde_json::from_str(text).map_err(unreadable)?;
    Ok(StoredExplanation { at, pod_limits: room, containers })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recommender::{
        History, RecommendationReason, Settings, VpaSettings, pod_cap::ResourceLimit, recommend,
        status::to_object,
    };

    const AT: Time = Time::from_secs(1_790_000_000);

    /// Containers that were never seen to use anything, which is explained at full length all the same.
    fn said(containers: usize) -> Recommendation {
        let (settings, mut history) = (Settings::default(), History::default());
        let directives = VpaSettings::default();
        let rules = directives.rules(None, &settings);
        for number in 0..containers {
            history.container_mut(&format!("container-{number:03}"), AT, &rules);
        }
        recommend(&directives, &history, &settings, AT)
    }

    fn object(said: &Recommendation) -> vpa::Recommendation {
        to_object(said)
    }

    fn written(said: &Recommendation, room: PodLimits) -> String {
        write(said, recommendation_hash(&object(said)), room, AT).expect("it fits")
    }

    #[test]
    fn what_was_written_is_read_and_is_the_explanation() {
        let said = said(3);
        let limit = "2"
            .parse()
            .ok()
            .map(|amount| ResourceLimit { amount, by: RecommendationReason::PodCap });
        let room = PodLimits { cpu: limit, memory: None };
        let text = written(&said, room);
        assert_eq!(stored_recommendation_hash(&text), Some(recommendation_hash(&object(&said))));
        let told = read(&text, Some(&object(&said))).expect("it belongs to it");
        assert_eq!((told.at, told.pod_limits, told.containers.len()), (AT, room, 3));
        for (told, said) in told.containers.iter().zip(&said.containers) {
            assert_eq!((&told.name, &told.explanation), (&said.container, &said.explanation));
            assert!(told.explanation.cpu.is_some() && told.explanation.memory.is_some());
        }
    }

    #[test]
    fn another_recommendation_another_version_and_other_texts_are_ignored_for_their_reason() {
        let said = said(1);
        let (text, object) = (written(&said, PodLimits::default()), object(&said));
        let mut other = object.clone();
        other.container_recommendations[0].target =
            ResourceList::cpu_and_memory("26m".parse().ok(), None);
        assert_eq!(read(&text, Some(&other)), Err(ExplanationError::Stale));
        assert_eq!(read(&text, None), Err(ExplanationError::Stale));
        let newer = text.replacen("\"v\":1", "\"v\":2", 1);
        assert_eq!(read(&newer, Some(&object)), Err(ExplanationError::Version(2)));
        assert_eq!(stored_recommendation_hash(&newer), None);
        let half = text.replacen("\"containers\"", "\"container\"", 1);
        for broken in ["", "{}", "[]", "{\"v\":1}", &text[..text.len() - 1], &half] {
            let found = read(broken, Some(&object));
            assert!(matches!(found, Err(ExplanationError::Unreadable(_))), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn of_too_many_containers_the_first_are_explained_and_of_none_nothing() {
        let many = said(100);
        let text = written(&many, PodLimits::default());
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 2000, "{} bytes", text.len());
        let told = read(&text, Some(&object(&many))).expect("readable").containers;
        assert!(told.len() > 15, "{} containers are explained", told.len());
        assert!(told.iter().zip(&many.containers).all(|(told, said)| told.name == said.container));
        assert_eq!(write(&said(0), 7, PodLimits::default(), AT), None);
    }

    fn parsed(recommendation: Value) -> u64 {
        recommendation_hash(&serde_json::from_value(recommendation).expect("a recommendation"))
    }

    fn sample() -> Value {
        let main = json!({
            "containerName": "main",
            "target": {"cpu": "350m", "memory": "1Gi"},
            "lowerBound": {"cpu": "25m", "memory": "262144k"},
            "upperBound": {"cpu": "1", "memory": "2Gi"},
            "uncappedTarget": {"cpu": "350m", "memory": "1Gi"},
        });
        let side = json!({"containerName": "side", "target": {"cpu": "25m"}});
        json!({ "containerRecommendations": [main, side] })
    }

    #[test]
    fn the_same_recommendation_in_other_words_has_the_same_fingerprint_and_another_has_not() {
        let with = |place: &str, value: Value| {
            let mut sample = sample();
            *sample.pointer_mut(&format!("/containerRecommendations{place}")).expect(place) = value;
            parsed(sample)
        };
        let mut turned = sample();
        turned["containerRecommendations"].as_array_mut().expect("a list").reverse();
        assert_eq!(parsed(turned), parsed(sample()));
        for (place, value) in [
            ("/0/target/cpu", json!("0.35")),
            ("/0/target/memory", json!("1073741824")),
            ("/0/upperBound/cpu", json!("1000m")),
        ] {
            assert_eq!(with(place, value.clone()), parsed(sample()), "{place} {value}");
        }
        for (place, value) in [
            ("/0/target/cpu", json!("351m")),
            ("/0/target", json!({"cpu": "350m"})),
            ("/0/lowerBound/memory", json!("262145k")),
            ("/1/containerName", json!("sidecar")),
            ("/1/target", json!({"memory": "25m"})),
            ("/1", json!({"containerName": "side", "target": {}, "lowerBound": {"cpu": "25m"}})),
        ] {
            assert_ne!(with(place, value.clone()), parsed(sample()), "{place} {value}");
        }
    }

    #[test]
    fn the_fingerprint_is_a_format_and_stays_as_it_is() {
        assert_eq!(format!("{:016x}", parsed(sample())), "d9955b686c272a8c");
    }
}
