//! The rules that are compared on series.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

use std::time::Duration;

use super::{krr::Krr, plan::Plan, vpa::Vpa};
use crate::{
    history::BucketScheme,
    recommender::plan::{CpuPlanSettings, PlanProfile},
};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum TraceRule {
    /// Upstream's VerticalPodAutoscaler 1.8.1.
    Vpa,
    /// The same with a minimum of 1m in place of 25m.
    VpaLowFloor,
    /// The same with a minimum of 1m and buckets that begin at 1m.
    VpaFine,
    /// KRR's strategy `simple`.
    Krr,
    /// The same with a minimum of 1m in place of 10m.
    KrrLowFloor,
    /// The plan `steady`.
    Steady,
    /// The same with a minimum of 10m.
    Steady10m,
    /// The same with a minimum of 25m.
    Steady25m,
    /// The plan `balanced`.
    Balanced,
    /// The plan `tide`.
    Tide,
    /// The same with a plan every ten minutes.
    TideOften,
}

impl TraceRule {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Vpa => "VPA 1.8.1 (25m floor)",
            Self::VpaLowFloor => "VPA, 1m floor",
            Self::VpaFine => "VPA, 1m floor, fine buckets",
            Self::Krr => "KRR simple (10m floor)",
            Self::KrrLowFloor => "KRR simple, 1m floor",
            Self::Steady => "plimsoll steady",
            Self::Steady10m => "plimsoll steady, 10m floor",
            Self::Steady25m => "plimsoll steady, 25m floor",
            Self::Balanced => "plimsoll balanced",
            Self::Tide => "plimsoll tide",
            Self::TideOften => "plimsoll tide, every 10 min",
        }
    }

    pub(super) fn start(self, at: f64) -> Box<dyn SeriesRule> {
        let plan = |profile, floor_cores| {
            let settings = CpuPlanSettings { floor_cores, ..CpuPlanSettings::of(profile) };
            Box::new(Plan::new(settings, at))
        };
        match self {
            Self::Vpa => Box::new(Vpa::new(0.025, BucketScheme::Standard, at)),
            Self::VpaLowFloor => Box::new(Vpa::new(0.001, BucketScheme::Standard, at)),
            Self::VpaFine => Box::new(Vpa::new(0.001, BucketScheme::Fine, at)),
            Self::Krr => Box::new(Krr::new(0.01, at)),
            Self::KrrLowFloor => Box::new(Krr::new(0.001, at)),
            Self::Steady => plan(PlanProfile::Steady, 0.001),
            Self::Steady10m => plan(PlanProfile::Steady, 0.01),
            Self::Steady25m => plan(PlanProfile::Steady, 0.025),
            Self::Balanced => plan(PlanProfile::Balanced, 0.001),
            Self::Tide => plan(PlanProfile::Tide, 0.001),
            Self::TideOften => {
                let plan_interval = Duration::from_mins(10);
                let tide = CpuPlanSettings::of(PlanProfile::Tide);
                Box::new(Plan::new(CpuPlanSettings { plan_interval, ..tide }, at))
            }
        }
    }
}

/// A rule with its state. It sees values in order and may change the request on a clock.
pub(super) trait SeriesRule {
    /// Takes a value, with the request in force.
    fn take(&mut self, at: f64, cores: f64, request: f64);

    /// The request from now on.
    fn decide(&mut self, at: f64, request: f64) -> f64;
}
