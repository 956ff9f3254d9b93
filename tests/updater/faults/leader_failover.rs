//! Two replicas, one of them the leader: it dies in the middle of a rollout, or freezes there and resumes.

use plimsoll_core::updater::guard::BudgetKind;

use crate::support::{Testbed, wait};
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{self, deployment, recorded_disruptions, vpa},
    proxy::{HoldPoint, HoldingProxy, RoleWrite},
    role_process::{FAST_FLAGS, LONG_LEASE_FLAGS, RoleProcess, SHORT_LEASE_FLAGS, expire_lease},
    sizing_webhook::SizingWebhook,
};

async fn holder(bed: &Testbed, namespace: &str) -> String {
    wait::until("a replica leads", || async {
        let holder = fixture::lease(bed, namespace).await.spec?.holder_identity?;
        (!holder.is_empty()).then_some(holder)
    })
    .await
}

async fn wait_for_other_holder(bed: &Testbed, namespace: &str, before: &str) -> String {
    wait::until("another replica leads", || async {
        let now = holder(bed, namespace).await;
        (now != before).then_some(now)
    })
    .await
}

/// Two replicas. The first one leads and is held at this point of its first eviction.
struct Fixture {
    bed: Testbed,
    namespace: String,
    _webhook: SizingWebhook,
    availability: AvailabilityWatch,
    proxy: HoldingProxy,
    _other: HoldingProxy,
    first: RoleProcess,
    second: RoleProcess,
    leader: String,
}

impl Fixture {
    /// The first replica has this Lease; the Lease of the second one outlives the test, so it stays the leader.
    async fn new(name: &str, side: HoldPoint, lease: &[&str]) -> Option<Self> {
        let (bed, namespace) = fixture::testbed_and_namespace(name).await?;
        deployment(&bed, &namespace, "web", 8).await;
        let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
        let (proxy, standby_proxy) = (
            HoldingProxy::start(&bed, &namespace).await,
            HoldingProxy::start(&bed, &format!("{namespace}-other")).await,
        );
        vpa(&bed, &namespace, "web", "Recreate", "250m").await;
        let webhook = SizingWebhook::start(&bed, &namespace, "web", "250m").await;
        fixture::wait_for_age(&bed, &namespace, "web", 6).await;
        proxy.hold((RoleWrite::Eviction, side));
        let first = RoleProcess::start(
            &bed,
            "first",
            &namespace,
            proxy.kubeconfig(),
            &[FAST_FLAGS, lease].concat(),
        );
        proxy.wait_until_held().await;
        let leader = holder(&bed, &namespace).await;
        let flags = [FAST_FLAGS, LONG_LEASE_FLAGS].concat();
        let second =
            RoleProcess::start(&bed, "second", &namespace, standby_proxy.kubeconfig(), &flags);
        second.wait_until_ready().await;
        let writes = standby_proxy.attempted_writes();
        // If the machine stalled for longer than the Lease, the second replica leads already, which is correct.
        if holder(&bed, &namespace).await == leader {
            assert_eq!(writes, [""; 0], "a standby writes nothing");
        }
        Some(Self {
            bed,
            namespace,
            _webhook: webhook,
            availability,
            proxy,
            _other: standby_proxy,
            first,
            second,
            leader,
        })
    }
}

#[tokio::test]
async fn a_standby_continues_the_rollout_of_a_crashed_leader() {
    let Some(fixture) = Fixture::new("failover", HoldPoint::Answer, LONG_LEASE_FLAGS).await else {
        return;
    };
    let Fixture { bed, namespace, _webhook, availability, _other, first, second, leader, .. } =
        fixture;
    assert_eq!(first.end("KILL").await, 137);
    expire_lease(&bed, &namespace, "vpa-updater").await;
    wait_for_other_holder(&bed, &namespace, &leader).await;
    availability.wait_for_cpu(8, "250m").await;
    second.wait_for_passes(3).await;
    availability.wait_until_available(8).await;
    assert_eq!(
        availability.total_pods(),
        16,
        "each was evicted once: {:?}",
        availability.requests_over_time()
    );
    assert!(
        availability.min_available() >= 4,
        "only {} of 8 were ready",
        availability.min_available()
    );
    assert_eq!(
        recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await,
        8,
        "both recorded in one ledger"
    );
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test]
async fn a_leader_that_froze_during_a_rollout_starts_nothing_after_it_resumes() {
    let Some(fixture) = Fixture::new("frozen", HoldPoint::Request, SHORT_LEASE_FLAGS).await else {
        return;
    };
    let Fixture { bed, namespace, _webhook, availability, proxy, _other, first, second, leader } =
        fixture;
    first.signal("STOP");
    let next = wait_for_other_holder(&bed, &namespace, &leader).await;
    wait::until("the next replica continues", || async {
        (availability.count_with_cpu("250m") > 0).then_some(())
    })
    .await;
    let writes = proxy.attempted_writes();

    first.signal("CONT");
    proxy.release();
    // The eviction in flight gets its response, and the next step does not start.
    first.wait_for_log(&["new leader elected", &next]).await;
    availability.wait_for_cpu(8, "250m").await;
    second.wait_for_passes(3).await;
    availability.wait_until_available(8).await;
    assert_eq!(proxy.attempted_writes(), writes, "the frozen leader starts nothing");
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction).len(), 1);
    assert_eq!(
        availability.total_pods(),
        16,
        "each was evicted once: {:?}",
        availability.requests_over_time()
    );
    assert!(
        availability.min_available() >= 4,
        "only {} of 8 were ready",
        availability.min_available()
    );
    assert_eq!(holder(&bed, &namespace).await, next);
    assert_eq!(recorded_disruptions(&bed, &namespace, BudgetKind::Disruption).await, 8);
    let controlled = "vpa_updater_controlled_pods_total";
    assert_eq!(second.metric(controlled, &[]).await, Some(8.0));
    wait::until("it no longer exports what it observed as leader", || async {
        (first.metric(controlled, &[]).await? == 0.0).then_some(())
    })
    .await;

    // It is a standby, and takes over when the other one stops.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(
        wait_for_other_holder(&bed, &namespace, &next).await,
        leader,
        "the released holder name"
    );
    first.wait_for_passes(2).await;
    assert_eq!(availability.total_pods(), 16);
}
