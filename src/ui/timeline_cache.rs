//! Timelines that were read lately: for half a minute they are not read again, and when the server is away they are shown
//! with their age.

use std::{hash::Hash, sync::Arc, time::Duration};

use moka::{future::Cache, ops::compute::Op};
use plimsoll_core::types::Time;
use tokio::time::Instant;

use super::{
    list_query::Span, replica_timeline::ReplicaTimeline, timeline::Point, timeline::Timeline,
};

/// Timelines are not read again for this time.
const LIFETIME: Duration = Duration::from_secs(30);
/// Timelines are kept this long for when the server is away.
const STALE_LIFETIME: Duration = Duration::from_mins(30);
/// The largest sum of the sizes of the timelines that are kept.
const MAX_BYTES: u64 = 6 << 20;

/// A timeline of any kind.
pub(super) trait CachedTimeline: Clone + Send + Sync + 'static {
    /// Its end.
    fn until(&self) -> Time;
    /// Adds why it is not up to date.
    fn add_problem(&mut self, problem: String);
    /// Its size in memory, roughly.
    fn bytes(&self) -> usize;
}

fn size(points: &[&Vec<Point>]) -> usize {
    points.iter().map(|points| points.len() * size_of::<Point>()).sum()
}

impl CachedTimeline for Timeline {
    fn until(&self) -> Time {
        self.until
    }

    fn add_problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn bytes(&self) -> usize {
        let charts = self.charts.iter().map(|chart| {
            let lines = [
                &chart.usage,
                &chart.request,
                &chart.limit,
                &chart.target,
                &chart.lower,
                &chart.upper,
            ];
            256 + size(&lines)
        });
        charts.sum::<usize>() + self.events.len() * 128 + 512
    }
}

impl CachedTimeline for ReplicaTimeline {
    fn until(&self) -> Time {
        self.until
    }

    fn add_problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn bytes(&self) -> usize {
        let charts = self.metrics.iter().map(|chart| {
            256 + size(&[&chart.value, &chart.low, &chart.high, &chart.target, &chart.proposal])
        });
        let replicas = size(&[&self.effective, &self.min, &self.max]);
        charts.sum::<usize>() + replicas + self.restrictions.len() * 128 + 512
    }
}

/// What the last read of a timeline gave.
#[derive(Clone, Debug)]
struct KeptTimeline<T> {
    read_at: Instant,
    /// The last timeline that could be read, and when.
    good: Option<(Instant, Arc<T>)>,
    /// Why the last read failed.
    problem: Option<String>,
}

impl<T: CachedTimeline> KeptTimeline<T> {
    fn result(self) -> Result<T, String> {
        match (self.good, self.problem) {
            (Some((_, timeline)), None) => Ok(Arc::unwrap_or_clone(timeline)),
            (Some((_, timeline)), Some(why)) => {
                let mut timeline = Arc::unwrap_or_clone(timeline);
                let until = timeline.until();
                timeline.add_problem(format!("{why}. These are the values until {until}."));
                Ok(timeline)
            }
            (None, why) => Err(why.unwrap_or_default()),
        }
    }
}

/// Timelines by what they are about and their length.
pub(super) struct TimelineCache<S, T> {
    kept: Cache<(S, Span), KeptTimeline<T>>,
}

impl<S: Clone + Eq + Hash + Send + Sync + 'static, T: CachedTimeline> TimelineCache<S, T> {
    /// An empty cache.
    pub fn new() -> Self {
        let weigher = |_: &(S, Span), kept: &KeptTimeline<T>| {
            let bytes = kept.good.as_ref().map_or(0, |(_, timeline)| timeline.bytes());
            u32::try_from(bytes + 512).unwrap_or(u32::MAX)
        };
        let builder = Cache::builder().weigher(weigher).max_capacity(MAX_BYTES);
        Self { kept: builder.time_to_idle(STALE_LIFETIME).build() }
    }

    /// The timeline, which is read if the last read is too old. Requests at the same time wait for one read.
    pub async fn read(
        &self,
        subject: &S,
        span: Span,
        reading: impl Future<Output = Result<T, String>> + Send,
    ) -> Result<T, String> {
        let entry = self.kept.entry((subject.clone(), span));
        let computed = entry.and_compute_with(|known| async move {
            let known = known.map(moka::Entry::into_value);
            if known.as_ref().is_some_and(|known| known.read_at.elapsed() < LIFETIME) {
                return Op::Nop;
            }
            let result = reading.await;
            let read_at = Instant::now();
            let good = known.and_then(|known| known.good);
            let good = good.filter(|(at, _)| at.elapsed() < STALE_LIFETIME);
            Op::Put(match result {
                Ok(timeline) => {
                    let good = Some((read_at, Arc::new(timeline)));
                    KeptTimeline { read_at, good, problem: None }
                }
                Err(why) => KeptTimeline { read_at, good, problem: Some(why) },
            })
        });
        match computed.await.into_entry() {
            Some(entry) => entry.into_value().result(),
            None => Err("the timeline was not kept".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timeline_is_read_twice_a_minute_and_shown_for_half_an_hour_when_the_server_is_away()
    {
        let cache: TimelineCache<&str, Timeline> = TimelineCache::new();
        let reads = AtomicUsize::new(0);
        let read = |result: Result<(), &'static str>| {
            let reads = &reads;
            cache.read(&"web", Span::Day, async move {
                reads.fetch_add(1, Ordering::Relaxed);
                result.map(|()| Timeline::default()).map_err(ToOwned::to_owned)
            })
        };
        assert_eq!(read(Ok(())).await.map(|one| one.problems.len()), Ok(0));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(read(Err("away")).await.map(|one| one.problems.len()), Ok(0));
        assert_eq!(reads.load(Ordering::Relaxed), 1, "the second request read nothing");
        tokio::time::advance(Duration::from_secs(2)).await;
        let stale = read(Err("away")).await.expect("the last timeline");
        assert!(stale.problems[0].starts_with("away. These are the values until"), "{stale:?}");
        tokio::time::advance(STALE_LIFETIME).await;
        assert_eq!(read(Err("away")).await, Err("away".to_owned()), "it is too old to be shown");
        tokio::time::advance(LIFETIME).await;
        assert_eq!(read(Ok(())).await.map(|one| one.problems.len()), Ok(0));
        assert_eq!(reads.load(Ordering::Relaxed), 4);
    }
}
