//! Kills for lack of memory, out of what kube-state-metrics shows of containers.
//!
//! A kill is a restart of a container whose last end was one: the count of restarts rose, and the reason is `OOMKilled`
//! now. Now means twice: by the last sample, which a server forgets when a scrape no longer brings it, and by a sample
//! of this very minute, for servers whose blocks were written without such marks. It is looked for as often as CPU, so
//! its time is known as well as that. What the container asked for then is read along, only where there was a kill.

use std::{collections::HashMap, time::Duration};

use super::{
    load_stats::LoadStats,
    owner_series::reason,
    query_plan::{QueryPlan, invalid_range, max_by},
    time_slice::{SeriesPoints, SliceCollector},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::{PrometheusClient, QueryRange},
    promql::{Query, RangeFunction},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Families of what a container asks for: today's, and the one before release 2 of kube-state-metrics.
const REQUESTS: [&str; 2] =
    ["kube_pod_container_resource_requests", "kube_pod_container_resource_requests_memory_bytes"];
const LIMITS: [&str; 2] =
    ["kube_pod_container_resource_limits", "kube_pod_container_resource_limits_memory_bytes"];

/// How far apart samples of kube-state-metrics may be.
const LONGEST_PACE: Duration = Duration::from_mins(2);
/// How old a reason may be.
const OLDEST: Duration = Duration::from_millis(59_999);

/// A kill.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OomKill {
    pub(super) workload: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    pub(super) at: Time,
    pub(super) request_bytes: i64,
    pub(super) limit_bytes: Option<i64>,
}

/// What was seen of kills last, by workload, container and pod.
pub(super) type SeenKills = HashMap<(usize, Box<str>, Box<str>), LastSeenKill>;

/// A kill as it is seen for some time after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LastSeenKill {
    /// The count of restarts then.
    count: f64,
    /// When it was seen last.
    at: Time,
}

/// What is asked about kills in a part of a history.
pub(super) struct OomKillQuery<'a> {
    pub(super) client: &'a PrometheusClient,
    pub(super) schema: &'a Schema,
    pub(super) states: &'a KubeStateMetrics,
    pub(super) plan: &'a QueryPlan,
    pub(super) batch: &'a WorkloadBatch,
    /// The pods that were killed at some time.
    pub(super) pods: Pattern,
    /// Points that may be held of each answer.
    pub(super) max_points: u64,
    /// After the first time and up to the second.
    pub(super) span: (Time, Time),
}

impl OomKillQuery<'_> {
    /// The kills, by container and pod and in order of time. One that was counted does not count again, nor one that
    /// can be seen at the beginning already: whoever read the time before has it.
    pub(super) async fn query(
        &self,
        counted: &mut SeenKills,
        report: &mut LoadStats,
    ) -> Result<Vec<OomKill>, QueryError> {
        let condition = self.kill_condition();
        let (after, to) = self.span;
        let grid = QueryRange::new(after, to, self.plan.cpu).map_err(invalid_range)?;
        let mut restarts = self.points(&condition, grid, report).await?;
        if restarts.is_empty() {
            return Ok(Vec::new());
        }
        let mut requests = self.memory_at_kill(&REQUESTS, &condition, grid, report).await?;
        let mut limits = self.memory_at_kill(&LIMITS, &condition, grid, report).await?;
        for points in [&mut restarts, &mut requests, &mut limits] {
            points.sort();
        }
        let mut kills = Vec::new();
        let mut merged = Vec::new();
        for rows in restarts.groups() {
            let key = rows[0].key();
            let none = LastSeenKill { count: 0.0, at: Time::EPOCH };
            let known = counted.entry((key.0, key.1.into(), key.2.into())).or_insert(none);
            for &(at, count) in restarts.points_of(rows, &mut merged) {
                // Fewer than before: a new pod that has the name of an old one. So is one with as many, when the old
                // one's can be seen no longer.
                let same = (count - known.count).abs() < 0.5 && at <= known.at.later(self.window());
                *known = LastSeenKill { count, at };
                if same || at <= after {
                    continue;
                }
                kills.push(OomKill {
                    workload: key.0,
                    container: key.1.into(),
                    pod: key.2.into(),
                    at,
                    request_bytes: value(&requests, key, at).unwrap_or(0),
                    limit_bytes: value(&limits, key, at),
                });
            }
        }
        Ok(kills)
    }

    /// The count of restarts, where it rose and the last end was for lack of memory.
    fn kill_condition(&self) -> Query {
        let on = self.states.container_labels();
        let restarts = self.family("kube_pod_container_status_restarts_total");
        let reason = reason(self.states, self.schema, &self.batch.namespace)
            .matches(&self.states.pod, self.pods.clone());
        let rose =
            max_by(&Query::range_function(RangeFunction::Increase, &restarts, self.window()), &on)
                .greater_than(0);
        let fresh = max_by(&Query::range_function(RangeFunction::Last, &reason, OLDEST), &on);
        let killed = max_by(&reason.into(), &on).equal_to(1);
        max_by(&restarts.into(), &on).and_on(&rose, &on).and_on(&killed, &on).and_on(&fresh, &on)
    }

    /// For how long a rise of the count can be seen.
    fn window(&self) -> Duration {
        self.plan
            .cpu
            .saturating_add(LONGEST_PACE.max(self.schema.scrape_interval.value.longest_gap))
    }

    fn family(&self, name: &str) -> Selector {
        let states = self.states.selector(name, &self.batch.namespace, &self.schema.matchers);
        states.matches(&self.states.pod, self.pods.clone())
    }

    /// How much memory was asked for at the time of each kill.
    async fn memory_at_kill(
        &self,
        families: &[&str; 2],
        condition: &Query,
        grid: QueryRange,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let [today, before] = families;
        let selector = match (self.states.has_family(today), self.states.has_family(before)) {
            (false, true) => self.family(before),
            _ => self.family(today).equals("resource", "memory"),
        };
        let on = self.states.container_labels();
        let amounts = max_by(&selector.into(), &on);
        self.points(&amounts.and_on(condition, &on), grid, report).await
    }

    async fn points(
        &self,
        query: &Query,
        grid: QueryRange,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let mut taker =
            SliceCollector::new(self.batch, self.states.container_labels(), self.max_points);
        let tally = self.client.range(query, grid, &mut taker).await;
        report.add(&tally.map_err(|interrupted| interrupted.failure)?);
        Ok(taker.into_committed().0)
    }
}

/// The value at this time.
fn value(points: &SeriesPoints, key: (usize, &str, &str), time: Time) -> Option<i64> {
    let mut merged = Vec::new();
    let of = points.points_of(points.find(key), &mut merged);
    of.iter().find(|(at, _)| *at == time).map(|(_, value)| *value as i64)
}
