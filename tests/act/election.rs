//! Elections on a real API server: at most one leads, and somebody does again soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use plimsoll::act::{Election, ElectionOptions, ElectionState, Fence, Standing};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::MINUTE;
use crate::support::{Bed, wait};

const NAME: &str = "vpa-recommender-lease";
const LEASE: Duration = Duration::from_secs(3);

/// A contender as a role has one.
struct Contender {
    fence: Fence,
    state: ElectionState,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Contender {
    /// One of short times: 3 s, 2 s, 0.5 s.
    fn start(client: Client, namespace: &str, identity: &str) -> Self {
        Self::start_with(client, namespace, identity, [3000, 2000, 500])
    }

    fn start_with(client: Client, namespace: &str, identity: &str, times: [u64; 3]) -> Self {
        let [lease_duration, renew_deadline, retry_period] = times.map(Duration::from_millis);
        let options = ElectionOptions {
            name: NAME.into(),
            namespace: namespace.into(),
            identity: identity.into(),
            lease_duration,
            renew_deadline,
            retry_period,
        };
        options.check().expect("times that go together");
        let fence = Fence::closed();
        let election = Election::new(client, options, fence.clone());
        let state = election.state();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(election.run(async {
            let _ = stopped.await;
        }));
        Self { fence, state, task, stop }
    }

    async fn leads(&self) {
        tokio::time::timeout(MINUTE, self.fence.held()).await.expect("it leads");
    }

    /// Whoever has the lease says so a moment later.
    async fn says_so(&self) {
        wait::until("it says that it leads", || async {
            (self.state.standing() == Standing::Leading).then_some(())
        })
        .await;
    }

    /// Ends as a process does that is told to.
    async fn end(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("no panic");
        assert!(!self.fence.is_held());
    }

    /// Ends as a process does that is killed. Its fence goes on, as it would in one that is only frozen.
    fn crash(&self) {
        self.task.abort();
    }
}

/// Watches fences, as often as a core can.
struct Referee {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<(usize, usize)>>,
}

impl Referee {
    fn watch(fences: Vec<Fence>) -> Self {
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = std::thread::spawn({
            let (stop, looks) = (Arc::clone(&stop), Arc::clone(&looks));
            move || {
                let mut both = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    for (one, first) in fences.iter().enumerate() {
                        for (two, second) in fences.iter().enumerate().skip(one + 1) {
                            // The first once more, because a handover may lie between two looks.
                            if first.is_held() && second.is_held() && first.is_held() {
                                both.push((one, two));
                            }
                        }
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(500));
                }
                both
            }
        });
        Self { stop, looks, thread }
    }

    fn saw_never_two(self) {
        self.stop.store(true, Ordering::Relaxed);
        let both = self.thread.join().expect("no panic");
        assert_eq!(both, [], "two held at once");
        assert!(self.looks.load(Ordering::Relaxed) > 500, "hardly a look");
    }
}

fn leases(bed: &Bed, namespace: &str) -> Api<Lease> {
    Api::namespaced(bed.client(), namespace)
}

