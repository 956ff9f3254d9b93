//! What the role exports about an object: every upstream series, for as long as the object exists; remaining times and
//! conditions while its metric is unavailable; log lines; and what `explain` reads from the cluster afterwards.

use std::collections::BTreeMap;

use kube::api::DeleteParams;
use plimsoll::{
    cluster::clock::Clock, controllers::runtime::command_client::Cluster,
    report::collect::wpa::explain,
};
use serde_json::json;

use super::fixture::{Fixture, object};
use crate::support::{
    captured_log,
    http_get::http_get,
    metrics_server::{Fault, MetricsApi},
    wait,
};

/// Returns all series of an object: family and distinguishing labels, with their values.
async fn all_series(fixture: &Fixture, name: &str) -> BTreeMap<String, f64> {
    let address = format!("http://{}/metrics", fixture.role.address());
    let text = http_get(&address).await.expect("valid metrics");
    let text = String::from_utf8_lossy(&text).into_owned();
    let of = format!("wpa_name=\"{name}\"");
    let apart = ["metric_name", "condition", "reason", "transition", "lifecycle_status"];
    let lines =
        text.lines().filter(|line| line.starts_with("wpa_controller_") && line.contains(&of));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("has a value");
            let (family, labels) = series.split_once('{').expect("labels exist");
            let found = apart.iter().find_map(|label| {
                let (_, rest) = labels.split_once(&format!("{label}=\""))?;
                Some(rest.split_once('"')?.0)
            });
            let family = family.trim_start_matches("wpa_controller_");
            let key = [Some(family), found].into_iter().flatten().collect::<Vec<_>>().join(" ");
            (key, value.parse().expect("a number"))
        })
        .collect()
}

/// The families that upstream exports, in section 14.2 of its description.
#[tokio::test(flavor = "multi_thread")]
async fn every_upstream_series_appears_and_disappears_with_its_object() {
    let Some(fixture) = Fixture::new("series", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 150.0);
    fixture.create(&object("web", json!({}))).await;
    fixture.wait_until_scaled("web", 6).await;
    fixture.advance_period().await;
    let found = all_series(&fixture, "web").await;
    let expected = [
        ("value requests", 150_000.0),
        ("high_watermark requests", 100_000.0),
        ("low_watermark requests", 50_000.0),
        ("high_watermak requests", 100_000.0),
        ("low_watermak requests", 50_000.0),
        // 6 replicas at 150 with a watermark of 100.
        ("replicas_scaling_proposal requests", 9.0),
        ("replicas_scaling_effective", 6.0),
        ("min_replicas", 1.0),
        ("max_replicas", 50.0),
        ("dry_run", 0.0),
        ("scaling_active", 1.0),
        ("conditions able_to_scale", 0.0),
        ("conditions scaling_limited", 0.0),
        ("restricted_scaling within_bounds", 0.0),
        ("restricted_scaling upscale_capping", 0.0),
        ("restricted_scaling downscale_capping", 0.0),
        ("transition_countdown upscale", 45.0),
        ("transition_countdown downscale", 285.0),
        ("upscale_replicas_total", 2.0),
        ("labels_info", 1.0),
    ];
    for (series, value) in &expected {
        assert_eq!(found.get(*series), Some(value), "{series} of {found:#?}");
    }
    let is_other = |series: &&String| expected.iter().all(|(known, _)| known != series);
    let unexpected: Vec<&String> = found.keys().filter(is_other).collect();
    assert_eq!(unexpected, ["downscale_replicas_total"], "{found:#?}");

    fixture.api().delete("web", &DeleteParams::default()).await.expect("exists");
    wait::until_ok("its series are gone", || async {
        let left = all_series(&fixture, "web").await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_metric_is_unavailable_countdowns_run_and_no_value_is_exported() {
    let Some(fixture) = Fixture::new("away", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 150.0);
    fixture.create(&object("web", json!({}))).await;
    fixture.wait_until_scaled("web", 6).await;
    fixture.advance_period().await;
    fixture.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    let mut left = 285.0;
    for _ in 0..10 {
        fixture.advance_period().await;
        let found = all_series(&fixture, "web").await;
        left -= 15.0;
        assert_eq!(found.get("transition_countdown downscale"), Some(&left), "{found:#?}");
        let upscale = f64::max(left - 240.0, 0.0);
        assert_eq!(found.get("transition_countdown upscale"), Some(&upscale), "{found:#?}");
        assert!(!found.keys().any(|key| key.starts_with("value ")), "{found:#?}");
        assert_eq!(found["scaling_active"], 0.0);
    }
    assert_eq!(fixture.replicas("web").await, 6);
    // A controller that takes over reads from the object when it last scaled.
    let client = fixture.bed.client();
    let fixture = fixture.restart_as(client, &[]).await;
    wait::until_ok("the remaining time is exported", || async {
        let found = all_series(&fixture, "web").await;
        let down = found.get("transition_countdown downscale").copied();
        if down == Some(left) { Ok(()) } else { Err(format!("{left}: {found:#?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_mode_has_upstreams_restriction_reasons() {
    let Some(fixture) = Fixture::new("reasons", &["--compat=upstream"]).await else { return };
    fixture.deployment("web", 3).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    fixture.advance_seconds(60).await;
    let found = all_series(&fixture, "web").await;
    assert_eq!(found["restricted_scaling within_bounds"], 0.0, "never 1 since its release 0.6");
    assert_eq!(fixture.replicas("web").await, 3);
}

#[tokio::test]
async fn idle_passes_send_events_only_if_enabled() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new("idle", &["-skipNotScalingEvents=false"]).await else {
        return;
    };
    fixture.deployment("web", 3).await;
    fixture.metric("web", 75.0);
    let mut wanted = object("web", json!({}));
    wanted["metadata"]["annotations"] =
        json!({"wpa.datadoghq.com/logs-attributes": "{\"team\": \"payments\"}"});
    fixture.create(&wanted).await;
    fixture.advance_seconds(120).await;
    wait::until_ok("reported once", || async {
        let events = fixture.events("web").await;
        if events == ["NotScaling"] { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    fixture.metric("web", 150.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 5).await;
    log.assert_line(&["team=payments", "web"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_reads_the_decision_from_the_cluster() {
    let Some(fixture) = Fixture::new("explained", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 1_000.0);
    let mut wanted = object("web", json!({"maxReplicas": 6}));
    // The name is invalid, so it does not pause anything, and the annotation is reported as ignored.
    wanted["metadata"]["annotations"] = json!({"plimsoll.dev/hold-while": "Broken{"});
    fixture.create(&wanted).await;
    fixture.wait_until_scaled("web", 6).await;
    let cluster = Cluster {
        client: fixture.bed.client(),
        namespace: fixture.namespace.clone(),
        address: "the bed".to_owned(),
    };
    let now = Clock::wall().now();
    let report = explain(&cluster, None, "web", now).await.expect("exists");
    let report = serde_json::to_value(report).expect("JSON");
    let decision = &report["decision"];
    assert_eq!(decision["from"], 4, "{report:#}");
    assert_eq!(decision["to"], 6, "{report:#}");
    assert_eq!(decision["restrictions"], json!(["upscale_capping", "max"]), "{report:#}");
    assert_eq!(report["findings"][0]["code"], "annotation_ignored", "{report:#}");
    let missing = explain(&cluster, None, "wbe", now).await.expect_err("missing");
    let message = missing.to_string();
    assert!(message.ends_with("did you mean web?"), "{message}");
}
