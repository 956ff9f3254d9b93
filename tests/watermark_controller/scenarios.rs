//! What users of the original know it by: bands, speed, windows, and which of them goes first.

use serde_json::json;

use super::fixture::{Fixture, object};

#[tokio::test(flavor = "multi_thread")]
async fn between_the_marks_nothing_is_scaled_for_an_hour() {
    let Some(stage) = Fixture::new("bounds", &[]).await else { return };
    stage.deployment("web", 3).await;
    stage.metric("web", 75.0);
    stage.create(&object("web", json!({}))).await;
    let before = stage.get("web").await.metadata.resource_version;
    for minute in 0..60 {
        stage.metric("web", 60.0 + f64::from(minute % 30));
        stage.advance_seconds(60).await;
        assert_eq!(stage.replicas("web").await, 3);
    }
    let of = ["reason=\"within_bounds\"", "wpa_name=\"web\""];
    assert_eq!(stage.series("wpa_controller_restricted_scaling", &of).await, [1.0]);
    assert_eq!(stage.series("wpa_controller_replicas_scaling_effective", &[]).await, [3.0]);
    let of = ["reason=\"upscale_capping\""];
    assert_eq!(stage.series("wpa_controller_restricted_scaling", &of).await, [0.0]);
    assert_eq!(stage.series("wpa_controller_value", &[]).await, [89_000.0]);
    let status = stage.status("web").await;
    assert_eq!(status["scalingEventsCount"], json!(null), "{status:#}");
    assert_ne!(stage.get("web").await.metadata.resource_version, before, "values are shown");
    assert!(stage.events("web").await.is_empty(), "nothing happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_larger_than_its_percentage() {
    let Some(stage) = Fixture::new("velocity", &[]).await else { return };
    for (name, percent, up, down) in [("thirty", "30", 13, 7), ("less", "29", 12, 8)] {
        stage.deployment(name, 10).await;
        stage.metric(name, 1_000.0);
        let fields = json!({"scaleUpLimitFactor": percent, "scaleDownLimitFactor": percent});
        stage.create(&object(name, fields)).await;
        stage.wait_until_scaled(name, up).await;
        let of = [format!("wpa_name=\"{name}\""), "upscale_capping".to_owned()];
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let restricted = "wpa_controller_restricted_scaling";
        assert_eq!(stage.series(restricted, &of).await, [1.0], "{name}");
        // Between the marks nothing is asked for, so nothing is capped.
        stage.metric(name, 75.0);
        stage.advance_period().await;
        assert_eq!(stage.series(restricted, &of).await, [0.0], "{name}");

        let below = format!("{name}-below");
        stage.deployment(&below, 10).await;
        stage.metric(&below, 1.0);
        let fields = json!({"scaleUpLimitFactor": percent, "scaleDownLimitFactor": percent});
        stage.create(&object(&below, fields)).await;
        stage.wait_until_scaled(&below, down).await;
        let of = [format!("wpa_name=\"{below}\""), "downscale_capping".to_owned()];
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        assert_eq!(stage.series(restricted, &of).await, [1.0], "{below}");
        stage.metric(&below, 75.0);
        stage.advance_period().await;
        assert_eq!(stage.series(restricted, &of).await, [0.0], "{below}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_window_a_proposal_is_ignored_and_the_time_left_runs_down() {
    let Some(stage) = Fixture::new("cooldown", &[]).await else { return };
    stage.deployment("web", 4).await;
    stage.metric("web", 150.0);
    stage.create(&object("web", json!({}))).await;
    stage.wait_until_scaled("web", 6).await;
    assert_eq!(stage.events("web").await, ["Scaling"]);
    // More is asked for, less after that; neither is done before its window is over.
    stage.metric("web", 200.0);
    let mut last = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        stage.advance_period().await;
        assert_eq!(stage.replicas("web").await, 6);
        let left = async |transition: &str| {
            let of = format!("transition=\"{transition}\"");
            stage.series("wpa_controller_transition_countdown", &[&of]).await[0]
        };
        let (up, down) = (left("upscale").await, left("downscale").await);
        assert!(up < last.0 && down < last.1 && down > up, "{up} and {down} after {last:?}");
        last = (up, down);
    }
    stage.advance_period().await;
    stage.advance_period().await;
    stage.wait_until_scaled("web", 12).await;
    stage.metric("web", 1.0);
    stage.advance_seconds(240).await;
    assert_eq!(stage.replicas("web").await, 12, "the window for fewer is longer");
    stage.advance_seconds(75).await;
    stage.wait_until_scaled("web", 6).await;
    let status = stage.status("web").await;
    assert_eq!(status["scalingEventsCount"], 3, "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bands_go_before_speed_and_that_before_windows_and_bounds_win_over_all() {
    let Some(stage) = Fixture::new("precedence", &[]).await else { return };
    stage.deployment("web", 4).await;
    // Within the band nothing is asked for, though speed and windows would let it be.
    stage.metric("web", 99.0);
    stage.create(&object("web", json!({"maxReplicas": 10}))).await;
    stage.advance_seconds(30).await;
    assert_eq!(stage.replicas("web").await, 4, "the band");
    // Forty are asked for, eight is as far as one step goes.
    stage.metric("web", 1_000.0);
    stage.advance_period().await;
    stage.wait_until_scaled("web", 8).await;
    stage.advance_period().await;
    assert_eq!(stage.replicas("web").await, 8, "the window");
    stage.advance_seconds(60).await;
    stage.wait_until_scaled("web", 10).await;
    // What is asked for is faster than may be, too; it ends at the bound.
    stage.advance_period().await;
    let reason = async |reason: &str| {
        let of = ["kind=\"wpa\"".to_owned(), format!("reason=\"{reason}\"")];
        stage.series("plimsoll_restricted_scaling", &[&of[0], &of[1]]).await
    };
    assert_eq!((reason("max").await, reason("min").await), (vec![1.0], vec![]), "it never held");
    // Inside of both windows, other bounds count at once, and beyond what one step may be: half of ten, twice three.
    stage.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 3}})).await;
    stage.wait_until_scaled("web", 3).await;
    stage.patch_and_reconcile("web", json!({"spec": {"minReplicas": 15, "maxReplicas": 20}})).await;
    stage.wait_until_scaled("web", 15).await;
}
