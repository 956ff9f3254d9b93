//! The code that is shared by controllers which set replicas must not depend on any of their kinds.

use super::{
    assert_clean,
    layers::{is_below, module},
    sources,
    tokens::read,
};

/// The shared code: files and folders.
const NEUTRAL: [&str; 12] = [
    "src/controllers/replicas.rs",
    "core/src/scaling/",
    "src/cluster/cache/",
    "src/cluster/container_usage/",
    "src/cluster/metric_sources/",
    "src/cluster/target/",
    "src/cluster/watch/",
    "src/controllers/replicas/",
    "src/cluster/write/write_context.rs",
    "src/cluster/write/request.rs",
    "core/src/api/scale_target.rs",
    "core/src/api/scale_decision.rs",
];

/// Modules of one kind.
const KINDS: [&str; 9] = [
    "crate::watermark",
    "crate::hpa",
    "crate::api::wpa",
    "plimsoll_core::watermark",
    "plimsoll_core::hpa",
    "plimsoll_core::api::wpa",
    "crate::cluster::write::wpa",
    "crate::controllers::watermark",
    "crate::controllers::hpa",
];

/// Types of one kind that are re-exported elsewhere.
const OBJECTS: [&str; 2] = ["WatermarkPodAutoscaler", "HorizontalPodAutoscaler"];

fn is_neutral(path: &str) -> bool {
    NEUTRAL
        .iter()
        .any(|place| if place.ends_with('/') { path.starts_with(place) } else { path == *place })
}

fn findings(path: &str, text: &str) -> Vec<String> {
    if !is_neutral(path) {
        return Vec::new();
    }
    let code = read(text, &module(path));
    let paths = code.paths.iter().filter(|(_, used)| KINDS.iter().any(|kind| is_below(used, kind)));
    let words =
        code.words.iter().filter(|(_, word)| OBJECTS.iter().any(|one| word.starts_with(one)));
    let found = paths.chain(words);
    found
        .map(|(line, used)| format!("{path}:{line}: {used} belongs to one kind of autoscaler"))
        .collect()
}

#[test]
fn shared_replica_code_names_no_kind_of_autoscaler() {
    let files = sources(&["core", "src"]);
    for place in NEUTRAL {
        let is_there = |(path, _): &(String, String)| path.starts_with(place);
        assert!(files.iter().any(is_there), "{place} no longer exists: update the list");
    }
    assert_clean(&files, findings);
}

#[test]
fn a_kind_in_shared_replica_code_is_found() {
    for (path, text) in [
        ("core/src/scaling/pod_readiness.rs", "use crate::watermark::Rules;"),
        (
            "core/src/scaling/external_recommender.rs",
            "use crate::{api::wpa::RecommenderSpec, types::Quantity};",
        ),
        (
            "src/cluster/metric_sources/http_clients.rs",
            "fn f(tls: &plimsoll_core::api::wpa::TlsConfig) {}",
        ),
        ("src/cluster/cache/replica_pod.rs", "use plimsoll_core::api::{self, wpa};"),
        ("src/controllers/replicas.rs", "use super::watermark::Role;"),
        (
            "src/controllers/replicas/pods.rs",
            "use super::super::watermark::object_state::ObjectState;",
        ),
        ("src/cluster/write/write_context.rs", "use super::wpa::StatusPart;"),
        ("src/cluster/watch/status.rs", "fn f(spec: &api::WatermarkPodAutoscalerSpec) {}"),
    ] {
        assert_eq!(findings(path, text).len(), 1, "{path}: {text}");
    }
    for (path, text) in [
        (
            "src/controllers/watermark/target.rs",
            "use plimsoll_core::api::wpa::WatermarkPodAutoscalerSpec;",
        ),
        (
            "core/src/scaling/pod_readiness.rs",
            "//! Not crate::watermark.\nuse crate::types::compat::Fixes;",
        ),
        (
            "src/cluster/metric_sources/http_clients.rs",
            "use plimsoll_core::{api::scaled::TlsConfig, scaling::Unknown};",
        ),
    ] {
        assert_eq!(findings(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}
