//! A metrics API that is absent, returns errors or truncates its response.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, PostParams};

use super::fixture::{Fixture, MINUTE, assert_alive, metric, targets};
use crate::support::captured_log;
use crate::support::metrics_server::{self, Fault};
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const ANSWERS: &str = "vpa_recommender_metric_server_responses";
const FAILED: &[&str] = &["is_error=\"true\""];
const SAMPLES: &str = "plimsoll_samples_total";

#[tokio::test]
async fn without_usage_recommendations_stay_and_nothing_counts_as_zero() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::private(NAMES).await else { return };
    fixture.set_constant_usage(0.5, 700);
    let clock = fixture.clock();
    let running = fixture.start(&clock, &[]).await;
    let address = running.address();
    let summary = fixture.advance(&running, &clock, 8, MINUTE).await;
    assert_eq!(summary.samples, 8);
    let before = fixture.recommendations().await;
    assert_eq!(targets(&before).len(), NAMES.len());
    assert_eq!(metric(address, ANSWERS, FAILED).await, 0.0);

    let unreadable = "failed to fetch usage; recommendations are based on earlier samples";
    let incomplete = "received incomplete usage; using the part that was received";
    let senseless = "ignoring invalid usage";
    let lacking = "usage of pods is no longer available";
    // Whether it counts as an error, the maximum number of samples that get through, and the log lines that may report
    // it: a truncated response may be received in part or not at all.
    let cases: [(Fault, f64, u64, &[&str]); 6] = [
        (Fault::Status(503), 1.0, 0, &[unreadable]),
        (Fault::Malformed, 1.0, 0, &[unreadable]),
        (Fault::Truncated, 1.0, 6, &[unreadable, incomplete]),
        (Fault::Partial, 0.0, 4, &[lacking]),
        (Fault::NotANumber, 0.0, 0, &[senseless]),
        (Fault::Negative, 0.0, 0, &[senseless]),
    ];
    for (fault, errors, most, log_lines) in cases {
        let (failed, lines) = (metric(address, ANSWERS, FAILED).await, log.text().len());
        let malformed = metric(address, SAMPLES, &["\"malformed\""]).await;
        fixture.usage.set_fault(metrics_server::MetricsApi::Resource, Some(fault));
        // A pod that is missing once may be terminating.
        let passes = if fault == Fault::Partial { 2 } else { 1 };
        let missing = metric(address, SAMPLES, &["\"missing_pod\""]).await;
        let summary = fixture.advance(&running, &clock, passes, MINUTE).await;
        assert!(summary.samples <= most, "{fault:?}: {summary:?}");
        assert_eq!(metric(address, ANSWERS, FAILED).await, failed + errors, "{fault:?}");
        let text = log.text().split_off(lines);
        let is_logged = log_lines.iter().any(|line| text.contains(line));
        assert!(is_logged, "{fault:?}: {text}");
        if log_lines == [senseless] {
            let more = metric(address, SAMPLES, &["\"malformed\""]).await - malformed;
            assert_eq!(more, 4.0, "{fault:?}: four containers");
        }
        if fault == Fault::Partial {
            assert_eq!(summary.samples, 4, "two pods of four");
            let more = metric(address, SAMPLES, &["\"missing_pod\""]).await - missing;
            assert_eq!(more, 2.0, "the other two");
        }
        assert_eq!(summary.vpas, 2, "{fault:?}");
        assert_eq!(targets(&fixture.recommendations().await), targets(&before), "{fault:?}");
        assert_alive(address).await;
    }
    fixture.usage.set_fault(metrics_server::MetricsApi::Resource, None);

    // The API is not registered at all.
    let registrations = Api::<APIService>::all(fixture.client());
    let mut registration = registrations.get("v1beta1.metrics.k8s.io").await.expect("registered");
    let gone = DeleteParams::default();
    registrations.delete("v1beta1.metrics.k8s.io", &gone).await.expect("exists");
    let (failed, lines) = (metric(address, ANSWERS, FAILED).await, log.text().len());
    wait::until("the API is not served", || async {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 0).then_some(())
    })
    .await;
    assert!(metric(address, ANSWERS, FAILED).await > failed);
    captured_log::assert_line(&log.text()[lines..], &[unreadable, "metrics.k8s.io"]);
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));

    // It comes back.
    registration.metadata.resource_version = None;
    registration.metadata.uid = None;
    registration.status = None;
    registrations.create(&PostParams::default(), &registration).await.expect("was removed");
    fixture.set_constant_usage(2.0, 2000);
    wait::until("samples are ingested again", || async {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    fixture.advance(&running, &clock, 12, MINUTE).await;
    captured_log::assert_line(&log.text(), &["usage of all pods is available again"]);
    for (name, target) in targets(&fixture.recommendations().await) {
        assert_ne!(targets(&before)[name], target, "{name} follows its usage again");
    }
    running.stop().await;
}
