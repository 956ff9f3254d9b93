//! The main behaviour that upstream's users know: watermarks, scale rates, cooldowns, and their precedence.

use serde_json::json;

use super::fixture::{Fixture, object};

#[tokio::test(flavor = "multi_thread")]
async fn between_the_watermarks_nothing_is_scaled_for_an_hour() {
    let Some(fixture) = Fixture::new("bounds", &[]).await else { return };
    fixture.deployment("web", 3).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    let before = fixture.get("web").await.metadata.resource_version;
    for minute in 0..60 {
        fixture.metric("web", 60.0 + f64::from(minute % 30));
        fixture.advance_seconds(60).await;
        assert_eq!(fixture.replicas("web").await, 3);
    }
    let of = ["reason=\"within_bounds\"", "wpa_name=\"web\""];
    assert_eq!(fixture.series("wpa_controller_restricted_scaling", &of).await, [1.0]);
    assert_eq!(fixture.series("wpa_controller_replicas_scaling_effective", &[]).await, [3.0]);
    let of = ["reason=\"upscale_capping\""];
    assert_eq!(fixture.series("wpa_controller_restricted_scaling", &of).await, [0.0]);
    assert_eq!(fixture.series("wpa_controller_value", &[]).await, [89_000.0]);
    let status = fixture.status("web").await;
    assert_eq!(status["scalingEventsCount"], json!(null), "{status:#}");
    assert_ne!(fixture.get("web").await.metadata.resource_version, before, "values are exported");
    assert!(fixture.events("web").await.is_empty(), "nothing happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_exceeds_its_percentage() {
    let Some(fixture) = Fixture::new("velocity", &[]).await else { return };
    for (name, percent, up, down) in [("thirty", "30", 13, 7), ("less", "29", 12, 8)] {
        fixture.deployment(name, 10).await;
        fixture.metric(name, 1_000.0);
        let fields = json!({"scaleUpLimitFactor": percent, "scaleDownLimitFactor": percent});
        fixture.create(&object(name, fields)).await;
        fixture.wait_until_scaled(name, up).await;
        let of = [format!("wpa_name=\"{name}\""), "upscale_capping".to_owned()];
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let restricted = "wpa_controller_restricted_scaling";
        assert_eq!(fixture.series(restricted, &of).await, [1.0], "{name}");
        // Between the watermarks nothing is proposed, so nothing is capped.
        fixture.metric(name, 75.0);
        fixture.advance_period().await;
        assert_eq!(fixture.series(restricted, &of).await, [0.0], "{name}");

        let below = format!("{name}-below");
        fixture.deployment(&below, 10).await;
        fixture.metric(&below, 1.0);
        let fields = json!({"scaleUpLimitFactor": percent, "scaleDownLimitFactor": percent});
        fixture.create(&object(&below, fields)).await;
        fixture.wait_until_scaled(&below, down).await;
        let of = [format!("wpa_name=\"{below}\""), "downscale_capping".to_owned()];
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        assert_eq!(fixture.series(restricted, &of).await, [1.0], "{below}");
        fixture.metric(&below, 75.0);
        fixture.advance_period().await;
        assert_eq!(fixture.series(restricted, &of).await, [0.0], "{below}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn within_a_forbidden_window_a_proposal_is_ignored_and_the_countdown_runs() {
    let Some(fixture) = Fixture::new("cooldown", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 150.0);
    fixture.create(&object("web", json!({}))).await;
    fixture.wait_until_scaled("web", 6).await;
    assert_eq!(fixture.events("web").await, ["Scaling"]);
    // The metric asks for more replicas, then for fewer; both wait for the end of their cooldown.
    fixture.metric("web", 200.0);
    let mut last = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        fixture.advance_period().await;
        assert_eq!(fixture.replicas("web").await, 6);
        let left = async |transition: &str| {
            let of = format!("transition=\"{transition}\"");
            fixture.series("wpa_controller_transition_countdown", &[&of]).await[0]
        };
        let (up, down) = (left("upscale").await, left("downscale").await);
        assert!(up < last.0 && down < last.1 && down > up, "{up} and {down} after {last:?}");
        last = (up, down);
    }
    fixture.advance_period().await;
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 12).await;
    fixture.metric("web", 1.0);
    fixture.advance_seconds(240).await;
    assert_eq!(fixture.replicas("web").await, 12, "the window for fewer is longer");
    fixture.advance_seconds(75).await;
    fixture.wait_until_scaled("web", 6).await;
    let status = fixture.status("web").await;
    assert_eq!(status["scalingEventsCount"], 3, "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bands_precede_rates_windows_and_bounds_override_all() {
    let Some(fixture) = Fixture::new("precedence", &[]).await else { return };
    fixture.deployment("web", 4).await;
    // Within the band nothing is proposed, although rates and cooldowns would allow it.
    fixture.metric("web", 99.0);
    fixture.create(&object("web", json!({"maxReplicas": 10}))).await;
    fixture.advance_seconds(30).await;
    assert_eq!(fixture.replicas("web").await, 4, "the band");
    // Forty are proposed, and one step allows eight.
    fixture.metric("web", 1_000.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 8).await;
    fixture.advance_period().await;
    assert_eq!(fixture.replicas("web").await, 8, "the window");
    fixture.advance_seconds(60).await;
    fixture.wait_until_scaled("web", 10).await;
    // The proposal exceeds the rate as well; it ends at the bound.
    fixture.advance_period().await;
    let reason = async |reason: &str| {
        let of = ["kind=\"wpa\"".to_owned(), format!("reason=\"{reason}\"")];
        fixture.series("plimsoll_restricted_scaling", &[&of[0], &of[1]]).await
    };
    assert_eq!(
        (reason("max").await, reason("min").await),
        (vec![1.0], vec![]),
        "the condition was never true"
    );
    // During both cooldowns new bounds still apply at once, and beyond the limit of one step: half of ten, twice three.
    fixture.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 3}})).await;
    fixture.wait_until_scaled("web", 3).await;
    fixture
        .patch_and_reconcile("web", json!({"spec": {"minReplicas": 15, "maxReplicas": 20}}))
        .await;
    fixture.wait_until_scaled("web", 15).await;
}
