//! Open connections: how busy each one is, and which one to close when there are too many.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinSet},
};

use super::{
    WebhookLimits,
    body_budget::{BodyBudget, PeerBudget},
};

#[derive(Debug)]
pub(super) struct Activity {
    active_requests: AtomicUsize,
    /// Active requests that were fully received and are being decided.
    active_decisions: AtomicUsize,
    has_requested: AtomicBool,
    last_active: Mutex<Instant>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            active_requests: AtomicUsize::new(0),
            active_decisions: AtomicUsize::new(0),
            has_requested: AtomicBool::new(false),
            last_active: Mutex::new(Instant::now()),
        }
    }
}

/// An active request, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Activity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active_requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ActiveRequest {
    /// Marks the request as being decided until the guard is dropped.
    pub fn begin_decision(&self) -> ActiveDecision<'_> {
        self.0.active_decisions.fetch_add(1, Ordering::AcqRel);
        ActiveDecision(&self.0)
    }
}

/// A request being decided, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveDecision<'a>(&'a Activity);

impl Drop for ActiveDecision<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active_decisions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    pub fn begin(self: Arc<Self>) -> ActiveRequest {
        self.active_requests.fetch_add(1, Ordering::AcqRel);
        self.has_requested.store(true, Ordering::Release);
        ActiveRequest(self)
    }

    fn touch(&self) {
        *self.last_active.lock() = Instant::now();
    }

    /// The last time that a decision or a response finished.
    fn last_active(&self) -> Instant {
        *self.last_active.lock()
    }

    /// Returns once the connection has been idle for `first` (before the first request) or `idle` (after it).
    pub async fn wait_until_idle(&self, first: Duration, idle: Duration) {
        loop {
            let limit = if self.has_requested.load(Ordering::Acquire) { idle } else { first };
            let idle_for = self.last_active().elapsed();
            if self.active_requests.load(Ordering::Acquire) == 0 && idle_for >= limit {
                return;
            }
            let remaining = limit.saturating_sub(idle_for);
            let minimum = Duration::from_millis(10);
            tokio::time::sleep(remaining.max(minimum)).await;
        }
    }
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    peer: IpAddr,
    peer_budget: PeerBudget,
    task: AbortHandle,
}

#[derive(Debug)]
pub(super) struct Connections {
    pub tasks: JoinSet<()>,
    open: Vec<OpenConnection>,
    limits: WebhookLimits,
    budget: Arc<BodyBudget>,
}

impl Connections {
    pub fn new(limits: WebhookLimits, budget: Arc<BodyBudget>) -> Self {
        Self { tasks: JoinSet::new(), open: Vec::new(), limits, budget }
    }

