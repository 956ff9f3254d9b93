//! Elections on a real API server: at most one leads, and another one does in the end. How long that takes is asserted on
//! virtual time, in `timing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use plimsoll::act::{Election, ElectionOptions, ElectionState, Fence, Standing};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Bed, wait};

mod timing;

const NAME: &str = "vpa-recommender-lease";

/// A contender as a role has one.
struct Contender {
    fence: Fence,
    state: ElectionState,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Contender {
    /// One of times that are short, and long enough for a machine that stands still for some seconds.
    fn start(client: Client, namespace: &str, identity: &str) -> Self {
        Self::start_with(client, namespace, identity, [9_000, 6_000, 1_000])
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
        wait::until("it leads", || async { self.fence.is_held().then_some(()) }).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_leads_through_a_crash_and_a_handover() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("election").await;
    let start = |identity| Contender::start(bed.client(), &namespace, identity);

    let first = start("first");
    first.leads().await;
    let second = start("second");
    assert_eq!(second.state.decided().await, Standing::Standby);
    assert_eq!(second.state.holder().as_deref(), Some("first"));
    let fences = [&first, &second].map(|contender| contender.fence.clone());
    let referee = Referee::watch(fences.into());
    first.crash();
    second.leads().await;
    assert!(!first.fence.is_held(), "its fence ran out by itself");
    second.says_so().await;
    assert_eq!(second.state.transitions(), 1);
    referee.saw_never_two();

    let third = start("third");
    assert_eq!(third.state.decided().await, Standing::Standby);
    let referee = Referee::watch(vec![second.fence.clone(), third.fence.clone()]);
    second.end().await;
    third.leads().await;
    wait::until("the referee has looked", || async {
        (referee.looks.load(Ordering::Relaxed) > 500).then_some(())
    })
    .await;
    referee.saw_never_two();
    assert_eq!(third.state.transitions(), 2);
    third.end().await;
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let spec = leases.get(NAME).await.expect("readable").spec;
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
    wait::until("it runs out", || async { (!one.fence.is_held()).then_some(()) }).await;
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
