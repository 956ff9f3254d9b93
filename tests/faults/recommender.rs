//! A recommender with a VPA that has no recommendation yet. Its status can be written any number of times; what must neither be
//! lost nor counted twice are samples and OOM kills, which checkpoints store.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use jiff::{SignedDuration, Timestamp};

use super::FaultSubject;
use crate::{
    recommender::faults::fixture::{Fixture, HOUR, targets},
    support::{
        Testbed,
        clock::wall_now,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, Checkpoint, VpaStatus},
        },
        metrics_server::{Fault, MetricsApi},
        role_process::RoleProcess,
        wait,
    },
};

const PASSES: &str = "vpa_recommender_execution_latency_seconds_count";
const TOTAL: &[&str] = &["step=\"total\""];
const KILLS: &str = "plimsoll_oom_kills_total";
const COUNTED: &[&str] = &["outcome=\"counted\""];

/// A recommender with a workload of two pods.
pub struct Recommender {
    fixture: Fixture,
    /// The time of the samples that are served.
    now: Cell<Timestamp>,
    /// The number of samples in the checkpoints when it was last checked.
    samples: RefCell<BTreeMap<String, u64>>,
}

impl FaultSubject for Recommender {
    const ROLE: &str = "recommender";
    const LEASE: Option<&str> = Some("vpa-recommender-lease");
    const WITHOUT_LEASE: &[&str] = &["--leader-elect=false"];
    const ACTION: RoleWrite = VpaStatus;
    const ACTIONS: Option<usize> = None;
    const CRASHES: &[HeldMoment] = &[
        (VpaStatus, HoldPoint::Request),
        (VpaStatus, HoldPoint::Answer),
        (Checkpoint, HoldPoint::Request),
        (Checkpoint, HoldPoint::Answer),
    ];
    // Otherwise its watches wait for ten seconds before they notice that the server is back.
    const OUTAGE_OUTLASTS_LEASE: bool = false;
    const OUTAGE_LOG: &[&[&str]] = &[
        &["watch failed; retrying", "verticalpodautoscalers"],
        &["failed to fetch usage; recommendations are based on earlier samples"],
    ];

    async fn new(_name: &str, private: bool) -> Option<Self> {
        const NAMES: &[&str] = &["web"];
        let fixture =
            if private { Fixture::private(NAMES).await } else { Fixture::new(NAMES).await }?;
        let now = Cell::new(wall_now() - SignedDuration::from_hours(72));
        fixture.usage.at(now.get());
        Some(Self { fixture, now, samples: RefCell::default() })
    }

    fn bed(&self) -> &Testbed {
        &self.fixture.bed
    }

    fn namespace(&self) -> &str {
        &self.fixture.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        let namespace = &self.fixture.namespace;
        vec![
            "--recommender-interval=500ms".to_owned(),
            "--checkpoint-interval=500ms".to_owned(),
            "--bounds-dead-band=0".to_owned(),
            format!("--vpa-object-namespace={namespace}"),
            format!("--leader-elect-resource-namespace={namespace}"),
            format!("--address=127.0.0.1:{port}"),
        ]
    }

    /// The next hour begins.
    fn add_work(&self) {
        self.now.set(self.now.get() + HOUR);
        self.fixture.usage.at(self.now.get());
        self.fixture.usage.set_fault(MetricsApi::Resource, None);
    }

    async fn wait_during_outage(&self, process: &RoleProcess) {
        process.wait_for_increase(PASSES, TOTAL, 5).await;
        let errors = ["is_error=\"true\""];
        process.wait_for_increase("vpa_recommender_metric_server_responses", &errors, 1).await;
        let vpas = ["feed=\"verticalpodautoscalers\""];
        process.wait_for_metric("plimsoll_feed_errors_total", &vpas, |errors| errors >= 1.0).await;
    }

    async fn assert_done_once(&self, process: &RoleProcess, _unmade: usize) {
        let fixture = &self.fixture;
        process.wait_until_ready().await;
        let stored = fixture.samples().await;
        let before = self.samples.replace(stored.clone());
        assert!(stored.get("web") >= before.get("web"), "history was lost: {before:?} {stored:?}");
        // It still observes its pods: their samples and OOM kills.
        self.add_work();
        wait::until("the samples of the new hour are saved", || async {
            (fixture.samples().await.get("web") > stored.get("web")).then_some(())
        })
        .await;
        fixture.usage.set_fault(MetricsApi::Resource, Some(Fault::Status(503)));
        let kills = process.metric(KILLS, COUNTED).await.expect("response");
        fixture.oom_kill("web").await;
        process.wait_for_metric(KILLS, COUNTED, |counted| counted == kills + 1.0).await;
        process.wait_for_increase(PASSES, TOTAL, 2).await;
        // A process that starts now would continue with the published recommendation, and count no kill again.
        wait::until_ok("the checkpoints give the published recommendation", || async {
            let published = fixture.recommendations().await;
            let (wanted, uncounted) = fixture.expected_from_checkpoints(wall_now().into()).await;
            let is_whole = uncounted == 0.0 && !targets(&wanted).is_empty();
            if is_whole && targets(&wanted) == targets(&published) {
                return Ok(());
            }
            Err(format!("{uncounted} kills uncounted, published {published:?}, stored {wanted:?}"))
        })
        .await;
    }
}
