//! The thresholds of the report: from which amounts on something is said, dangerous, wasteful, or worth a
//! change. All of them are in one YAML file for `--thresholds`.

use serde::{Deserialize, Serialize};

use super::survey::Resource;
use crate::types::Quantity;

/// The largest file that is read.
const MAX_FILE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Thresholds {
    /// What is needed for a number.
    pub unsaid: UnsaidThresholds,
    /// Levels of risk.
    pub risk: RiskThresholds,
    /// Levels of waste.
    pub waste: WasteThresholds,
    /// When a request changes.
    pub change: ChangeThresholds,
    /// When one target for all groups of nodes is not enough.
    pub node_groups: NodeGroupThresholds,
    /// When memory without page cache is reported.
    pub page_cache: PageCacheThresholds,
    /// When a smaller heap of a Java virtual machine is reported.
    pub jvm: JvmThresholds,
}

/// What is needed for a number. With less, a container has neither a target nor a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UnsaidThresholds {
    /// Hours that the samples cover.
    pub covered_hours: f64,
    pub samples: u64,
    /// Runs of a job with samples.
    pub runs: u32,
    /// The share of the runs of a job with samples.
    pub seen_runs_share: f64,
}

impl Default for UnsaidThresholds {
    fn default() -> Self {
        Self { covered_hours: 24.0, samples: 100, runs: 3, seen_runs_share: 0.6 }
    }
}

/// Levels of risk, by resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RiskThresholds {
    pub cpu: CpuRiskThresholds,
    pub memory: MemoryRiskThresholds,
}

/// Levels of risk of CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CpuRiskThresholds {
    /// Critical: this share of CFS periods is throttled.
    pub critical_throttled_share: f64,
    /// High: this share of CFS periods is throttled.
    pub high_throttled_share: f64,
    /// High: more CPU than the request is used in this share of the time.
    pub high_above_request_share: f64,
    /// High: the request is below the lower bound, and by this much below the target.
    pub high_below_target: Quantity,
    /// Medium: the request is below this share of the target.
    pub medium_share_of_target: f64,
    /// Medium: there is no request, and the target is at least this.
    pub medium_target_without_request: Quantity,
}

impl Default for CpuRiskThresholds {
    fn default() -> Self {
        Self {
            critical_throttled_share: 0.25,
            high_throttled_share: 0.1,
            high_above_request_share: 0.2,
            high_below_target: millicores(100),
            medium_share_of_target: 0.9,
            medium_target_without_request: millicores(25),
        }
    }
}

/// Levels of risk of memory. An OOM kill under a limit that still stands is critical.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MemoryRiskThresholds {
    /// High: the peak is at least this share of the limit.
    pub high_peak_share_of_limit: f64,
    /// High: the request is below the lower bound, and by this much below the target.
    pub high_below_target: Quantity,
    /// High: there is no request, and the peak is at least this.
    pub high_peak_without_request: Quantity,
    /// Medium: the request is below this share of the target.
    pub medium_share_of_target: f64,
}

impl Default for MemoryRiskThresholds {
    fn default() -> Self {
        Self {
            high_peak_share_of_limit: 0.95,
            high_below_target: mebibytes(64),
            high_peak_without_request: mebibytes(128),
            medium_share_of_target: 0.9,
        }
    }
}

/// Levels of waste.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WasteThresholds {
    pub high: WasteLevel,
    pub medium: WasteLevel,
    /// Low waste: this share of the request is not needed, or the request is above the upper bound.
    pub low_share: f64,
}

impl Default for WasteThresholds {
    fn default() -> Self {
        Self {
            high: WasteLevel {
                share: 0.5,
                cpu: millicores(1000),
                memory: mebibytes(2048),
                monthly_cost: 50.0,
            },
            medium: WasteLevel {
                share: 0.3,
                cpu: millicores(250),
                memory: mebibytes(512),
                monthly_cost: 10.0,
            },
            low_share: 0.1,
        }
    }
}

/// A level of waste: the share, and either the amount or, with prices, the cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WasteLevel {
    /// The share of the request that is not needed.
    pub share: f64,
    /// CPU that all pods together do not need.
    pub cpu: Quantity,
    /// Memory that all pods together do not need.
    pub memory: Quantity,
    /// What it costs a month.
    pub monthly_cost: f64,
}

