//! Who is connected: how busy each connection is, and which one has to go when there are too many.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinSet},
};

use super::body_budget::{BodyBudget, PeerBudget};

/// What happens on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    active_requests: AtomicUsize,
    /// Of those, how many have arrived and are being decided.
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

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Activity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active_requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ActiveRequest {
    /// The request has arrived, and is being decided until this is dropped.
    pub fn begin_decision(&self) -> ActiveDecision<'_> {
        self.0.active_decisions.fetch_add(1, Ordering::AcqRel);
        ActiveDecision(&self.0)
    }
}

/// A request that is being decided, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveDecision<'a>(&'a Activity);

impl Drop for ActiveDecision<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active_decisions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    /// A request begins.
    pub fn begin(self: Arc<Self>) -> ActiveRequest {
        self.active_requests.fetch_add(1, Ordering::AcqRel);
        self.has_requested.store(true, Ordering::Release);
        ActiveRequest(self)
    }

    fn touch(&self) {
        *self.last_active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_busy(&self) -> bool {
        self.active_requests.load(Ordering::Acquire) > 0
    }

    fn is_deciding(&self) -> bool {
        self.active_decisions.load(Ordering::Acquire) > 0
    }

    /// When a request was last decided or answered.
    fn last_active(&self) -> Instant {
        *self.last_active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once nothing has happened for that long: `first` for the first request, `idle` after it.
    pub async fn wait_until_idle(&self, first: Duration, idle: Duration) {
        loop {
            let limit = if self.has_requested.load(Ordering::Acquire) { idle } else { first };
            let silent = self.last_active().elapsed();
            if !self.is_busy() && silent >= limit {
                return;
            }
            let left = limit.saturating_sub(silent);
            let least = Duration::from_millis(10);
            tokio::time::sleep(left.max(least)).await;
        }
    }
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionCaps {
    /// In all.
    pub total: usize,
    /// From one address.
    pub per_peer: usize,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    peer: IpAddr,
    peer_budget: PeerBudget,
    task: AbortHandle,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    pub tasks: JoinSet<()>,
    open: Vec<OpenConnection>,
    caps: ConnectionCaps,
    budget: Arc<BodyBudget>,
}

impl Connections {
    /// At most so many.
    pub fn new(most: ConnectionCaps, budget: Arc<BodyBudget>) -> Self {
        Self { tasks: JoinSet::new(), open: Vec::new(), caps: most, budget }
    }

    /// Makes room for one more from an address, and answers what its bodies may take; nothing when there is no room.
    ///
    /// Where there are too many from the address, one of them goes; where there are too many in all, one of the address
    /// that has most. It is the one of which nothing was decided for the longest time, whether it asks nothing or has been
    /// asking ever since. One that waits for a decision stays: that takes little time, and somebody has a use for it.
    pub fn make_room(&mut self, peer: IpAddr) -> Option<PeerBudget> {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|member| !member.task.is_finished());
        let of_peer = self.open.iter().filter(|member| member.peer == peer);
        let known = of_peer.clone().next().map(|member| member.peer_budget.clone());
        if of_peer.count() >= self.caps.per_peer {
            self.evict_longest_idle(|member| member.peer == peer)?;
        } else if self.open.len() >= self.caps.total {
            self.evict_longest_idle(|_| true)?;
        }
        Some(known.unwrap_or_else(|| self.budget.peer_budget()))
    }

    fn evict_longest_idle(&mut self, may_go: impl Fn(&OpenConnection) -> bool) -> Option<()> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for member in &self.open {
            *counts.entry(member.peer).or_default() += 1;
        }
        let members = self.open.iter().enumerate();
        let may_go = members.filter(|(_, it)| may_go(it) && !it.activity.is_deciding());
        let rank = |it: &OpenConnection| {
            (counts.get(&it.peer).copied(), Reverse(it.activity.last_active()))
        };
        let (place, _) = may_go.max_by_key(|(_, it)| rank(it))?;
        self.open.swap_remove(place).task.abort();
        Some(())
    }

    /// Adds one that there is room for.
    pub fn add<F>(
        &mut self,
        peer: IpAddr,
        share: PeerBudget,
        activity: &Arc<Activity>,
        on: &Handle,
        connection: F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = self.tasks.spawn_on(connection, on);
        self.open.push(OpenConnection {
            activity: Arc::clone(activity),
            peer,
            peer_budget: share,
            task,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    struct Crowd(Connections);

    impl Crowd {
        fn new(all: usize, per_peer: usize) -> Self {
            Self(Connections::new(
                ConnectionCaps { total: all, per_peer },
                BodyBudget::new(100, 50),
            ))
        }

        /// A connection from an address, if there is room for it.
        fn enter(&mut self, peer: u8) -> Option<Arc<Activity>> {
            let peer = IpAddr::from([10, 0, 0, peer]);
            let share = self.0.make_room(peer)?;
            let activity = Arc::<Activity>::default();
            self.0.add(peer, share, &activity, &Handle::current(), pending());
            Some(activity)
        }

        fn has(&self, wanted: &Arc<Activity>) -> bool {
            self.0.open.iter().any(|member| Arc::ptr_eq(&member.activity, wanted))
        }
    }

    #[tokio::test]
    async fn who_has_been_silent_for_longest_goes_and_who_is_answered_stays() {
        let mut crowd = Crowd::new(2, 2);
        let (first, second) = (crowd.enter(1).expect("room"), crowd.enter(1).expect("room"));
        let busy = Arc::clone(&first).begin();
        let decided = busy.begin_decision();
        let third = crowd.enter(1).expect("the second makes room");
        assert!(crowd.has(&first) && !crowd.has(&second));
        let also_busy = Arc::clone(&third).begin();
        let also_decided = also_busy.begin_decision();
        assert!(crowd.enter(1).is_none(), "everybody is being answered");
        drop(decided);
        drop(also_decided);
        crowd.enter(1).expect("room");
        assert!(!crowd.has(&first), "its answer ended before the other's");
    }

    #[tokio::test]
    async fn an_address_takes_no_more_than_its_part_and_the_largest_crowd_makes_room() {
        let mut crowd = Crowd::new(6, 3);
        let server = crowd.enter(1).expect("room");
        let others: Vec<_> = [2, 2, 2, 3, 3].map(|peer| crowd.enter(peer)).into_iter().collect();
        // All of them send a request that never ends, which is not to be in use.
        let _busy: Vec<_> = others.iter().flatten().map(|one| Arc::clone(one).begin()).collect();
        let fourth = crowd.enter(2).expect("one of its own makes room");
        assert!(!crowd.has(others[0].as_ref().expect("was let in")) && crowd.has(&fourth));
        for newcomer in 4..7 {
            crowd.enter(newcomer).expect("those who have most make room");
        }
        assert!(crowd.has(&server), "it has one connection, and others have more");
        assert_eq!(crowd.0.open.len(), 6);
    }

    #[tokio::test]
    async fn a_connection_is_silent_when_nothing_is_under_way_for_long_enough() {
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
