//! The board of an HPA with the metrics of the controller, from an hour and a half in which the load changes. The workload has a
//! VPA too; another one is scaled by kube-controller-manager, and a third has a metric that does not exist.

use std::{path::Path, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use xtask::{
    pictures::{self, Options, Picture},
    test_programs::PrometheusRelease,
};

use crate::{
    horizontal::{
        MEBIBYTE, MEMORY, MISSING, hpa,
        stepped_day::{Day, Rules, Scaler, TURN},
    },
    scripted_day::scrape_record::ScrapeRecord,
    support::{manifests, metrics_server::UsageValue, prometheus_server::PrometheusServer},
};

/// In millicores, five minutes each.
const LOADS: [u64; 18] = [
    400, 600, 900, 1300, 1800, 2400, 3000, 3400, 3400, 3000, 2600, 3200, 2400, 1800, 1300, 900,
    600, 400,
];
const TURNS: u32 = 20;
/// Panels that show `none` if all is well.
const EMPTY: [&str; 7] = [
    "Held for",
    "Stabilization",
    "At their maximum",
    "Cannot scale",
    "With foreign pods",
    "Different",
    "HPAs with a different decision",
];

async fn create_others(day: &Day) {
    let (client, namespace) = (day.bed.client(), &day.namespace);
    for (name, metric) in [("native", MEMORY), ("unknown", MISSING)] {
        let workload = manifests::deployment(name, 2, "100m", "256Mi");
        manifests::create::<Deployment>(client.clone(), namespace, &workload).await;
        let object = hpa(name, &[metric], "null", "{}");
        manifests::create::<HorizontalPodAutoscaler>(client.clone(), namespace, &object).await;
        let used = UsageValue { cpu: 0.05, memory: 200 * MEBIBYTE };
        day.usage.set_all(namespace, &format!("{name}-"), "main", used);
    }
}

async fn draw(server: &PrometheusServer, namespace: &str, record: &ScrapeRecord) -> Picture {
    let url = server.url();
    let options = Options {
        at: Some(record.end().as_second().to_string()),
        range: Some(format!("{}s", record.length().as_secs())),
        set: vec![
            ("namespace".to_owned(), namespace.to_owned()),
            ("name".to_owned(), "web".to_owned()),
        ],
    };
    let draw = move || -> anyhow::Result<Picture> {
        let server = pictures::Prometheus::at(&url)?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let boards = pictures::boards(root, &["horizontal".to_owned()])?;
        let (name, board) = boards.first().expect("the board");
        pictures::draw(name, board, &server, &options)
    };
    tokio::task::spawn_blocking(draw).await.expect("no panic").expect("all panels are drawn")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_board_shows_an_autoscaler_while_its_load_changes() {
    let Some(day) = Day::new(Rules::Ours, Scaler::Plimsoll, TURN).await else { return };
    create_others(&day).await;
    let step = SignedDuration::try_from(TURN).expect("a short time");
    // Prometheus is asked in whole seconds.
    let start = Timestamp::from(day.clock.now()).as_second();
    let start = Timestamp::from_second(start).expect("in range");
    let mut record = ScrapeRecord::new(start, step);
    for load in LOADS {
        for _ in 0..TURNS {
            record.add_scrape(&day.page_after(load).await);
        }
    }
    let namespace = day.namespace.clone();
    tokio::time::timeout(Duration::from_mins(1), day.end()).await.expect("it stops");
    let history = record.history();
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await;
    let Some(server) = server else { return };
    let picture = draw(&server, &namespace, &record).await;
    if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
        picture.write(Path::new(&folder)).expect("written");
    }
    let mut unexpected =
        picture.empty().map(|(panel, _)| panel).filter(|panel| !EMPTY.contains(panel));
    assert_eq!(unexpected.next(), None);
}
