//! Duration of elections, on virtual time with an in-memory API server: bounds are exact on any machine.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plimsoll::cluster::leader::{Fence, LeaderState};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Candidate, NAME};
use crate::support::in_memory_api::{InMemoryApiServer, RecordedRequest};
use crate::support::{api_proxy, captured_log, clock::wall_now, wait};

const NAMESPACE: &str = "kube-system";
/// Lease duration, renew deadline and retry period: upstream's flags, and shorter ones.
const UPSTREAM: [u64; 3] = [15_000, 10_000, 2_000];
const SHORT: [u64; 3] = [3_000, 2_000, 500];
/// Timer inaccuracy: timers have millisecond resolution, and the check at the end of a lease comes one later.
const TICKS: Duration = Duration::from_millis(3);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A server with this latency for each response.
fn slow(latency: Duration) -> InMemoryApiServer {
    InMemoryApiServer::with_interceptor(move |_, _| {
        Box::pin(async move {
            sleep(latency).await;
            None
        })
    })
}

fn start(api: &InMemoryApiServer, identity: &str, times: [u64; 3]) -> Candidate {
    Candidate::start_with(api.client(), NAMESPACE, identity, times)
}

/// The longest interval between two attempts of a standby.
fn longest_retry([_, _, retry]: [u64; 3]) -> Duration {
    (ms(retry) / 2).min(ms(800)).mul_f64(1.5)
}

/// The successful renewals.
fn renewals(api: &InMemoryApiServer) -> Vec<RecordedRequest> {
    let mut requests = api.requests();
    requests.retain(|one| {
        one.method == Method::PUT && one.answered.is_some_and(|(_, code)| code == StatusCode::OK)
    });
    requests
}

async fn next_renewal(api: &InMemoryApiServer) -> RecordedRequest {
    let before = renewals(api).len();
    loop {
        sleep(ms(5)).await;
        if let Some(renewal) = renewals(api).into_iter().nth(before) {
            return renewal;
        }
    }
}

async fn wait_until_leading(contender: &Candidate) -> Instant {
    contender.fence.acquired().await;
    Instant::now()
}

/// Checks the fences every few milliseconds.
struct LeaderOverlaps {
    task: JoinHandle<()>,
    found: Arc<Mutex<Vec<Instant>>>,
}

impl LeaderOverlaps {
    fn watch<const N: usize>(contenders: [&Candidate; N]) -> Self {
        let fences: Vec<Fence> = contenders.iter().map(|one| one.fence.clone()).collect();
        let found: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let noted = Arc::clone(&found);
        let task = tokio::spawn(async move {
            loop {
                if fences.iter().filter(|fence| fence.is_granted()).count() > 1 {
                    noted.lock().expect("no panic").push(Instant::now());
                }
                sleep(ms(5)).await;
            }
        });
        Self { task, found }
    }

    fn assert_none(self) {
        self.task.abort();
        assert_eq!(*self.found.lock().expect("no panic"), [], "two leaders at once");
    }
}

