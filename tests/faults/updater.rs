//! Updaters with eight pods to change. The webhook of the namespace sizes replacement pods, so each pod has a reason to be
//! changed once and none to be changed twice.

use std::collections::BTreeSet;

use plimsoll_core::updater::guard::BudgetKind;

use super::{FaultSubject, testbed_and_namespace};
use crate::{
    support::{
        Testbed,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, Eviction, Lease, PodAnnotation, Resize, VpaAnnotation},
        },
        role_process::RoleProcess,
    },
    updater::{
        availability_watch::AvailabilityWatch,
        fixture::{
            self, FAST_FLAGS, deployment, pods, recorded_disruptions, uids, vpa, wait_for_age,
            wait_for_passes_of,
        },
        sizing_webhook::SizingWebhook,
    },
};

const PODS: usize = 8;

/// Eight pods, all of the wrong size.
struct Workload {
    bed: Testbed,
    namespace: String,
    availability: AvailabilityWatch,
}

impl Workload {
    async fn new(name: &str, private: bool, mode: &str) -> Option<Self> {
        let (bed, namespace) = testbed_and_namespace(name, private).await?;
        deployment(&bed, &namespace, "web", PODS as u32).await;
        let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
        vpa(&bed, &namespace, "web", mode, "250m").await;
        Some(Self { bed, namespace, availability })
    }

    fn flags(&self, port: u16) -> Vec<String> {
        let mut flags = fixture::flags(&self.namespace, FAST_FLAGS);
        // The last value counts.
        flags.push(format!("--address=127.0.0.1:{port}"));
        flags
    }

    async fn recorded(&self, kind: BudgetKind) -> usize {
        recorded_disruptions(&self.bed, &self.namespace, kind).await as usize
    }
}

/// An updater that evicts pods.
pub struct EvictingUpdater {
    workload: Workload,
    _webhook: SizingWebhook,
}

impl FaultSubject for EvictingUpdater {
    const ROLE: &str = "updater";
    const LEASE: Option<&str> = Some("vpa-updater");
    const WITHOUT_LEASE: &[&str] = &["--leader-elect=false"];
    const ACTION: RoleWrite = Eviction;
    const ACTIONS: Option<usize> = Some(PODS);
    const CRASHES: &[HeldMoment] = &[
        (Lease, HoldPoint::Request),
        (Lease, HoldPoint::Answer),
        (VpaAnnotation, HoldPoint::Request),
        // From here on the eviction counts as made, although it was not; it takes ten minutes until it counts as failed.
        (VpaAnnotation, HoldPoint::Answer),
        (Eviction, HoldPoint::Request),
        (Eviction, HoldPoint::Answer),
    ];
    const UNMADE_AFTER_CRASHES: usize = 2;
    const LEADER_METRICS: &[&str] = &["vpa_updater_controlled_pods_total"];

    async fn new(name: &str, private: bool) -> Option<Self> {
        let workload = Workload::new(name, private, "Recreate").await?;
        let (bed, namespace) = (&workload.bed, &workload.namespace);
        let webhook = SizingWebhook::start(bed, namespace, "web", "250m").await;
        wait_for_age(bed, namespace, "web", 6).await;
        Some(Self { workload, _webhook: webhook })
    }

    fn bed(&self) -> &Testbed {
        &self.workload.bed
    }

    fn namespace(&self) -> &str {
        &self.workload.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        self.workload.flags(port)
    }

    async fn assert_done_once(&self, process: &RoleProcess, unmade: usize) {
        let availability = &self.workload.availability;
        availability.wait_for_cpu(PODS - unmade, "250m").await;
        wait_for_passes_of(process, 3).await;
        availability.wait_until_available(PODS).await;
        assert_eq!(availability.count_with_cpu("250m"), PODS - unmade);
        let requests = availability.requests_over_time();
        assert_eq!(availability.total_pods(), 2 * PODS - unmade, "evicted twice: {requests:?}");
        let least = availability.min_available();
        assert!(least >= PODS / 2, "only {least} of {PODS} were ready");
        let recorded = self.workload.recorded(BudgetKind::Disruption).await;
        let wanted = PODS - unmade..=PODS + unmade;
        assert!(wanted.contains(&recorded), "{recorded} disruptions recorded, not {wanted:?}");
    }
}

/// An updater that resizes pods in place.
pub struct ResizingUpdater {
    workload: Workload,
    uids: BTreeSet<String>,
}

impl FaultSubject for ResizingUpdater {
    const ROLE: &str = EvictingUpdater::ROLE;
    const LEASE: Option<&str> = EvictingUpdater::LEASE;
    const WITHOUT_LEASE: &[&str] = EvictingUpdater::WITHOUT_LEASE;
    const ACTION: RoleWrite = Resize;
    const ACTIONS: Option<usize> = Some(PODS);
    const CRASHES: &[HeldMoment] = &[
        (VpaAnnotation, HoldPoint::Answer),
        (Resize, HoldPoint::Request),
        (Resize, HoldPoint::Answer),
        (PodAnnotation, HoldPoint::Request),
        (PodAnnotation, HoldPoint::Answer),
    ];
    const UNMADE_AFTER_CRASHES: usize = 2;
    const OUTAGE: (usize, HeldMoment) = (2, (VpaAnnotation, HoldPoint::Request));
    const OUTAGE_LOG: &[&[&str]] = &[
        &["failed to persist the intent of a change; skipping the change"],
        &["watch failed; retrying", "verticalpodautoscalers"],
    ];

    async fn new(name: &str, private: bool) -> Option<Self> {
        let workload = Workload::new(name, private, "InPlaceOrRecreate").await?;
        let uids = uids(&pods(&workload.bed.client(), &workload.namespace, "web").await);
        Some(Self { workload, uids })
    }

    fn bed(&self) -> &Testbed {
        &self.workload.bed
    }

    fn namespace(&self) -> &str {
        &self.workload.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        self.workload.flags(port)
    }

    async fn wait_during_outage(&self, process: &RoleProcess) {
        let passes = "plimsoll_loop_last_success_timestamp_seconds";
        process.wait_for_increase(passes, &["role=\"updater\""], 1).await;
    }

    async fn assert_done_once(&self, process: &RoleProcess, unmade: usize) {
        let Workload { bed, namespace, availability } = &self.workload;
        availability.wait_for_cpu(PODS - unmade, "250m").await;
        wait_for_passes_of(process, 3).await;
        assert_eq!(uids(&pods(&bed.client(), namespace, "web").await), self.uids, "evicted");
        let requests = availability.requests_over_time();
        assert_eq!(requests.len(), PODS, "replaced: {requests:?}");
        assert_eq!(requests.values().find(|values| values.len() > 2), None, "resized twice");
        assert_eq!(availability.min_available(), PODS);
        let recorded = self.workload.recorded(BudgetKind::Resize).await;
        // An intent that was recorded without a response is recorded again.
        let most = if unmade == 0 { PODS + 1 } else { PODS };
        let wanted = PODS - unmade..=most;
        assert!(wanted.contains(&recorded), "{recorded} resizes recorded, not {wanted:?}");
    }
}
