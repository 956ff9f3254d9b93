//! What a report depends on besides workloads and their history.

use std::time::Duration;

use super::{
    autoscaler::AutoscalerRule,
    limits::LimitRules,
    page_cache::MemorySignal,
    prices::Prices,
    report::SourceReport,
    survey::{Amounts, Unread},
    thresholds::Thresholds,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportOptions {
    pub thresholds: Thresholds,
    /// `--limit-policy`, `--cpu-limit` and `--memory-limit`.
    pub limits: LimitRules,
    /// `--hpa`.
    pub autoscalers: AutoscalerRule,
    pub prices: Option<Prices>,
    /// `--cap-to-largest-node`: pods request at most what a node can give.
    pub cap_to_largest_node: bool,
    /// `--keep-peaks`: memory covers the peak of the longer time.
    pub keep_peaks: bool,
    pub memory_signal: MemorySignal,
    /// `--recommendation-margin-fraction`, for memory without page cache.
    pub margin: f64,
    /// `--container-recommendation-max-allowed-cpu` and `-memory`, which the limit policy `max` uses.
    pub max_allowed: Amounts,
    /// The length of the window; `None` if it differs between sources. What jobs cost depends on it.
    pub window: Option<Duration>,
    /// What the report says about itself.
    pub head: ReportHead,
}

/// What a report says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportHead {
    /// The version of Plimsoll.
    pub version: String,
    /// The clusters, with their servers.
    pub sources: Vec<SourceReport>,
    /// Flags that change numbers and differ from their default.
    pub settings: Vec<String>,
    /// The name of the recommendation strategy, if it is not Plimsoll's.
    pub strategy: Option<String>,
    /// What could not be read, besides what the survey says.
    pub unread: Vec<Unread>,
    /// Remarks that concern the whole report.
    pub remarks: Vec<String>,
}
