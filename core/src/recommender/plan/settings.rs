//! The settings of the planned requests, and the profiles that preset them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

const DAY: Duration = Duration::from_hours(24);

/// A profile whose requests are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum PlanProfile {
    /// Few changes, for clusters that evict pods to change requests.
    Steady,
    /// Follows the hours of the day carefully; for in-place resizes.
    Balanced,
    /// Follows the hours of the day closely; for in-place resizes.
    Tide,
}

/// The profile that plans the requests of a VPA, and the one that was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSelection {
    pub profile: PlanProfile,
    /// The selected profile, if it is another one: pods that are evicted for each change need few changes.
    pub replaced: Option<PlanProfile>,
}

impl PlanSelection {
    pub const fn of(profile: PlanProfile) -> Self {
        Self { profile, replaced: None }
    }

    /// The selection for a VPA whose update mode evicts pods: always `steady`.
    #[must_use]
    pub fn for_evictions(self) -> Self {
        let replaced = Some(self.profile).filter(|profile| *profile != PlanProfile::Steady);
        Self { profile: PlanProfile::Steady, replaced }
    }
}

/// How the requests of a VPA's containers are determined (`--profile`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_profile)]
pub enum RequestProfile {
    /// From percentiles of histograms, as upstream does.
    #[default]
    Vpa,
    /// See [`PlanProfile::Steady`].
    Steady,
    /// See [`PlanProfile::Balanced`].
    Balanced,
    /// See [`PlanProfile::Tide`].
    Tide,
}

impl RequestProfile {
    /// The profile of plans; `None` if requests are not planned.
    pub const fn plan(self) -> Option<PlanProfile> {
        match self {
            Self::Vpa => None,
            Self::Steady => Some(PlanProfile::Steady),
            Self::Balanced => Some(PlanProfile::Balanced),
            Self::Tide => Some(PlanProfile::Tide),
        }
    }
}

fn unknown_profile(text: &str) -> String {
    format!("unknown profile `{text}`; use `vpa`, `steady`, `balanced` or `tide`")
}

/// The profile of VPAs without an annotation, and what flags change of all profiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSettings {
    /// The profile (`--profile`).
    pub profile: RequestProfile,
    /// The price of a change, if it is not the profile's (`--price-change`).
    pub price_change: Option<f64>,
    /// The cost of missing cores (`--price-short`).
    pub price_short: f64,
    /// The cost of time above the request (`--price-above`).
    pub price_above: f64,
    /// The half-life of CPU samples in days (`--cpu-memory-days`).
    pub cpu_memory_days: f64,
    /// The number of days whose highest CPU usage counts (`--cpu-forget-days`).
    pub cpu_forget_days: u32,
    /// The minimum CPU in cores (`--cpu-floor`).
    pub cpu_floor_cores: f64,
    /// Memory (`--memory-days`, `--memory-margin`).
    pub memory: PeakWindowSettings,
}

impl Default for PlanSettings {
    fn default() -> Self {
        let cpu = CpuPlanSettings::of(PlanProfile::Steady);
        Self {
            profile: RequestProfile::default(),
            price_change: None,
            price_short: cpu.price_short,
            price_above: cpu.price_above,
            cpu_memory_days: 3.0,
            cpu_forget_days: cpu.forget_days,
            cpu_floor_cores: cpu.floor_cores,
            memory: PeakWindowSettings::default(),
        }
    }
}

impl PlanSettings {
    pub fn cpu(&self, profile: PlanProfile) -> CpuPlanSettings {
        let settings = CpuPlanSettings::of(profile);
        CpuPlanSettings {
            price_change: self.price_change.unwrap_or(settings.price_change),
            price_short: self.price_short,
            price_above: self.price_above,
            half_life: DAY.mul_f64(self.cpu_memory_days.clamp(0.01, 366.0)),
            forget_days: self.cpu_forget_days,
            floor_cores: self.cpu_floor_cores,
            ..settings
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuPlanSettings {
    /// Whether each hour of the day is planned with the usage of that hour, or all with the usage of whole days.
    pub hourly: bool,
    pub horizon_hours: u32,
    /// What a change must save to be made, as a share of a day's usage.
    pub price_change: f64,
    /// Cost of a core that is missing, relative to the cost of an idle one.
    pub price_short: f64,
    /// Cost of an hour with usage above the request, relative to an hour's usage.
    pub price_above: f64,
    /// Half-life of usage samples, and of the record of how much was requested for it.
    pub half_life: Duration,
    pub recent_half_life: Duration,
    /// Weight of the recent usage in the present hour.
    pub recent_weight: f64,
    /// Number of hours in which the weight of the recent usage falls to 1/e.
    pub recent_fade_hours: f64,
    /// Usage that has not recurred for this number of days is left out.
    pub forget_days: u32,
    /// Share of the recent usage above the request from which a plan is made at once.
    pub alarm_share: f64,
    /// The minimum request in cores.
    pub floor_cores: f64,
    /// The smallest step that is made, as a share of the request.
    pub min_step: f64,
    pub plan_interval: Duration,
    /// A request is only lowered if the last sample is not older than this.
    pub max_sample_age: Duration,
}

impl CpuPlanSettings {
    /// The most days that a plan can remember peaks of.
    pub const MAX_FORGET_DAYS: u32 = 60;

    pub const MAX_HORIZON_HOURS: u32 = 168;

    pub fn of(profile: PlanProfile) -> Self {
        let (hourly, horizon_hours, price_change) = match profile {
            PlanProfile::Steady => (false, 48, 0.05),
            PlanProfile::Balanced => (true, 24, 0.03),
            PlanProfile::Tide => (true, 24, 0.005),
        };
        Self {
            hourly,
            horizon_hours,
            price_change,
            price_short: 4.0,
            price_above: 1.0,
            half_life: 3 * DAY,
            recent_half_life: Duration::from_mins(30),
            recent_weight: 0.5,
            recent_fade_hours: 2.0,
            forget_days: 3,
            alarm_share: 0.2,
            floor_cores: 0.001,
            min_step: 0.02,
            plan_interval: Duration::from_hours(1),
            max_sample_age: Duration::from_mins(15),
        }
    }

    /// The number of daily peaks that count, today included.
    pub(super) fn peak_days(&self) -> usize {
        self.forget_days.clamp(1, Self::MAX_FORGET_DAYS) as usize
    }
}

/// The settings of a memory request from the highest usage of the last days.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakWindowSettings {
    /// Number of complete days that count besides today.
    pub days: u32,
    /// Fraction that is added to the highest usage.
    pub margin: f64,
    /// Factor of the request after an OOM kill.
    pub oom_ratio: f64,
    /// The request is raised if the target is above it by more than this fraction.
    pub raise_above: f64,
    /// The request is lowered if the target is below it by more than this fraction.
    pub lower_below: f64,
    /// Time since the last change before a request is lowered.
    pub lower_delay: Duration,
    /// The minimum request in bytes.
    pub floor_bytes: f64,
    /// A request is only lowered if the last sample is not older than this.
    pub max_sample_age: Duration,
}

impl PeakWindowSettings {
    pub const MAX_DAYS: u32 = 60;
}

impl Default for PeakWindowSettings {
    fn default() -> Self {
        Self {
            days: 5,
            margin: 0.20,
            oom_ratio: 1.2,
            raise_above: 0.03,
            lower_below: 0.05,
            lower_delay: Duration::from_hours(6),
            floor_bytes: 1_048_576.0,
            max_sample_age: Duration::from_mins(15),
        }
    }
}