impl WasteLevel {
    /// The amount of a resource, in millicores or bytes.
    pub fn amount(&self, resource: Resource) -> i64 {
        match resource {
            Resource::Cpu => self.cpu.milli_value(),
            Resource::Memory => self.memory.value(),
        }
    }
}

/// When a request changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChangeThresholds {
    /// A request between its bounds stays if it differs from the target by less than this share.
    pub share: f64,
}

impl Default for ChangeThresholds {
    fn default() -> Self {
        Self { share: 0.1 }
    }
}

/// When the groups of nodes of a DaemonSet need requests of their own: the targets are this far apart, and
/// this much is wasted by the largest for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeGroupThresholds {
    /// The ratio of the largest target to the smallest.
    pub ratio: f64,
    /// CPU that all pods together do not need.
    pub cpu: Quantity,
    /// Memory that all pods together do not need.
    pub memory: Quantity,
}

impl Default for NodeGroupThresholds {
    fn default() -> Self {
        Self { ratio: 1.5, cpu: millicores(500), memory: mebibytes(1024) }
    }
}

/// When memory without page cache is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PageCacheThresholds {
    /// The share of the peak that is page cache.
    pub share: f64,
    /// With `--memory-signal=need`: the share of the peak of most days that is page cache.
    pub daily_share: f64,
    /// With `--memory-signal=need`: the share of page cache in use that is kept.
    pub kept_share: f64,
}

impl Default for PageCacheThresholds {
    fn default() -> Self {
        Self { share: 1.0 / 3.0, daily_share: 0.3, kept_share: 0.5 }
    }
}

/// When a smaller heap of a Java virtual machine is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JvmThresholds {
    /// The heap as a multiple of the data that stays in it.
    pub heap_factor: f64,
    /// The share of an hour that may be garbage collection.
    pub max_collection_share: f64,
}

impl Default for JvmThresholds {
    fn default() -> Self {
        Self { heap_factor: 2.5, max_collection_share: 0.05 }
    }
}

fn millicores(amount: i64) -> Quantity {
    Quantity::cpu(crate::types::MilliCpu(amount))
}

fn mebibytes(amount: i64) -> Quantity {
    Quantity::memory(crate::types::Bytes(amount << 20))
}

/// A file of thresholds that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdsError {
    #[error("the file has {0} bytes; at most {MAX_FILE_BYTES} are read")]
    TooLarge(usize),
    /// It is not YAML, or has another structure.
    #[error("{0}; `--thresholds=default` prints all fields")]
    Invalid(String),
    /// A value makes no sense.
    #[error("{field} is {value}; use {expected}")]
    Value {
        /// The path of the field.
        field: &'static str,
        value: String,
        /// What would be valid.
        expected: String,
    },
}

