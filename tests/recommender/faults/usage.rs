//! A metrics API that is absent, broken or answers by half.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, PostParams};

use super::stage::{MINUTE, Stage, assert_alive, metric, targets};
use crate::support::log;
use crate::support::usage::{self, Fault};
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const ANSWERS: &str = "vpa_recommender_metric_server_responses";
const FAILED: &[&str] = &["is_error=\"true\""];
const SAMPLES: &str = "plimsoll_samples_total";

#[tokio::test]
async fn without_usage_or_with_half_of_it_recommendations_stay_and_nothing_is_taken_for_zero() {
    let (log, _guard) = log::keep();
    let Some(stage) = Stage::private(NAMES).await else { return };
    stage.use_always(0.5, 700);
    let clock = stage.clock();
    let running = stage.start(&clock, &[]).await;
    let address = running.address();
    let summary = stage.live(&running, &clock, 8, MINUTE).await;
    assert_eq!(summary.samples, 8);
    let before = stage.said().await;
    assert_eq!(targets(&before).len(), NAMES.len());
    assert_eq!(metric(address, ANSWERS, FAILED).await, 0.0);

    let unreadable = "no usage could be read; recommendations rest on what is known";
    let incomplete = "usage is incomplete; what came was taken";
    let senseless = "usage that makes no sense was left out";
    let lacking = "usage of pods is missing that was there before";
    // Whether it counts as an error, how many samples come through at most, and which lines may tell of it: an answer
    // that is cut off may reach us in part, or not at all.
    let cases: [(Fault, f64, u64, &[&str]); 6] = [
        (Fault::Status(503), 1.0, 0, &[unreadable]),
        (Fault::Malformed, 1.0, 0, &[unreadable]),
        (Fault::Cut, 1.0, 6, &[unreadable, incomplete]),
        (Fault::Partial, 0.0, 4, &[lacking]),
        (Fault::NotANumber, 0.0, 0, &[senseless]),
        (Fault::Negative, 0.0, 0, &[senseless]),
    ];
    for (fault, errors, most, told) in cases {
        let (failed, lines) = (metric(address, ANSWERS, FAILED).await, log.text().len());
        let malformed = metric(address, SAMPLES, &["\"malformed\""]).await;
        stage.usage.fault(usage::Api::Resource, Some(fault));
        // A pod that is missing once may be on its way out.
        let passes = if fault == Fault::Partial { 2 } else { 1 };
        let missing = metric(address, SAMPLES, &["\"missing_pod\""]).await;
        let summary = stage.live(&running, &clock, passes, MINUTE).await;
        assert!(summary.samples <= most, "{fault:?}: {summary:?}");
        assert_eq!(metric(address, ANSWERS, FAILED).await, failed + errors, "{fault:?}");
        let text = log.text().split_off(lines);
        let is_told = told.iter().any(|line| text.contains(line));
        assert!(is_told, "{fault:?}: {text}");
        if told == [senseless] {
            let more = metric(address, SAMPLES, &["\"malformed\""]).await - malformed;
            assert_eq!(more, 4.0, "{fault:?}: four containers");
        }
        if fault == Fault::Partial {
            assert_eq!(summary.samples, 4, "two pods of four");
            let more = metric(address, SAMPLES, &["\"missing_pod\""]).await - missing;
            assert_eq!(more, 2.0, "the other two");
        }
        assert_eq!(summary.vpas, 2, "{fault:?}");
        assert_eq!(targets(&stage.said().await), targets(&before), "{fault:?}");
        assert_alive(address).await;
    }
    stage.usage.fault(usage::Api::Resource, None);

    // Nobody serves it at all.
    let registrations = Api::<APIService>::all(stage.client());
    let mut registration = registrations.get("v1beta1.metrics.k8s.io").await.expect("registered");
    let gone = DeleteParams::default();
    registrations.delete("v1beta1.metrics.k8s.io", &gone).await.expect("it is there");
    let (failed, lines) = (metric(address, ANSWERS, FAILED).await, log.text().len());
    wait::until("nothing is served", || async {
        let summary = stage.live(&running, &clock, 1, MINUTE).await;
        (summary.samples == 0).then_some(())
    })
    .await;
    assert!(metric(address, ANSWERS, FAILED).await > failed);
    log::assert_line(&log.text()[lines..], &[unreadable, "metrics.k8s.io"]);
    assert_eq!(targets(&stage.said().await), targets(&before));

    // And it comes back.
    registration.metadata.resource_version = None;
    registration.metadata.uid = None;
    registration.status = None;
    registrations.create(&PostParams::default(), &registration).await.expect("it was gone");
    stage.use_always(2.0, 2000);
    wait::until("samples are taken again", || async {
        let summary = stage.live(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    stage.live(&running, &clock, 12, MINUTE).await;
    log::assert_line(&log.text(), &["usage of all pods is there again"]);
    for (name, target) in targets(&stage.said().await) {
        assert_ne!(targets(&before)[name], target, "{name} follows its usage again");
    }
    running.stop().await;
}
