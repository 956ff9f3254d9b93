//! What has to be remembered about a request that both autoscalers use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    RequestRange, ScalePoint,
    at_max::{self, AT_MAX_FOR, Measurement, Raised},
    idle::IdleSpan,
    usage_per_pod::Comparison,
};
use crate::types::Time;

/// A shorter idle time is not stored: it ends and starts again too often, and is nothing in eight days.
const MIN_STORED_IDLE: Duration = Duration::from_hours(1);

/// What has to be persisted between decisions. Persist it before acting.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The first requests that were observed, if the template has none.
    pub first_requests: Option<i64>,
    /// Since when more replicas are needed than the maximum.
    pub lacks_replicas_since: Option<Time>,
    pub raised: Option<Raised>,
    pub idle: Option<IdleSpan>,
}

impl State {
    /// Remembers the first requests, unless the template has one.
    #[must_use]
    pub fn with_first_requests(self, template: Option<i64>, mean_request: Option<i64>) -> Self {
        let known = |request: Option<i64>| request.filter(|request| *request > 0);
        let first = known(self.first_requests).or(known(mean_request));
        Self { first_requests: first.filter(|_| known(template).is_none()), ..self }
    }

    /// The scale point that is not raised; `None` if no request is known.
    pub fn base(&self, target_percent: i32, template: Option<i64>) -> Option<ScalePoint> {
        ScalePoint::of(target_percent, template, self.first_requests)
    }

    /// The scale point, raised as far as the requests of the pods are.
    pub fn scale_point(&self, base: ScalePoint, mean_request: Option<i64>) -> ScalePoint {
        let raised = self.raised_from(base).map(|raised| raised.scale_point(mean_request));
        raised.map_or(base, |milli| base.raised_to(milli))
    }

    /// The range of the request of a pod whose replicas follow usage.
    pub fn range(&self, base: ScalePoint) -> RequestRange {
        let raised = self.raised_from(base).map(|raised| raised.request);
        RequestRange::for_usage(base, raised, self.is_idle())
    }

    fn raised_from(&self, base: ScalePoint) -> Option<Raised> {
        self.raised.filter(|raised| raised.base == base.milli)
    }

    /// Whether the workload is idle.
    pub fn is_idle(&self) -> bool {
        self.idle.is_some_and(IdleSpan::is_idle)
    }

    /// The state after a measurement. What is unknown neither starts nor ends anything.
    #[must_use]
    pub fn after(self, base: ScalePoint, measured: &Measurement) -> Self {
        let Measurement { usage, replicas, min, now, .. } = *measured;
        let mut state = Self { raised: measured.keep(self.raised, base), ..self };
        let scale_point = state.scale_point(base, measured.mean_request);
        state.idle = IdleSpan::next(state.idle, usage, replicas <= min, scale_point, now);
        state.lacks_replicas_since = match measured.lacks_replicas(scale_point) {
            Comparison::Above => Some(self.lacks_replicas_since.unwrap_or(now)),
            Comparison::Unknown => self.lacks_replicas_since,
            Comparison::NotAbove => None,
        };
        state
    }

    /// The request that the last hour asks for, if more replicas have been needed than the maximum for long enough. `peak` is
    /// that of [`super::RecentUsage::target`].
    pub fn needed_request(&self, range: RequestRange, peak: Option<i64>, now: Time) -> Option<i64> {
        self.lacked_replicas_since(now)?;
        Some(range.clamp(peak?))
    }

    /// Raises the request, and with it the scale point, unless that is as high.
    pub fn raise(&mut self, base: ScalePoint, request: i64, now: Time) {
        let raised = self.raised_from(base);
        let current = raised.map_or(base.milli, |raised| at_max::at_request(raised.request));
        if at_max::at_request(request) <= current {
            return;
        }
        let since = raised.map_or(now, |raised| raised.since);
        self.raised = Some(Raised { request, base: base.milli, since, needed: now });
        // The next raise has to be needed for as long again.
        self.lacks_replicas_since = Some(now);
    }

    /// Since when the scale point is too low for the maximum of replicas; `None` if it is not, or not for long enough.
    pub fn is_too_low_since(&self, now: Time) -> Option<Time> {
        self.lacked_replicas_since(now).or(self.raised.map(|raised| raised.since))
    }

    fn lacked_replicas_since(&self, now: Time) -> Option<Time> {
        self.lacks_replicas_since.filter(|since| since.later(AT_MAX_FOR) <= now)
    }

    /// The state to store: without what changes often and means nothing yet.
    #[must_use]
    pub fn to_store(self, now: Time) -> Self {
        Self {
            lacks_replicas_since: self.lacked_replicas_since(now),
            idle: self.idle.filter(|idle| idle.length() >= MIN_STORED_IDLE),
            ..self
        }
    }

    /// The stored state with which a process continues: without what cannot be. A client that can write it cannot raise a
    /// request for ever.
    #[must_use]
    pub fn restored(self, now: Time) -> Self {
        let is_past = |since: &Time| *since <= now;
        // With `filter` and `map`, rustc 1.95 with `opt-level = 1` compiles a `None` that is not equal to `None`.
        let raised = match self.raised {
            Some(raised) if raised.base > 0 && at_max::at_request(raised.request) > raised.base => {
                let (since, needed) = (raised.since.min(now), raised.needed.min(now));
                Some(Raised { since, needed, ..raised })
            }
            _ => None,
        };
        Self {
            first_requests: self.first_requests.filter(|request| *request > 0),
            lacks_replicas_since: self.lacks_replicas_since.filter(is_past),
            raised,
            idle: self.idle.filter(|idle| idle.since <= idle.last && idle.last <= now),
        }
    }

    /// The part whose changes are stored at once. The times may be stored later.
    #[must_use]
    pub fn without_times(self) -> Self {
        let raised = self.raised.map(|raised| Raised { needed: raised.since, ..raised });
        let idle = self.idle.map(|idle| IdleSpan { last: idle.since, ..idle });
        Self { raised, idle, ..self }
    }
}