async fn by_hand(bed: &Bed, namespace: &str, spec: serde_json::Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    leases(bed, namespace).patch(NAME, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_leads_through_crashes_handovers_and_meddling() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("election").await;
    let start = |identity| Contender::start(bed.client(), &namespace, identity);

    let first = start("first");
    first.leads().await;
    let second = start("second");
    assert_eq!(second.state.decided().await, Standing::Standby);
    assert_eq!(second.state.holder().as_deref(), Some("first"));
    let third = start("third");
    assert_eq!(third.state.decided().await, Standing::Standby);
    let referee =
        Referee::watch([&first, &second, &third].map(|contender| contender.fence.clone()).into());

    // A crash in the middle between two renewals.
    let renewal = || async {
        let spec = leases(&bed, &namespace).get(NAME).await.expect("readable").spec;
        spec.expect("a spec").renew_time
    };
    let before = renewal().await;
    wait::until("a renewal", || async { (renewal().await != before).then_some(()) }).await;
    let seen = Instant::now();
    wait::until("a while", || async { (seen.elapsed() > LEASE / 12).then_some(()) }).await;
    first.crash();
    let crashed = Instant::now();
    let leader = wait::until("another one leads", || async {
        [&second, &third].into_iter().position(|contender| contender.fence.is_held())
    })
    .await;
    let took = crashed.elapsed();
    // What the server takes for it comes on top of the lease.
    assert!(took <= LEASE + LEASE / 6, "a takeover took {took:?}");
    assert!(took > LEASE / 2, "the lease of the crashed one was not respected: {took:?}");
    assert!(!first.fence.is_held(), "its fence ran out by itself");

    let (leader, standby) = if leader == 0 { (second, third) } else { (third, second) };
    leader.says_so().await;
    assert_eq!(leader.state.transitions(), 1);

    // Somebody gives the lease to another one.
    by_hand(&bed, &namespace, json!({"holderIdentity": "nobody", "leaseDurationSeconds": 1})).await;
    tokio::time::timeout(MINUTE, leader.fence.lost()).await.expect("the leader sees it");
    let leads_again = wait::until("one leads when that one does not renew", || async {
        [&leader, &standby].into_iter().position(|contender| contender.fence.is_held())
    })
    .await;
    let (leader, standby) = if leads_again == 0 { (leader, standby) } else { (standby, leader) };

    // Somebody deletes it.
    let api = leases(&bed, &namespace);
    api.delete(NAME, &DeleteParams::default()).await.expect("deleted");
    wait::until("somebody leads under a new lease", || async {
        let lease = api.get_opt(NAME).await.expect("readable")?;
        let holder = lease.spec?.holder_identity?;
        let contenders = [("second", "third"), ("third", "second")];
        assert!(contenders.iter().any(|(one, _)| *one == holder), "{holder}");
        Some(())
    })
    .await;
    let (leader, standby) = wait::until("its fence is held", || async {
        [(&leader, &standby), (&standby, &leader)].into_iter().find(|(one, _)| one.fence.is_held())
    })
    .await;
    // Whether two ever held it at the same time only the referee can tell: here the two are not looked at at once.
    referee.saw_never_two();
    for contender in [leader, standby] {
        contender.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_handover_with_upstreams_times_takes_less_than_two_seconds() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("handover").await;
    let start = |identity| {
        Contender::start_with(bed.client(), &namespace, identity, [15_000, 10_000, 2_000])
    };
    let mut leader = start("0");
    leader.leads().await;
    for next in ["1", "2"] {
        let standby = start(next);
        assert_eq!(standby.state.decided().await, Standing::Standby);
        let referee = Referee::watch(vec![leader.fence.clone(), standby.fence.clone()]);
        let asked = Instant::now();
        leader.end().await;
        standby.leads().await;
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(2), "a handover took {took:?}");
        wait::until("the referee has looked", || async {
            (referee.looks.load(Ordering::Relaxed) > 500).then_some(())
        })
        .await;
        referee.saw_never_two();
        leader = standby;
    }
    assert_eq!(leader.state.transitions(), 2);
    leader.end().await;
    let spec = leases(&bed, &namespace).get(NAME).await.expect("readable").spec;
    assert_eq!(spec.expect("a spec").holder_identity.as_deref(), Some(""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_api_server_nobody_leads_and_with_it_one_does_again() {
    let Some(bed) = Bed::bare().await else { return };
    let one = Contender::start(bed.client(), "default", "one");
    one.leads().await;
    let two = Contender::start(bed.client(), "default", "two");
    assert_eq!(two.state.decided().await, Standing::Standby);
    let referee = Referee::watch(vec![one.fence.clone(), two.fence.clone()]);

    bed.control_plane().kill_api_server().await;
    let killed = Instant::now();
    tokio::time::timeout(MINUTE, one.fence.lost()).await.expect("it runs out");
    assert!(killed.elapsed() < LEASE, "within the lease: {:?}", killed.elapsed());
    wait::until("both say that they cannot tell", || async {
        [&one, &two]
            .into_iter()
            .all(|one| matches!(one.state.standing(), Standing::Unreachable(_)))
            .then_some(())
    })
    .await;
    assert!(!two.fence.is_held());

    bed.control_plane().restart_api_server().await;
    let back = wait::until("one leads again", || async {
        [&one, &two].into_iter().find(|contender| contender.fence.is_held())
    })
    .await;
    back.says_so().await;
    referee.saw_never_two();
    one.task.abort();
    two.task.abort();
}

#[tokio::test]
async fn upstreams_rules_are_enough_and_without_them_one_line_says_what_to_add() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("forbidden").await;
    let account = bed.account(&namespace, "recommender").await;
    let contender = Contender::start(account.client.clone(), &namespace, "one");
    let Standing::Forbidden(line) = contender.state.decided().await else {
        panic!("{:?}", contender.state.standing())
    };
    assert!(!line.contains('\n'), "{line}");
    for words in [&format!("{namespace}/{NAME}"), "add to the role", r#"verbs: ["update"]"#] {
        assert!(line.contains(words), "{words:?} is not in {line}");
    }
    assert!(!contender.fence.is_held());

    super::access::grant(&bed, &namespace, "recommender", &[
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": [NAME], "verbs": ["get", "watch", "update"]}),
    ])
    .await;
    contender.leads().await;
    contender.end().await;
}
