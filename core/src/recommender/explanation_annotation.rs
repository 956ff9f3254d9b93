//! The annotation on a VPA that explains the recommendation in its status.
//!
//! `plimsoll explain` uses it where it cannot read the history because there are no checkpoints. The annotation has a
//! hash of its recommendation, so that it is ignored once the status has another one.

use std::sync::Arc;

use crate::types::Time;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{
    explanation::Explanation,
    pod_cap::PodLimits,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::api::{
    ResourceList,
    state::{StateError, hash_text, read_state, state_hash, write_state},
    vpa,
};

/// Key of the annotation.
pub const ANNOTATION: &str = "plimsoll.dev/explanation";

/// Maximum size of the annotation in bytes.
pub const MAX_BYTES: usize = crate::api::state::MAX_STATE_BYTES;

/// Version of the format. It changes if old readers would misinterpret the annotation.
const VERSION: u32 = 1;

/// The content of an annotation. The numbers themselves are in the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredExplanation {
    /// When the recommendation was computed.
    pub at: Time,
    /// The maximum of all containers of a pod together.
    #[serde(default, rename = "room", skip_serializing_if = "PodLimits::is_empty")]
    pub pod_limits: PodLimits,
    /// The explanations by container. Containers may be missing.
    pub containers: Vec<StoredContainer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredContainer {
    pub name: Arc<str>,
    #[serde(flatten)]
    pub explanation: Explanation,
}

/// Hashes a parsed recommendation: containers by name, amounts by value. Annotations are bound to a status by it, so
/// its input is part of their format.
pub fn recommendation_hash(recommendation: &vpa::Recommendation) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    let mut containers: Vec<_> = recommendation.container_recommendations.iter().collect();
    containers.sort_by(|a, b| a.container_name.cmp(&b.container_name));
    for container in containers {
        hash_text(&mut bytes, &container.container_name);
        for list in [
            &container.target,
            &container.lower_bound,
            &container.upper_bound,
            &container.uncapped_target,
        ] {
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

/// Returns the annotation of a recommendation that was computed at `at`. `hash` is that of the published
/// recommendation. If not all containers fit, only the first ones are explained; `None` if there are none.
pub fn write(
    recommendation: &Recommendation,
    hash: u64,
    pod_limits: PodLimits,
    at: Time,
) -> Option<String> {
    let stored = |container: &ContainerRecommendation| StoredContainer {
        name: Arc::clone(&container.container),
        explanation: container.explanation.clone(),
    };
    let containers = recommendation.containers.iter().map(stored).collect();
    let mut stored = StoredExplanation { at, pod_limits, containers };
    if stored.containers.is_empty() {
        return None;
    }
    let text = |stored: &StoredExplanation| write_state(stored, VERSION, Some(hash)).ok();
    if let Some(text) = text(&stored).filter(|text| text.len() <= MAX_BYTES) {
        return Some(text);
    }
    let all_containers = std::mem::take(&mut stored.containers);
    let mut left = MAX_BYTES.checked_sub(text(&stored)?.len())?;
    for container in all_containers {
        // Includes the comma after it.
        let Some(rest) = left.checked_sub(serde_json::to_string(&container).ok()?.len() + 1) else {
            break;
        };
        left = rest;
        stored.containers.push(container);
    }
    if stored.containers.is_empty() { None } else { text(&stored) }
}

pub fn stored_recommendation_hash(text: &str) -> Option<u64> {
    state_hash(text, VERSION)
}

/// Parses an annotation and checks that it belongs to this recommendation.
pub fn read(
    text: &str,
    recommendation: Option<&vpa::Recommendation>,
) -> Result<StoredExplanation, StateError> {
    // No recommendation has the hash of none.
    let of = recommendation.map_or(0, recommendation_hash);
    read_state(text, VERSION, Some((of, "it does not match the recommendation in the status")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recommender::{
        History, RecommendationReason, Settings, VpaSettings, pod_cap::ResourceLimit,
        published_status::to_object, recommend,
    };

    const AT: Time = Time::from_secs(1_790_000_000);

    /// Containers without samples, which are explained at full length nevertheless.
    fn recommendation(containers: usize) -> Recommendation {
        let (settings, mut history) = (Settings::default(), History::default());
        let vpa_settings = VpaSettings::default();
        let rules = vpa_settings.rules(None, &settings);
        for number in 0..containers {
            history.container_mut(&format!("container-{number:03}"), AT, &rules);
        }
        recommend(&vpa_settings, &history, &settings, AT)
    }

    fn object(recommendation: &Recommendation) -> vpa::Recommendation {
        to_object(recommendation)
    }

    fn written(recommendation: &Recommendation, pod_limits: PodLimits) -> String {
        write(recommendation, recommendation_hash(&object(recommendation)), pod_limits, AT)
            .expect("it fits")
    }

    #[test]
    fn a_written_explanation_reads_back() {
        let original = recommendation(3);
        let limit = "2"
            .parse()
            .ok()
            .map(|amount| ResourceLimit { amount, by: RecommendationReason::PodCap });
        let pod_limits = PodLimits { cpu: limit, memory: None };
        let text = written(&original, pod_limits);
        assert_eq!(
            stored_recommendation_hash(&text),
            Some(recommendation_hash(&object(&original)))
        );
        let stored = read(&text, Some(&object(&original))).expect("it belongs to it");
        assert_eq!((stored.at, stored.pod_limits, stored.containers.len()), (AT, pod_limits, 3));
        for (stored, original) in stored.containers.iter().zip(&original.containers) {
            assert_eq!(
                (&stored.name, &stored.explanation),
                (&original.container, &original.explanation)
            );
            assert!(stored.explanation.cpu.is_some() && stored.explanation.memory.is_some());
        }
    }

    #[test]
    fn a_stale_newer_or_invalid_explanation_is_ignored_with_the_reason() {
        let original = recommendation(1);
        let (text, object) = (written(&original, PodLimits::default()), object(&original));
        let mut other = object.clone();
        other.container_recommendations[0].target =
            ResourceList::cpu_and_memory("26m".parse().ok(), None);
        for other in [Some(&other), None] {
            let found = read(&text, other);
            assert!(matches!(found, Err(StateError::Stale(_))), "{found:?}");
        }
        let newer = text.replacen("\"v\":1", "\"v\":2", 1);
        let unsupported = StateError::Version { found: 2, expected: VERSION };
        assert_eq!(read(&newer, Some(&object)), Err(unsupported));
        assert_eq!(stored_recommendation_hash(&newer), None);
        let half = text.replacen("\"containers\"", "\"container\"", 1);
        for broken in ["", "{}", "[]", "{\"v\":1}", &text[..text.len() - 1], &half] {
            let found = read(broken, Some(&object));
            assert!(matches!(found, Err(StateError::Malformed(_))), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn of_too_many_containers_the_first_are_explained() {
        let many = recommendation(100);
        let text = written(&many, PodLimits::default());
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 2000, "{} bytes", text.len());
        let stored = read(&text, Some(&object(&many))).expect("readable").containers;
        assert!(stored.len() > 15, "{} containers are explained", stored.len());
        assert!(
            stored
                .iter()
                .zip(&many.containers)
                .all(|(stored, original)| stored.name == original.container)
        );
        assert_eq!(write(&recommendation(0), 7, PodLimits::default(), AT), None);
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
    fn equal_recommendations_have_the_same_hash_and_others_have_not() {
        let with = |path: &str, value: Value| {
            let mut sample = sample();
            *sample.pointer_mut(&format!("/containerRecommendations{path}")).expect(path) = value;
            parsed(sample)
        };
        let mut reversed = sample();
        reversed["containerRecommendations"].as_array_mut().expect("a list").reverse();
        assert_eq!(parsed(reversed), parsed(sample()));
        for (path, value) in [
            ("/0/target/cpu", json!("0.35")),
            ("/0/target/memory", json!("1073741824")),
            ("/0/upperBound/cpu", json!("1000m")),
        ] {
            assert_eq!(with(path, value.clone()), parsed(sample()), "{path} {value}");
        }
        for (path, value) in [
            ("/0/target/cpu", json!("351m")),
            ("/0/target", json!({"cpu": "350m"})),
            ("/0/lowerBound/memory", json!("262145k")),
            ("/1/containerName", json!("sidecar")),
            ("/1/target", json!({"memory": "25m"})),
            ("/1", json!({"containerName": "side", "target": {}, "lowerBound": {"cpu": "25m"}})),
        ] {
            assert_ne!(with(path, value.clone()), parsed(sample()), "{path} {value}");
        }
    }

    #[test]
    fn the_hash_format_is_stable() {
        assert_eq!(format!("{:016x}", parsed(sample())), "d9955b686c272a8c");
    }
}
