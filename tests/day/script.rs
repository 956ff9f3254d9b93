//! What happens on the day.

use serde_json::json;

use super::{Day, stage::Stage};
use crate::scaling::stage::object;

const MEBIBYTE: u64 = 1 << 20;
/// Scrapes in an hour.
const HOUR: u32 = 30;

/// Lives it. `None` after noting what is missing.
pub async fn live() -> Option<Day> {
    let mut stage = Stage::new().await?;
    for (name, replicas) in
        [("grows", 4), ("capped", 2), ("leaks", 2), ("flaps", 4), ("queried", 2)]
    {
        stage.deployment(name, replicas).await;
        stage.uses(name, 0.1, 60 * MEBIBYTE);
    }
    let all = json!({"containerName": "*"});
    stage.vpa("grows", "Recreate", all.clone()).await;
    let capped = json!({"containerName": "*", "maxAllowed": {"cpu": "200m"}});
    stage.vpa("capped", "Initial", capped).await;
    stage.vpa("leaks", "InPlaceOrRecreate", all).await;
    stage.metric("flaps", 75.0 * 4.0);
    stage.wpa(&object("flaps", json!({"algorithm": "average"}))).await;
    let mut queried = object("queried", json!({}));
    let query = r#"queue_length{app="queried"}"#;
    queried["metadata"]["annotations"] = json!({"query.plimsoll.dev/requests": query});
    stage.wpa(&queried).await;
    stage.steps(HOUR).await;

    // Growth: a tenth of a core becomes one, and one limit is reached on the way.
    for hour in 1..=4 {
        stage.uses("grows", 0.25 * f64::from(hour), 60 * MEBIBYTE * u64::from(hour as u32));
        stage.uses("capped", 0.25 * f64::from(hour), 60 * MEBIBYTE);
        stage.steps(HOUR).await;
    }

    // Too little memory.
    let pods = stage.bed.nodes().pods(&stage.namespace, "leaks", 2, "are there", |_| true).await;
    let name = pods[0].metadata.name.clone().expect("a name");
    stage.bed.nodes().oom_kill(&stage.namespace, &name, "main").await;
    stage.uses("leaks", 0.1, 150 * MEBIBYTE);
    stage.steps(HOUR).await;

    // Up and down.
    for turn in 0..6 {
        stage.metric("flaps", if turn % 2 == 0 { 800.0 } else { 100.0 });
        stage.steps(HOUR / 3).await;
    }

    // Nobody answers queries.
    stage.prometheus.keeper().signal("prometheus", "STOP");
    stage.steps(HOUR / 3).await;
    stage.prometheus.keeper().signal("prometheus", "CONT");
    stage.steps(HOUR).await;
    Some(stage.end().await)
}
