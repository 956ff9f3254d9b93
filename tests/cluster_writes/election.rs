//! Elections on a real API server: at most one candidate leads, and eventually another one does. Durations are
//! asserted on virtual time, in `timing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use plimsoll::cluster::leader::{Election, ElectionConfig, ElectionState, Fence, LeaderState};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Testbed, wait};

mod timing;

const NAME: &str = "vpa-recommender-lease";

/// A candidate, as a controller runs it.
struct Candidate {
    fence: Fence,
    state: ElectionState,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Candidate {
    /// A candidate with short durations that still survive a stall of some seconds.
    fn start(client: Client, namespace: &str, identity: &str) -> Self {
        Self::start_with(client, namespace, identity, [9_000, 6_000, 1_000])
    }

    fn start_with(client: Client, namespace: &str, identity: &str, times: [u64; 3]) -> Self {
        Self::start_election(client, namespace, identity, times, |election| election)
    }

    fn start_election(
        client: Client,
        namespace: &str,
        identity: &str,
        times: [u64; 3],
        adjust: impl FnOnce(Election) -> Election,
    ) -> Self {
        let [lease_duration, renew_deadline, retry_period] = times.map(Duration::from_millis);
        let config = ElectionConfig {
            enabled: true,
            name: NAME.into(),
            namespace: namespace.into(),
            lease_duration,
            renew_deadline,
            retry_period,
        };
        let fence = Fence::closed();
        let election =
            adjust(Election::new(client, config, identity.into(), fence.clone(), Arc::default()));
        let state = election.state();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(election.run(async {
            let _ = stopped.await;
        }));
        Self { fence, state, task, stop }
    }

    async fn wait_until_leading(&self) {
        wait::until("it leads", || async { self.fence.is_granted().then_some(()) }).await;
    }

    /// The state is reported shortly after the lease was acquired.
    async fn wait_until_reported(&self) {
        wait::until("it reports that it leads", || async {
            (self.state.leader_state() == LeaderState::Leading).then_some(())
        })
        .await;
    }

    /// Shuts down like a process on SIGTERM.
    async fn shut_down(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("no panic");
        assert!(!self.fence.is_granted());
    }

    /// Stops like a killed process. Its fence continues, as in a frozen process.
    fn crash(&self) {
        self.task.abort();
    }
}

/// Checks the fences of all candidates continuously.
struct LeaderOverlapWatch {
    stop: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<(usize, usize)>>,
}

impl LeaderOverlapWatch {
    fn watch(fences: Vec<Fence>) -> Self {
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = std::thread::spawn({
            let (stop, looks) = (Arc::clone(&stop), Arc::clone(&looks));
            move || {
                let mut both = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    for (one, first) in fences.iter().enumerate() {
                        for (two, second) in fences.iter().enumerate().skip(one + 1) {
                            // Check the first one again, because a handover may happen between two checks.
                            if first.is_granted() && second.is_granted() && first.is_granted() {
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
        Self { stop, checks: looks, thread }
    }

    fn assert_never_two_leaders(self) {
        self.stop.store(true, Ordering::Relaxed);
        let both = self.thread.join().expect("no panic");
        assert_eq!(both, [], "two leaders at once");
        assert!(self.checks.load(Ordering::Relaxed) > 500, "too few checks");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_process_leads_through_a_crash_and_a_release() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("election").await;
    let start = |identity| Candidate::start(bed.client(), &namespace, identity);

    let first = start("first");
    first.wait_until_leading().await;
    let second = start("second");
    assert_eq!(wait::for_election(&second.state).await, LeaderState::Standby);
    assert_eq!(second.state.holder().as_deref(), Some("first"));
    let fences = [&first, &second].map(|contender| contender.fence.clone());
    let referee = LeaderOverlapWatch::watch(fences.into());
    first.crash();
    second.wait_until_leading().await;
    assert!(!first.fence.is_granted(), "its fence expired on its own");
    second.wait_until_reported().await;
    assert_eq!(second.state.transitions(), 1);
    referee.assert_never_two_leaders();

    let third = start("third");
    assert_eq!(wait::for_election(&third.state).await, LeaderState::Standby);
    let referee = LeaderOverlapWatch::watch(vec![second.fence.clone(), third.fence.clone()]);
    second.shut_down().await;
    third.wait_until_leading().await;
    wait::until("the overlap watch has checked", || async {
        (referee.checks.load(Ordering::Relaxed) > 500).then_some(())
    })
    .await;
    referee.assert_never_two_leaders();
    assert_eq!(third.state.transitions(), 2);
    third.shut_down().await;
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let spec = leases.get(NAME).await.expect("readable").spec;
    assert_eq!(spec.expect("a spec").holder_identity.as_deref(), Some(""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_api_server_there_is_no_leader_and_afterwards_there_is_one() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let one = Candidate::start(bed.client(), "default", "one");
    one.wait_until_leading().await;
    let two = Candidate::start(bed.client(), "default", "two");
    assert_eq!(wait::for_election(&two.state).await, LeaderState::Standby);
    let referee = LeaderOverlapWatch::watch(vec![one.fence.clone(), two.fence.clone()]);

    bed.control_plane().kill_api_server().await;
    wait::until("it runs out", || async { (!one.fence.is_granted()).then_some(()) }).await;
    wait::until("both report an unknown leader", || async {
        [&one, &two]
            .into_iter()
            .all(|one| matches!(one.state.leader_state(), LeaderState::Unreachable(_)))
            .then_some(())
    })
    .await;
    assert!(!two.fence.is_granted());

    bed.control_plane().restart_api_server().await;
    let back = wait::until("one leads again", || async {
        [&one, &two].into_iter().find(|contender| contender.fence.is_granted())
    })
    .await;
    back.wait_until_reported().await;
    referee.assert_never_two_leaders();
    one.task.abort();
    two.task.abort();
}

#[tokio::test]
async fn upstreams_rbac_is_sufficient_and_a_missing_rule_is_named_in_one_line() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("forbidden").await;
    let account = bed.service_account(&namespace, "recommender").await;
    let contender = Candidate::start(account.client.clone(), &namespace, "one");
    let LeaderState::Forbidden(line) = wait::for_election(&contender.state).await else {
        panic!("{:?}", contender.state.leader_state())
    };
    assert!(!line.contains('\n'), "{line}");
    for words in [&format!("{namespace}/{NAME}"), "add to the role", r#"verbs: ["update"]"#] {
        assert!(line.contains(words), "{words:?} is not in {line}");
    }
    assert!(!contender.fence.is_granted());

    super::access_review::grant(&bed, &namespace, "recommender", &[
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": [NAME], "verbs": ["get", "watch", "update"]}),
    ])
    .await;
    contender.wait_until_leading().await;
    contender.shut_down().await;
}
