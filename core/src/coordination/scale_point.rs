//! The scale point: the usage per pod at which replicas are neither added nor removed.

use serde::Serialize;

use super::scaled;

/// The usage per pod at which replicas are neither added nor removed: the target utilization of the request in the pod
/// template. A VPA changes the requests of pods but never the template, so the scale point only moves when a user edits the
/// template or the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalePoint {
    /// The usage per pod, in milli-units.
    pub milli: i64,
    /// What it is derived from.
    pub source: ScalePointSource,
}

/// What a scale point is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalePointSource {
    /// The request in the pod template.
    Template,
    /// The requests that the pods had when they were first observed, because the template has none.
    FirstRequests,
    /// The request that was set while more replicas were needed than the maximum allows.
    RaisedAtMax {
        /// The scale point without that.
        base: i64,
    },
}

impl ScalePoint {
    /// The scale point for a target in percent; `None` if no request is known.
    pub fn of(
        target_percent: i32,
        template: Option<i64>,
        first_requests: Option<i64>,
    ) -> Option<Self> {
        let known = |request: Option<i64>| request.filter(|request| *request > 0);
        let (request, source) = match (known(template), known(first_requests)) {
            (Some(request), _) => (request, ScalePointSource::Template),
            (None, Some(request)) => (request, ScalePointSource::FirstRequests),
            (None, None) => return None,
        };
        let milli = scaled(request, target_percent.into(), 100);
        (milli > 0).then_some(Self { milli, source })
    }

    /// Raises the scale point; a lower one is ignored.
    #[must_use]
    pub fn raised_to(self, milli: i64) -> Self {
        if milli <= self.milli {
            return self;
        }
        Self { milli, source: ScalePointSource::RaisedAtMax { base: self.milli } }
    }
}
