//! Who is connected: how busy each connection is, and which one has to go when there are too many.

use std::{
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

/// What happens on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    under_way: AtomicUsize,
    has_asked: AtomicBool,
    last: Mutex<Instant>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            last: Mutex::new(Instant::now()),
        }
    }
}

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    /// A request begins.
    pub fn begin(self: Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        self.has_asked.store(true, Ordering::Release);
        Busy(self)
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once nothing has happened for that long: `first` for the first request, `idle` after it.
    pub async fn fell_silent(&self, first: Duration, idle: Duration) {
        loop {
            let limit = if self.has_asked.load(Ordering::Acquire) { idle } else { first };
            let silent = self.last().elapsed();
            if !self.is_busy() && silent >= limit {
                return;
            }
            let left = limit.saturating_sub(silent);
            let least = Duration::from_millis(10);
            tokio::time::sleep(left.max(least)).await;
        }
    }
}

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    pub tasks: JoinSet<()>,
    members: Vec<(Arc<Activity>, AbortHandle)>,
    most: usize,
}

impl Connections {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self { tasks: JoinSet::new(), members: Vec::new(), most }
    }

    /// Takes one more. When there are as many as there may be, the one goes that has asked nothing for the longest time;
    /// `false` when all of them are being answered.
    pub fn add<F>(&mut self, activity: &Arc<Activity>, on: &Handle, connection: F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.members.retain(|(_, task)| !task.is_finished());
        if self.members.len() >= self.most {
            let idle = self.members.iter().enumerate();
            let idle = idle.filter(|(_, (activity, _))| !activity.is_busy());
            let Some(place) =
                idle.min_by_key(|(_, (activity, _))| activity.last()).map(|(at, _)| at)
            else {
                return false;
            };
            let (_, task) = self.members.swap_remove(place);
            task.abort();
        }
        self.members.push((Arc::clone(activity), self.tasks.spawn_on(connection, on)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_been_silent_for_longest_goes_and_who_is_answered_stays() {
        let mut connections = Connections::new(2);
        let here = Handle::current();
        let new = || Arc::new(Activity::default());
        let (first, second, third, fourth) = (new(), new(), new(), new());
        assert!(connections.add(&first, &here, std::future::pending()));
        assert!(connections.add(&second, &here, std::future::pending()));
        let busy = Arc::clone(&first).begin();
        assert!(connections.add(&third, &here, std::future::pending()), "the second makes room");
        let live = |connections: &Connections, wanted: &Arc<Activity>| {
            connections.members.iter().any(|(activity, _)| Arc::ptr_eq(activity, wanted))
        };
        assert!(live(&connections, &first) && !live(&connections, &second));
        let also_busy = Arc::clone(&third).begin();
        assert!(
            !connections.add(&fourth, &here, std::future::pending()),
            "everybody is being answered"
        );
        drop((busy, also_busy));
        assert!(connections.add(&fourth, &here, std::future::pending()));
        assert!(!live(&connections, &first), "its answer ended before the other's");
    }

    #[tokio::test]
    async fn a_connection_is_silent_when_nothing_is_under_way_for_long_enough() {
        let activity = Arc::new(Activity::default());
        let (short, long) = (Duration::from_millis(20), Duration::from_hours(1));
        activity.fell_silent(short, long).await;
        let busy = Arc::clone(&activity).begin();
        let silent = activity.fell_silent(short, short);
        assert!(tokio::time::timeout(Duration::from_millis(80), silent).await.is_err());
        drop(busy);
        activity.fell_silent(long, short).await;
    }
}
