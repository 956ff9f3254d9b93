//! What happens on the day.

use jiff::Timestamp;
use serde_json::json;

use super::{
    fixture::{Fixture, SCRAPE},
    scrape_record::ScrapeRecord,
};
use crate::watermark_controller::fixture::object;

const MEBIBYTE: u64 = 1 << 20;
/// Steps in an hour.
const HOUR: u32 = 30;

/// The day as it was lived, and when what happened.
pub struct ScriptedDay {
    pub record: ScrapeRecord,
    pub growth: Timestamp,
    pub flapping: Timestamp,
    pub calm: Timestamp,
    pub outage: Timestamp,
    pub back: Timestamp,
}

/// The cluster with everything that the day is about, and no time gone by.
async fn start_cluster() -> Option<Fixture> {
    let mut stage = Fixture::new().await?;
    stage.wait_for_recommender_lease().await;
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
    stage.metric("flaps", CALM);
    stage.wpa(&object("flaps", json!({"algorithm": "average", "maxReplicas": 12}))).await;
    let mut queried = object("queried", json!({"dryRun": true}));
    let query = r#"queue_length{app="queried"}"#;
    queried["metadata"]["annotations"] = json!({"query.plimsoll.dev/requests": query});
    stage.wpa(&queried).await;
    Some(stage)
}

/// Lives its first hour and no more. `None` after noting what is missing.
pub async fn run_first_hour() -> Option<ScrapeRecord> {
    let mut stage = start_cluster().await?;
    stage.steps(HOUR).await;
    Some(stage.end().await)
}

/// Lives it. `None` after noting what is missing.
pub async fn run() -> Option<ScriptedDay> {
    let mut stage = start_cluster().await?;
    // All four pods of grows are replaced once, two within an hour.
    stage.steps(HOUR + HOUR / 2).await;

    // Four pods need more and more, and two changes an hour are allowed.
    let growth = stage.now();
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

    // Far above the high mark and far below the low one, by turns.
    let flapping = stage.now();
    for turn in 0..20 {
        stage.metric("flaps", if turn % 2 == 0 { CALM * 8.0 } else { CALM / 8.0 });
        stage.steps(4).await;
    }
    stage.metric("flaps", CALM);
    let calm = stage.now();
    stage.steps(HOUR / 2).await;

    // Nobody answers queries.
    let outage = stage.now();
    stage.prometheus.stop().await;
    stage.steps(HOUR).await;
    let back = stage.now();
    stage.prometheus.start_again().await;
    stage.steps(HOUR).await;

    Some(ScriptedDay { record: stage.end().await, growth, flapping, calm, outage, back })
}

/// Between the marks with four replicas.
const CALM: f64 = 75.0 * 4.0;

impl ScriptedDay {
    /// How long after the first scrape this is.
    pub fn since(&self, moment: Timestamp) -> std::time::Duration {
        let since = moment.duration_since(self.record.start() - SCRAPE);
        since.try_into().expect("after it")
    }
}