    /// Makes room for one more connection from an address. Returns the address's share of the body budget, or `None`
    /// if no connection can be closed.
    ///
    /// If the address has too many connections, closes one of them; if there are too many in total, closes one of the
    /// address with the most. It closes the connection whose last decision is the longest ago, whether it is idle or
    /// keeps sending incomplete requests. Connections with a review being decided are not closed: decisions are quick
    /// and needed.
    pub fn make_room(&mut self, peer: IpAddr) -> Option<PeerBudget> {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|connection| !connection.task.is_finished());
        let from_peer = self.open.iter().filter(|connection| connection.peer == peer);
        let peer_budget = from_peer.clone().next().map(|connection| connection.peer_budget.clone());
        if from_peer.count() >= self.limits.connections_per_peer {
            self.evict_longest_idle(|connection| connection.peer == peer)?;
        } else if self.open.len() >= self.limits.connections {
            self.evict_longest_idle(|_| true)?;
        }
        Some(peer_budget.unwrap_or_else(|| self.budget.peer_budget()))
    }

    fn evict_longest_idle(&mut self, is_candidate: impl Fn(&OpenConnection) -> bool) -> Option<()> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in &self.open {
            *counts.entry(connection.peer).or_default() += 1;
        }
        let connections = self.open.iter().enumerate();
        let candidates = connections.filter(|(_, it)| {
            is_candidate(it) && it.activity.active_decisions.load(Ordering::Acquire) == 0
        });
        let rank = |connection: &OpenConnection| {
            (counts.get(&connection.peer).copied(), Reverse(connection.activity.last_active()))
        };
        let (index, _) = candidates.max_by_key(|(_, connection)| rank(connection))?;
        self.open.swap_remove(index).task.abort();
        Some(())
    }

    /// Adds a connection after `make_room`.
    pub fn add<F>(
        &mut self,
        peer: IpAddr,
        peer_budget: PeerBudget,
        activity: &Arc<Activity>,
        runtime: &Handle,
        connection: F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = self.tasks.spawn_on(connection, runtime);
        self.open.push(OpenConnection { activity: Arc::clone(activity), peer, peer_budget, task });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    struct Crowd(Connections);

    impl Crowd {
        fn new(all: usize, per_peer: usize) -> Self {
            let limits = WebhookLimits {
                connections: all,
                connections_per_peer: per_peer,
                ..WebhookLimits::default()
            };
            Self(Connections::new(limits, BodyBudget::new(limits)))
        }

        /// Opens a connection from an address, if there is room for it.
        fn enter(&mut self, peer: u8) -> Option<Arc<Activity>> {
            let peer = IpAddr::from([10, 0, 0, peer]);
            let peer_budget = self.0.make_room(peer)?;
            let activity = Arc::<Activity>::default();
            self.0.add(peer, peer_budget, &activity, &Handle::current(), pending());
            Some(activity)
        }

        fn has(&self, wanted: &Arc<Activity>) -> bool {
            self.0.open.iter().any(|connection| Arc::ptr_eq(&connection.activity, wanted))
        }
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_closed_and_busy_ones_stay() {
        let mut crowd = Crowd::new(2, 2);
        let (first, second) =
            (crowd.enter(1).expect("accepted"), crowd.enter(1).expect("accepted"));
        let busy = Arc::clone(&first).begin();
        let decided = busy.begin_decision();
        let third = crowd.enter(1).expect("the second is closed");
        assert!(crowd.has(&first) && !crowd.has(&second));
        let also_busy = Arc::clone(&third).begin();
        let also_decided = also_busy.begin_decision();
        assert!(crowd.enter(1).is_none(), "all connections are being decided");
        drop(decided);
        drop(also_decided);
        crowd.enter(1).expect("accepted");
        assert!(!crowd.has(&first), "its decision ended first");
    }

    #[tokio::test]
    async fn an_address_has_a_limited_share_and_the_largest_user_loses_connections_first() {
        let mut crowd = Crowd::new(6, 3);
        let server = crowd.enter(1).expect("accepted");
        let others: Vec<_> = [2, 2, 2, 3, 3].map(|peer| crowd.enter(peer)).into_iter().collect();
        // All of them send a request that never completes, which does not count as being in use.
        let _busy: Vec<_> = others.iter().flatten().map(|one| Arc::clone(one).begin()).collect();
        let fourth = crowd.enter(2).expect("one of its own is closed");
        assert!(!crowd.has(others[0].as_ref().expect("accepted")) && crowd.has(&fourth));
        for newcomer in 4..7 {
            crowd.enter(newcomer).expect("one of the busiest address is closed");
        }
        assert!(crowd.has(&server), "it has one connection, and others have more");
        assert_eq!(crowd.0.open.len(), 6);
    }

    #[tokio::test]
    async fn a_connection_is_idle_after_a_time_without_requests() {
        let activity = Arc::new(Activity::default());
        let (short, long) = (Duration::from_millis(20), Duration::from_hours(1));
        activity.wait_until_idle(short, long).await;
        let busy = Arc::clone(&activity).begin();
        let silent = activity.wait_until_idle(short, short);
        assert!(tokio::time::timeout(Duration::from_millis(80), silent).await.is_err());
        drop(busy);
        activity.wait_until_idle(long, short).await;
    }
}