#[tokio::test(start_paused = true)]
async fn standbys_report_the_leader_and_log_leader_changes_like_client_go() {
    let (log, _guard) = captured_log::capture();
    let api = InMemoryApiServer::new();
    let first = start(&api, "first", SHORT);
    wait_until_leading(&first).await;
    sleep(ms(2_000)).await;
    assert_eq!(log.lines(&["became leader"]).len(), 1, "{}", log.tail());
    assert!(log.lines(&["new leader elected"]).is_empty(), "it is itself: {}", log.tail());
    let second = start(&api, "second", SHORT);
    assert_eq!(wait::for_election(&second.state).await, LeaderState::Standby);
    assert_eq!(log.lines(&["new leader elected", "first"]).len(), 1, "{}", log.tail());
    first.shut_down().await;
    wait_until_leading(&second).await;
    assert_eq!(log.lines(&["released leader lease"]).len(), 1, "{}", log.tail());
    assert_eq!(log.lines(&["became leader"]).len(), 2, "{}", log.tail());
    assert_eq!(log.lines(&["new leader elected"]).len(), 1, "{}", log.tail());
    second.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_lasts_the_lease_duration_and_its_requests() {
    for times in [UPSTREAM, SHORT] {
        let lease = ms(times[0]);
        for latency in [0, 100].map(ms) {
            for after in [0, times[2] / 2, times[2] - 1].map(ms) {
                let api = slow(latency);
                let first = start(&api, "first", times);
                wait_until_leading(&first).await;
                let second = start(&api, "second", times);
                assert_eq!(wait::for_election(&second.state).await, LeaderState::Standby);
                let overlaps = LeaderOverlaps::watch([&first, &second]);
                sleep(ms(times[2])).await;
                let renewed = next_renewal(&api).await;
                let (written, _) = renewed.answered.expect("it was answered");
                sleep_until(written + after).await;
                first.crash();
                let took = wait_until_leading(&second).await - written;
                let case = format!(
                    "{times:?}, {latency:?} a request, {after:?} after a renewal: {took:?}"
                );
                // One attempt that observes the end of the lease, and the write.
                assert!(took <= lease + latency * 3 + TICKS, "{case}");
                assert!(took + longest_retry(times) >= lease, "{case}");
                assert!(!first.fence.is_granted(), "{case}");
                sleep(ms(times[2]) * 2).await;
                assert_eq!(second.state.transitions(), 1, "{case}");
                overlaps.assert_none();
                second.task.abort();
            }
        }
    }
}

/// At any time, also while a renewal is being sent.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_may_not_lead_writes_nothing_and_releases_its_lease() {
    for latency in [0, 100].map(ms) {
        for after in [0, 30, 250, 499, 550].map(ms) {
            let api = slow(latency);
            let may_lead = tokio::sync::watch::Sender::new(false);
            let first = Candidate::start_election(api.client(), NAMESPACE, "first", SHORT, |one| {
                one.only_while(may_lead.subscribe())
            });
            let case = format!("{latency:?} a request, {after:?} after it began to lead");
            sleep(ms(5_000)).await;
            assert!(!first.fence.is_granted() && renewals(&api).is_empty(), "{case}");
            let is_post = |one: &RecordedRequest| one.method == Method::POST;
            assert!(!api.requests().iter().any(is_post), "{case}");

            may_lead.send_replace(true);
            wait_until_leading(&first).await;
            let second = start(&api, "second", SHORT);
            sleep(after).await;
            let overlaps = LeaderOverlaps::watch([&first, &second]);
            // As the code that changes it does.
            may_lead.send_replace(false);
            first.fence.revoke();
            let fence = first.fence.clone();
            let never_again = tokio::spawn(async move {
                fence.acquired().await;
                Instant::now()
            });
            let revoked_at = Instant::now();
            let taken_over = wait_until_leading(&second).await - revoked_at;
            // The request in flight, the release, and an attempt of the other one.
            assert!(
                taken_over <= latency * 6 + longest_retry(SHORT) + TICKS,
                "{case}: {taken_over:?}"
            );
            sleep(ms(5_000)).await;
            assert!(!never_again.is_finished(), "{case}");
            assert_eq!(first.state.leader_state(), LeaderState::Standby, "{case}");
            overlaps.assert_none();
            second.shut_down().await;

            may_lead.send_replace(true);
            let leads_again = never_again.await.expect("no panic");
            assert!(leads_again >= revoked_at + ms(5_000), "{case}");
            first.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_with_the_next_attempt() {
    for times in [UPSTREAM, SHORT] {
        for latency in [0, 20, 100].map(ms) {
            let api = slow(latency);
            let mut leader = start(&api, "0", times);
            wait_until_leading(&leader).await;
            for next in 1..=4_u64 {
                let standby = start(&api, &next.to_string(), times);
                assert_eq!(wait::for_election(&standby.state).await, LeaderState::Standby);
                let overlaps = LeaderOverlaps::watch([&leader, &standby]);
                sleep(ms(next * 777)).await;
                let start = Instant::now();
                let (took, ()) = tokio::join!(
                    async { wait_until_leading(&standby).await - start },
                    leader.shut_down()
                );
                // A request in flight, the release, an attempt in flight, the next one, and the write.
                assert!(
                    took <= longest_retry(times) + latency * 5 + TICKS,
                    "{latency:?}: {took:?}"
                );
                assert!(took < ms(2_000), "{latency:?}: {took:?}");
                sleep(ms(1_000)).await;
                overlaps.assert_none();
                leader = standby;
            }
            assert_eq!(leader.state.transitions(), 4);
            leader.shut_down().await;
        }
    }
}

const FINE: u8 = 0;
const REFUSES: u8 = 1;
const HANGS: u8 = 2;

#[tokio::test(start_paused = true)]
async fn an_unreachable_leader_leads_until_its_renew_deadline_and_leads_again_later() {
    for (fault, longest) in [(REFUSES, longest_retry(UPSTREAM)), (HANGS, ms(UPSTREAM[1] / 2))] {
        let state = Arc::new(AtomicU8::new(FINE));
        let api = InMemoryApiServer::with_interceptor({
            let state = Arc::clone(&state);
            move |_, _| match state.load(Ordering::Relaxed) {
                REFUSES => api_proxy::respond_with(503, None),
                HANGS => api_proxy::hang(),
                _ => api_proxy::pass_through(),
            }
        });
        let one = start(&api, "one", UPSTREAM);
        wait_until_leading(&one).await;
        let two = start(&api, "two", UPSTREAM);
        assert_eq!(wait::for_election(&two.state).await, LeaderState::Standby);
        let overlaps = LeaderOverlaps::watch([&one, &two]);
        let renewed = next_renewal(&api).await;
        let term = one.fence.term().expect("it leads");
        state.store(fault, Ordering::Relaxed);
        one.fence.revoked(term).await;
        assert_eq!(
            Instant::now() - renewed.at,
            ms(UPSTREAM[1]),
            "since the request that renewed it"
        );
        sleep(ms(UPSTREAM[1])).await;
        for contender in [&one, &two] {
            let standing = contender.state.leader_state();
            assert!(matches!(standing, LeaderState::Unreachable(_)), "{standing:?}");
            assert!(!contender.fence.is_granted());
        }
        // The lease has expired by now, so the first candidate that tries acquires it.
        state.store(FINE, Ordering::Relaxed);
        let back = Instant::now();
        tokio::select! {
            _ = wait_until_leading(&one) => {}
            _ = wait_until_leading(&two) => {}
        }
        let took = Instant::now() - back;
        assert!(took <= longest + longest_retry(UPSTREAM) + TICKS, "{took:?}");
        sleep(ms(20_000)).await;
        overlaps.assert_none();
        one.task.abort();
        two.task.abort();
    }
}

fn leases(api: &InMemoryApiServer) -> Api<Lease> {
    Api::namespaced(api.client(), NAMESPACE)
}

async fn write(api: &InMemoryApiServer, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    leases(api).patch(NAME, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_write_or_delete_is_lost_at_the_next_renewal_and_acquired_again() {
    for latency in [0, 20, 100].map(ms) {
        let api = slow(latency);
        let one = start(&api, "one", UPSTREAM);
        wait_until_leading(&one).await;
        let two = start(&api, "two", UPSTREAM);
        assert_eq!(wait::for_election(&two.state).await, LeaderState::Standby);
        let overlaps = LeaderOverlaps::watch([&one, &two]);
        let retry = ms(UPSTREAM[2]);

        next_renewal(&api).await;
        let term = one.fence.term().expect("it leads");
        write(&api, json!({"holderIdentity": "another", "leaseDurationSeconds": 10})).await;
        let given = Instant::now();
        one.fence.revoked(term).await;
        // A failed renewal, and the next attempt.
        assert!(Instant::now() - given <= retry + latency * 2 + TICKS);
        tokio::select! {
            _ = wait_until_leading(&one) => {}
            _ = wait_until_leading(&two) => {}
        }
        let took = Instant::now() - given;
        let longest = retry + longest_retry(UPSTREAM) + ms(10_000) + latency * 4 + TICKS;
        assert!(took <= longest, "it only retries for ten seconds: {took:?}");
        assert!(
            took + longest_retry(UPSTREAM) >= ms(10_000),
            "it retries for ten seconds: {took:?}"
        );

        sleep(ms(10_000)).await;
        leases(&api).delete(NAME, &DeleteParams::default()).await.expect("deleted");
        let deleted = Instant::now();
        sleep(ms(UPSTREAM[0]) + retry).await;
        let renewed = renewals(&api).into_iter().rfind(|one| one.at > deleted);
        assert!(renewed.is_some(), "a new leader holds the lease");
        let holder =
            leases(&api).get(NAME).await.expect("a new one").spec.expect("a spec").holder_identity;
        let is_held =
            [("one", &one), ("two", &two)].into_iter().find(|(_, one)| one.fence.is_granted());
        assert_eq!(holder.as_deref(), is_held.map(|(name, _)| name), "{latency:?}");
        sleep(ms(20_000)).await;
        overlaps.assert_none();
        one.task.abort();
        two.task.abort();
    }
}

/// The lease of another replica whose clock is wrong by this many seconds.
fn lease_with_clock_skew(wrong_by: i64, transitions: i32) -> Value {
    let now: Timestamp = wall_now() + SignedDuration::from_secs(wrong_by);
    let at = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({
        "holderIdentity": "other", "leaseDurationSeconds": UPSTREAM[0] / 1_000, "renewTime": at,
        "acquireTime": at, "leaseTransitions": transitions,
    })
}

#[tokio::test(start_paused = true)]
async fn a_holder_with_a_wrong_clock_keeps_its_lease_while_it_renews_and_for_its_duration() {
    for wrong_by in [-3_600, 3_600] {
        let api = slow(ms(20));
        let first = json!({"metadata": {"name": NAME}, "spec": lease_with_clock_skew(wrong_by, 0)});
        let first: Lease = serde_json::from_value(first).expect("a Lease");
        leases(&api).create(&PostParams::default(), &first).await.expect("created");
        let standby = start(&api, "standby", UPSTREAM);
        assert_eq!(wait::for_election(&standby.state).await, LeaderState::Standby);
        // Renewed just before it expires, in half of the cases.
        for renewal in 1..=20 {
            sleep(ms(7_000)).await;
            assert!(!standby.fence.is_granted());
            write(&api, lease_with_clock_skew(wrong_by, renewal)).await;
        }
        assert_eq!(standby.state.holder().as_deref(), Some("other"));
        let last = Instant::now();
        let took = wait_until_leading(&standby).await - last;
        let lease = ms(UPSTREAM[0]);
        assert!(took + longest_retry(UPSTREAM) >= lease, "{took:?}");
        assert!(took <= lease + ms(20) * 3 + TICKS, "{took:?}");
        standby.task.abort();
    }
}
