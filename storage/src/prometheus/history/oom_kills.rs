//! OOM kills from the series of kube-state-metrics.
//!
//! An OOM kill is a restart whose last termination reason is `OOMKilled`: the restart count rose, and the reason is set
//! now. "Now" is checked twice: by an instant selector, which respects staleness markers, and by a sample of the last
//! minute, for servers without staleness markers. The step is that of CPU, so the time of a kill is as precise. The
//! memory request and limit at that time are queried only if there was a kill.

use std::{collections::HashMap, time::Duration};

use super::{
    batch_load::LoadContext,
    load::LoadStats,
    owner_queries::reason,
    query_plan::max_by,
    time_slice::{SeriesPoints, SliceCollector},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::QueryRange,
    promql::{Query, RangeFunction},
    query_error::QueryError,
    schema::KubeStateMetrics,
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Metric families of requests: the current one, and the one before release 2 of kube-state-metrics.
const REQUESTS: [&str; 2] =
    ["kube_pod_container_resource_requests", "kube_pod_container_resource_requests_memory_bytes"];
const LIMITS: [&str; 2] =
    ["kube_pod_container_resource_limits", "kube_pod_container_resource_limits_memory_bytes"];

/// Longest supported scrape interval of kube-state-metrics.
const MAX_SCRAPE_INTERVAL: Duration = Duration::from_mins(2);
/// Maximum age of a termination reason.
const MAX_REASON_AGE: Duration = Duration::from_millis(59_999);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct OomKill {
    pub(super) workload: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    pub(super) at: Time,
    pub(super) request_bytes: i64,
    pub(super) limit_bytes: Option<i64>,
}

/// The last OOM kill by workload, container and pod.
pub(super) type SeenKills = HashMap<(usize, Box<str>, Box<str>), LastSeenKill>;

/// An OOM kill, which stays visible for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LastSeenKill {
    /// The restart count.
    count: f64,
    /// When the kill was visible last.
    at: Time,
}

/// A query for the OOM kills in a part of a history.
pub(super) struct OomKillQuery<'a> {
    pub(super) context: &'a LoadContext,
    pub(super) states: &'a KubeStateMetrics,
    pub(super) batch: &'a WorkloadBatch,
    /// The pods that were OOM-killed at some time.
    pub(super) pods: Pattern,
    pub(super) max_points: u64,
    /// The time range: after the first time, up to and including the second.
    pub(super) span: (Time, Time),
}

impl OomKillQuery<'_> {
    /// Returns the kills by container and pod, in order of time. A kill that is in `seen` is not returned again, and neither
    /// is one that is visible at the start already: the load of the time before has it.
    pub(super) async fn query(
        &self,
        seen: &mut SeenKills,
        report: &mut LoadStats,
    ) -> Result<Vec<OomKill>, QueryError> {
        let condition = self.kill_condition();
        let (after, to) = self.span;
        let grid = QueryRange::new(after, to, self.context.plan.cpu)?;
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
            let last = seen.entry((key.0, key.1.into(), key.2.into())).or_insert(none);
            for &(at, count) in restarts.points_of(rows, &mut merged) {
                // A smaller count means a new pod with the same name. So does an equal count, if the old kill is no
                // longer visible.
                let same = (count - last.count).abs() < 0.5 && at <= last.at.later(self.window());
                *last = LastSeenKill { count, at };
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

    /// The restart count, where it rose and the last termination was an OOM kill.
    fn kill_condition(&self) -> Query {
        let labels = self.states.container_labels();
        let restarts = self.family("kube_pod_container_status_restarts_total");
        let reason = reason(self.states, &self.context.schema, &[&*self.batch.namespace])
            .matches(&self.states.pod, self.pods.clone());
        let increased = max_by(
            &Query::range_function(RangeFunction::Increase, &restarts, self.window()),
            &labels,
        )
        .only("> 0");
        let is_recent =
            max_by(&Query::range_function(RangeFunction::Last, &reason, MAX_REASON_AGE), &labels);
        let killed = max_by(&reason.into(), &labels).only("== 1");
        max_by(&restarts.into(), &labels)
            .and_on(&increased, &labels)
            .and_on(&killed, &labels)
            .and_on(&is_recent, &labels)
    }

    /// How long an increase of the count is visible.
    fn window(&self) -> Duration {
        let LoadContext { plan, schema, .. } = self.context;
        let longest_gap = schema.scrape_interval.value.longest_gap;
        plan.cpu.saturating_add(MAX_SCRAPE_INTERVAL.max(longest_gap))
    }

    fn family(&self, name: &str) -> Selector {
        let matchers = &self.context.schema.matchers;
        let states = self.states.selector_in(name, &[&self.batch.namespace], matchers);
        states.matches(&self.states.pod, self.pods.clone())
    }

    /// The memory request or limit at the time of each kill.
    async fn memory_at_kill(
        &self,
        families: &[&str; 2],
        condition: &Query,
        grid: QueryRange,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let [current, legacy] = families;
        let selector = match (self.states.has_family(current), self.states.has_family(legacy)) {
            (false, true) => self.family(legacy),
            _ => self.family(current).equals("resource", "memory"),
        };
        let labels = self.states.container_labels();
        let amounts = max_by(&selector.into(), &labels);
        self.points(&amounts.and_on(condition, &labels), grid, report).await
    }

    async fn points(
        &self,
        query: &Query,
        grid: QueryRange,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let identity = self.states.container_labels();
        let collector = SliceCollector::new(self.batch, identity, self.max_points);
        let queries = std::slice::from_ref(query);
        let read = collector.read(&self.context.client, queries, grid, &mut report.reads);
        Ok(read.await?.0)
    }
}

fn value(points: &SeriesPoints, key: (usize, &str, &str), time: Time) -> Option<i64> {
    let mut merged = Vec::new();
    let of = points.points_of(points.find(key), &mut merged);
    of.iter().find(|(at, _)| *at == time).map(|(_, value)| *value as i64)
}
