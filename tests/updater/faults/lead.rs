//! Two replicas, of which one leads: it dies in the middle of a rollout, or freezes there and thaws.

use plimsoll_core::updater::guard::Charge;

use crate::support::{Bed, wait};
use crate::updater::{
    process::{BRIEF, BRISK, LASTING, Process, expire},
    referee::Referee,
    stage::{self, booked, deployment, vpa},
    way::{Side, Way, What},
    webhook::Webhook,
};

async fn holder(bed: &Bed, namespace: &str) -> String {
    wait::until("somebody leads", || async {
        let holder = stage::lease(bed, namespace).await.spec?.holder_identity?;
        (!holder.is_empty()).then_some(holder)
    })
    .await
}

async fn other_than(bed: &Bed, namespace: &str, before: &str) -> String {
    wait::until("another one leads", || async {
        let now = holder(bed, namespace).await;
        (now != before).then_some(now)
    })
    .await
}

/// Two replicas, the first of which leads and waits at this moment of its first eviction.
struct Scene {
    bed: Bed,
    namespace: String,
    _webhook: Webhook,
    referee: Referee,
    way: Way,
    _other: Way,
    first: Process,
    second: Process,
    leader: String,
}

impl Scene {
    /// The first one has this Lease; that of the second one outlives the test, so that it leads to the end of it.
    async fn set(name: &str, side: Side, lease: &[&str]) -> Option<Self> {
        let (bed, namespace) = stage::place(name).await?;
        deployment(&bed, &namespace, "web", 8).await;
        let referee = Referee::watch(bed.client(), &namespace, "web").await;
        let (way, other) =
            (Way::to(&bed, &namespace).await, Way::to(&bed, &format!("{namespace}-other")).await);
        vpa(&bed, &namespace, "web", "Recreate", "250m").await;
        let webhook = Webhook::start(&bed, &namespace, "web", "250m").await;
        stage::aged(&bed, &namespace, "web", 6).await;
        way.hold((What::Eviction, side));
        let first =
            Process::start(&bed, "first", &namespace, way.kubeconfig(), &[BRISK, lease].concat());
        way.reached().await;
        let leader = holder(&bed, &namespace).await;
        let flags = [BRISK, LASTING].concat();
        let second = Process::start(&bed, "second", &namespace, other.kubeconfig(), &flags);
        second.ready().await;
        let writes = other.writes();
        // Where the machine stood still for longer than the Lease, it leads already, and rightly.
        if holder(&bed, &namespace).await == leader {
            assert_eq!(writes, [""; 0], "a standby writes nothing");
        }
        Some(Self {
            bed,
            namespace,
            _webhook: webhook,
            referee,
            way,
            _other: other,
            first,
            second,
            leader,
        })
    }
}

#[tokio::test]
async fn a_leader_that_dies_in_the_middle_of_a_rollout_is_followed_by_one_that_goes_on_from_there()
{
    let Some(scene) = Scene::set("failover", Side::Answer, LASTING).await else { return };
    let Scene { bed, namespace, _webhook, referee, _other, first, second, leader, .. } = scene;
    assert_eq!(first.end("KILL").await, 137);
    expire(&bed, &namespace, "vpa-updater").await;
    other_than(&bed, &namespace, &leader).await;
    referee.have(8, "250m").await;
    second.passes(3).await;
    referee.settled(8).await;
    assert_eq!(referee.ever(), 16, "each went once: {:?}", referee.lives());
    assert!(referee.least() >= 4, "{} of 8 were up", referee.least());
    assert_eq!(booked(&bed, &namespace, Charge::Disruption).await, 8, "both booked in one ledger");
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test]
async fn a_leader_that_freezes_in_the_middle_of_a_rollout_and_thaws_does_nothing_any_more() {
    let Some(scene) = Scene::set("frozen", Side::Request, BRIEF).await else { return };
    let Scene { bed, namespace, _webhook, referee, way, _other, first, second, leader } = scene;
    first.signal("STOP");
    let next = other_than(&bed, &namespace, &leader).await;
    wait::until("the next one goes on", || async { (referee.with("250m") > 0).then_some(()) })
        .await;
    let writes = way.writes();

    first.signal("CONT");
    way.release();
    // The eviction that was under way is answered, and the next step is not begun.
    first.logs(&["new leader elected", &next]).await;
    referee.have(8, "250m").await;
    second.passes(3).await;
    referee.settled(8).await;
    assert_eq!(way.writes(), writes, "who was frozen begins nothing");
    assert_eq!(way.tried(What::Eviction).len(), 1);
    assert_eq!(referee.ever(), 16, "each went once: {:?}", referee.lives());
    assert!(referee.least() >= 4, "{} of 8 were up", referee.least());
    assert_eq!(holder(&bed, &namespace).await, next);
    assert_eq!(booked(&bed, &namespace, Charge::Disruption).await, 8);
    let controlled = "vpa_updater_controlled_pods_total";
    assert_eq!(second.metric(controlled, &[]).await, Some(8.0));
    wait::until("it tells nothing any more of what it saw when it led", || async {
        (first.metric(controlled, &[]).await? == 0.0).then_some(())
    })
    .await;

    // It is a standby, and takes over when the other one goes.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(other_than(&bed, &namespace, &next).await, leader, "by the name that it had");
    first.passes(2).await;
    assert_eq!(referee.ever(), 16);
}