impl Thresholds {
    /// Parses a file. Fields that are missing have their defaults.
    pub fn from_yaml(text: &str) -> Result<Self, ThresholdsError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(ThresholdsError::TooLarge(text.len()));
        }
        if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
            return Ok(Self::default());
        }
        let thresholds: Self = serde_saphyr::from_str(text)
            .map_err(|error| ThresholdsError::Invalid(first_line(&error.to_string())))?;
        thresholds.validate()?;
        Ok(thresholds)
    }

    /// Prints a file with all fields.
    pub fn to_yaml(&self) -> Result<String, ThresholdsError> {
        serde_saphyr::to_string(self)
            .map_err(|error| ThresholdsError::Invalid(first_line(&error.to_string())))
    }

    /// Checks that each value makes sense.
    pub fn validate(&self) -> Result<(), ThresholdsError> {
        let Self { unsaid, risk, waste, change, node_groups, page_cache, jvm } = self;
        let (cpu, memory) = (&risk.cpu, &risk.memory);
        for (field, share) in [
            ("unsaid.seenRunsShare", unsaid.seen_runs_share),
            ("risk.cpu.criticalThrottledShare", cpu.critical_throttled_share),
            ("risk.cpu.highThrottledShare", cpu.high_throttled_share),
            ("risk.cpu.highAboveRequestShare", cpu.high_above_request_share),
            ("risk.cpu.mediumShareOfTarget", cpu.medium_share_of_target),
            ("risk.memory.highPeakShareOfLimit", memory.high_peak_share_of_limit),
            ("risk.memory.mediumShareOfTarget", memory.medium_share_of_target),
            ("waste.high.share", waste.high.share),
            ("waste.medium.share", waste.medium.share),
            ("waste.lowShare", waste.low_share),
            ("pageCache.share", page_cache.share),
            ("pageCache.dailyShare", page_cache.daily_share),
            ("jvm.maxCollectionShare", jvm.max_collection_share),
        ] {
            if !(share > 0.0 && share <= 1.0) {
                return Err(invalid(field, &share, "a number above 0 and at most 1"));
            }
        }
        for (field, amount) in [
            ("risk.cpu.highBelowTarget", cpu.high_below_target),
            ("risk.cpu.mediumTargetWithoutRequest", cpu.medium_target_without_request),
            ("risk.memory.highBelowTarget", memory.high_below_target),
            ("risk.memory.highPeakWithoutRequest", memory.high_peak_without_request),
            ("waste.high.cpu", waste.high.cpu),
            ("waste.high.memory", waste.high.memory),
            ("waste.medium.cpu", waste.medium.cpu),
            ("waste.medium.memory", waste.medium.memory),
            ("nodeGroups.cpu", node_groups.cpu),
            ("nodeGroups.memory", node_groups.memory),
        ] {
            if amount.is_zero() || amount.is_negative() {
                return Err(invalid(field, &amount, "an amount above 0"));
            }
        }
        for (field, cost) in [
            ("waste.high.monthlyCost", waste.high.monthly_cost),
            ("waste.medium.monthlyCost", waste.medium.monthly_cost),
        ] {
            if !(cost.is_finite() && cost > 0.0) {
                return Err(invalid(field, &cost, "a number above 0"));
            }
        }
        let hours = unsaid.covered_hours;
        if !(0.0..=8760.0).contains(&hours) {
            return Err(invalid("unsaid.coveredHours", &hours, "a number from 0 to 8760"));
        }
        if unsaid.runs == 0 {
            return Err(invalid("unsaid.runs", &unsaid.runs, "a number above 0"));
        }
        if !(0.0..=1.0).contains(&page_cache.kept_share) {
            return Err(invalid(
                "pageCache.keptShare",
                &page_cache.kept_share,
                "a number from 0 to 1",
            ));
        }
        if !(1.0..=100.0).contains(&jvm.heap_factor) {
            return Err(invalid("jvm.heapFactor", &jvm.heap_factor, "a number from 1 to 100"));
        }
        if !(0.0..1.0).contains(&change.share) {
            return Err(invalid("change.share", &change.share, "a number from 0 to below 1"));
        }
        if !(node_groups.ratio.is_finite() && node_groups.ratio >= 1.0) {
            return Err(invalid("nodeGroups.ratio", &node_groups.ratio, "a number of at least 1"));
        }
        self.validate_order()
    }

    /// Checks that a higher level never needs less than a lower one.
    fn validate_order(&self) -> Result<(), ThresholdsError> {
        let Self { risk, waste, .. } = self;
        let (high, medium) = (&waste.high, &waste.medium);
        let amount = Quantity::as_f64;
        for (field, higher, lower_field, lower) in [
            (
                "risk.cpu.criticalThrottledShare",
                risk.cpu.critical_throttled_share,
                "risk.cpu.highThrottledShare",
                risk.cpu.high_throttled_share,
            ),
            ("waste.high.share", high.share, "waste.medium.share", medium.share),
            ("waste.medium.share", medium.share, "waste.lowShare", waste.low_share),
            ("waste.high.cpu", amount(high.cpu), "waste.medium.cpu", amount(medium.cpu)),
            (
                "waste.high.memory",
                amount(high.memory),
                "waste.medium.memory",
                amount(medium.memory),
            ),
            (
                "waste.high.monthlyCost",
                high.monthly_cost,
                "waste.medium.monthlyCost",
                medium.monthly_cost,
            ),
        ] {
            if higher < lower {
                return Err(invalid(field, &higher, &format!("at least {lower_field} ({lower})")));
            }
        }
        Ok(())
    }
}

fn invalid(field: &'static str, value: &impl ToString, expected: &str) -> ThresholdsError {
    ThresholdsError::Value { field, value: value.to_string(), expected: expected.to_owned() }
}

/// The first line of a parser's message: the others repeat the source.
pub(super) fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim_end_matches([':', ' ']);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests;
