//! Planned requests (`--profile`) on a real control plane: in the status, in checkpoints, and after a restart.

use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Condition},
    recommender::conditions::REQUESTS_PLANNED,
};
use std::time::Duration;

use super::faults::fixture::{Fixture, MEBIBYTE, targets};
use crate::support::metrics_server::UsageValue;

const NAMES: &[&str] = &["front"];
const HOUR: Duration = Duration::from_hours(1);
const FLAGS: &[&str] = &["--checkpoint-interval=0s", "--profile=tide"];

fn planned(vpa: &VerticalPodAutoscaler) -> Option<&Condition> {
    let conditions = &vpa.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.kind == REQUESTS_PLANNED)
}

#[tokio::test]
async fn planned_requests_are_published_after_a_day_and_continue_after_a_restart() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    fixture.set_usage("front", UsageValue { cpu: 0.5, memory: 400 * MEBIBYTE });
    let clock = fixture.clock();
    let running = fixture.start(&clock, FLAGS).await;
    fixture.advance(&running, &clock, 20, HOUR).await;
    let vpas = fixture.vpas().await;
    assert_eq!(planned(&vpas[0]), None, "there is less than a day of samples");

    fixture.advance(&running, &clock, 8, HOUR).await;
    let vpas = fixture.vpas().await;
    let condition = planned(&vpas[0]).expect("the condition is set");
    // The default update mode evicts pods, so changes are rare.
    assert_eq!((&*condition.status, &*condition.reason), ("True", "Steady"));
    let before = fixture.recommendations().await;
    let target = &before["front"].container_recommendations[0].target;
    let cpu = target.cpu().expect("CPU is recommended").milli_value();
    assert!((500..=560).contains(&cpu), "{:?}", targets(&before));
    let memory = target.memory().expect("memory is recommended").value();
    assert_eq!(memory, i64::try_from(480 * MEBIBYTE).expect("is small"), "20 % above the usage");
    let checkpoint = fixture.checkpoints().await.remove(0);
    let annotations = checkpoint.metadata.annotations.unwrap_or_default();
    assert!(annotations.values().any(|text| text.contains(r#""plan":""#)), "{annotations:?}");
    running.stop().await;

    // The state is in the checkpoint: the plan continues although there is no sample of a day since the start.
    let running = fixture.start(&clock, FLAGS).await;
    fixture.advance(&running, &clock, 1, Duration::from_mins(1)).await;
    let vpas = fixture.vpas().await;
    assert!(planned(&vpas[0]).is_some(), "the plan continues");
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));
    running.stop().await;
}
