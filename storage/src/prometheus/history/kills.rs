//! Kills for lack of memory, out of what kube-state-metrics shows of containers.
//!
//! A kill is a restart of a container whose last end was one: the count of restarts rose, and the reason is `OOMKilled`
//! now. Now means twice: by the last sample, which a server forgets when a scrape no longer brings it, and by a sample
//! of this very minute, for servers whose blocks were written without such marks. It is looked for as often as CPU, so
//! its time is known as well as that. What the container asked for then is read along, only where there was a kill.

use std::{collections::HashMap, time::Duration};

use super::{
    batch::Batch,
    plan::{Plan, impossible, one_each},
    proof::reason,
    report::Report,
    slice::{Points, Taker},
};
use crate::prometheus::{
    client::{Client, Grid},
    failure::Failure,
    query::{Over, Query},
    schema::{Schema, States},
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
pub(super) struct Kill {
    pub(super) claim: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    pub(super) at: Time,
    pub(super) request_bytes: i64,
    pub(super) limit_bytes: Option<i64>,
}

/// What was seen of kills last, by workload, container and pod.
pub(super) type Counted = HashMap<(usize, Box<str>, Box<str>), Seen>;

/// A kill as it is seen for some time after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// The count of restarts then.
    count: f64,
    /// When it was seen last.
    at: Time,
}

/// What is asked about kills in a part of a history.
pub(super) struct Question<'a> {
    pub(super) client: &'a Client,
    pub(super) schema: &'a Schema,
    pub(super) states: &'a States,
    pub(super) plan: &'a Plan,
    pub(super) batch: &'a Batch,
    /// The pods that were killed at some time.
    pub(super) pods: Pattern,
    /// Points that may be held of each answer.
    pub(super) most: u64,
    /// After the first time and up to the second.
    pub(super) span: (Time, Time),
}

impl Question<'_> {
    /// The kills, by container and pod and in order of time. One that was counted does not count again, nor one that
    /// can be seen at the beginning already: whoever read the time before has it.
    pub(super) async fn ask(
        &self,
        counted: &mut Counted,
        report: &mut Report,
    ) -> Result<Vec<Kill>, Failure> {
        let condition = self.condition();
        let (after, to) = self.span;
        let grid = Grid::new(after, to, self.plan.cpu).map_err(impossible)?;
        let mut restarts = self.points(&condition, grid, report).await?;
        if restarts.is_empty() {
            return Ok(Vec::new());
        }
        let mut requests = self.asked_for(&REQUESTS, &condition, grid, report).await?;
        let mut limits = self.asked_for(&LIMITS, &condition, grid, report).await?;
        for points in [&mut restarts, &mut requests, &mut limits] {
            points.sort();
        }
        let mut kills = Vec::new();
        let mut merged = Vec::new();
        for rows in restarts.groups() {
            let key = rows[0].key();
            let none = Seen { count: 0.0, at: Time::EPOCH };
            let known = counted.entry((key.0, key.1.into(), key.2.into())).or_insert(none);
            for &(at, count) in restarts.of(rows, &mut merged) {
                // Fewer than before: a new pod that has the name of an old one. So is one with as many, when the old
                // one's can be seen no longer.
                let same = (count - known.count).abs() < 0.5 && at <= known.at.later(self.window());
                *known = Seen { count, at };
                if same || at <= after {
                    continue;
                }
                kills.push(Kill {
                    claim: key.0,
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
    fn condition(&self) -> Query {
        let on = self.states.identity();
        let restarts = self.family("kube_pod_container_status_restarts_total");
        let reason = reason(self.states, self.schema, &self.batch.namespace)
            .matches(&self.states.pod, self.pods.clone());
        let rose = one_each(&Query::over(Over::Increase, &restarts, self.window()), &on).above(0);
        let fresh = one_each(&Query::over(Over::Last, &reason, OLDEST), &on);
        let killed = one_each(&reason.into(), &on).being(1);
        one_each(&restarts.into(), &on)
            .where_also(&rose, &on)
            .where_also(&killed, &on)
            .where_also(&fresh, &on)
    }

    /// For how long a rise of the count can be seen.
    fn window(&self) -> Duration {
        self.plan.cpu.saturating_add(LONGEST_PACE.max(self.schema.pace.value.longest))
    }

    fn family(&self, name: &str) -> Selector {
        let states = self.states.of(name, &self.batch.namespace, &self.schema.matchers);
        states.matches(&self.states.pod, self.pods.clone())
    }

    /// How much memory was asked for at the time of each kill.
    async fn asked_for(
        &self,
        families: &[&str; 2],
        condition: &Query,
        grid: Grid,
        report: &mut Report,
    ) -> Result<Points, Failure> {
        let [today, before] = families;
        let selector = match (self.states.has(today), self.states.has(before)) {
            (false, true) => self.family(before),
            _ => self.family(today).equals("resource", "memory"),
        };
        let on = self.states.identity();
        let amounts = one_each(&selector.into(), &on);
        self.points(&amounts.where_also(condition, &on), grid, report).await
    }

    async fn points(
        &self,
        query: &Query,
        grid: Grid,
        report: &mut Report,
    ) -> Result<Points, Failure> {
        let mut taker = Taker::new(self.batch, self.states.identity(), self.most);
        let tally = self.client.range(query, grid, &mut taker).await;
        report.add(&tally.map_err(|interrupted| interrupted.failure)?);
        Ok(taker.done().0)
    }
}

/// The value at this time.
fn value(points: &Points, key: (usize, &str, &str), time: Time) -> Option<i64> {
    let mut merged = Vec::new();
    let of = points.of(points.find(key), &mut merged);
    of.iter().find(|(at, _)| *at == time).map(|(_, value)| *value as i64)
}
