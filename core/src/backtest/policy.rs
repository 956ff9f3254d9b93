//! The policies that a backtest compares: a rule with settings, and how its recommendations reach pods.

mod autopilot;
mod model;
mod oracle;
pub(super) mod parse;
mod plan;
mod rule_state;
mod window;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

pub(crate) use model::Estimates;
pub use parse::InvalidPolicy;
pub(crate) use rule_state::{Advice, ContainerAdvice, LimitAdvice, RuleContext, RuleState, Seen};

use crate::{
    recommender::tuning_annotations::{PROFILES, Tuning},
    types::compat::Compat,
};

/// The rule of a policy. The names are those of the command line.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum PolicyRule {
    /// What was requested in fact.
    Current,
    /// Our model with its defaults.
    Plimsoll,
    /// Our model with the profile `latency`.
    Latency,
    /// Our model with the profile `batch`.
    Batch,
    /// Our model with the profile `cost`.
    Cost,
    /// The plan with a price per change, for clusters that evict.
    Steady,
    /// The same by the hour of the day, for resizes in place: one to three changes a day.
    Balanced,
    /// The same with a low price: three to eight changes a day.
    Tide,
    /// Upstream's VerticalPodAutoscaler, its defects included.
    Vpa,
    /// KRR's strategy `simple`: p95 of 14 days of CPU, the largest of the pods; the peak of memory + 15 %.
    KrrSimple,
    /// KRR's strategy `simple_limit`: the request by p66, the limit by p96 of all pods.
    KrrSimpleLimit,
    /// Kubecost's request right-sizing for production: the largest use of 7 days / 0.65.
    Kubecost,
    /// Kruize's model `cost`: p60 of the largest use by quarter of an hour, 7 days.
    KruizeCost,
    /// Kruize's model `performance`: the same with p98.
    KruizePerformance,
    /// Autopilot's rule for serving jobs: load-adjusted p95 with a half-life of 12 h, + 12 %.
    AutopilotServing,
    /// Autopilot's rule for batch jobs: the mean with a half-life of 12 h, + 12 %.
    AutopilotBatch,
    /// The p95 of CPU and the peak of memory of the day that begins: a yardstick that needs the future.
    Oracle,
}

/// How recommendations reach pods.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum ApplyMode {
    /// The passes of our updater, with all of its guards.
    #[default]
    Updater,
    /// Once a day, all pods at once.
    Daily,
    /// Once a week, all pods at once.
    Weekly,
    /// Every ten minutes (rules that read a window of days: every hour), all pods at once, without any guard.
    #[strum(serialize = "instant")]
    #[serde(rename = "instant")]
    Immediate,
}

/// A policy: a rule with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name in the report.
    pub name: Box<str>,
    pub rule: PolicyRule,
    /// Values that replace those of the rule; only rules of our model have any.
    pub tuning: Tuning,
    /// How its recommendations reach pods.
    pub apply: ApplyMode,
    /// Whether pods are resized in place; `None` as the setting of the backtest.
    pub in_place: Option<bool>,
    /// The settings as they were written, but for the rule and the apply mode.
    pub settings: Box<str>,
}

/// What a report says about a policy, so that parts of a backtest can be merged without the policies themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLabel {
    pub name: String,
    /// Its settings as text; empty if it has none of its own.
    pub settings: String,
    /// How its recommendations reach pods; `recorded` for what was requested in fact.
    pub apply: String,
    /// Whether it is only a yardstick and not judged.
    pub is_yardstick: bool,
    /// Whether the others are compared with it.
    pub is_current: bool,
}

impl PolicyRule {
    pub const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// How its recommendations reach pods unless something else is asked for.
    pub fn default_apply(self) -> ApplyMode {
        match self {
            Self::Current
            | Self::Plimsoll
            | Self::Latency
            | Self::Batch
            | Self::Cost
            | Self::Steady
            | Self::Balanced
            | Self::Tide
            | Self::Vpa => ApplyMode::Updater,
            Self::KrrSimple
            | Self::KrrSimpleLimit
            | Self::Kubecost
            | Self::KruizeCost
            | Self::KruizePerformance => ApplyMode::Weekly,
            Self::AutopilotServing | Self::AutopilotBatch => ApplyMode::Immediate,
            Self::Oracle => ApplyMode::Daily,
        }
    }

    /// The mode of our model that the rule uses, if it does.
    pub fn model(self) -> Option<Compat> {
        match self {
            Self::Plimsoll | Self::Latency | Self::Batch | Self::Cost => Some(Compat::Plimsoll),
            Self::Vpa => Some(Compat::Upstream),
            _ => None,
        }
    }

    /// The values of the profile of this name.
    fn profile(self) -> Tuning {
        let profile = PROFILES.iter().find(|profile| profile.name == self.as_str());
        profile.map_or(Tuning::NONE, |profile| profile.tuning)
    }
}

impl Policy {
    /// What is compared if nothing else is asked for.
    pub const DEFAULT_NAMES: &'static [&'static str] =
        &["current", "plimsoll", "latency", "cost", "vpa", "krr-simple", "oracle"];

    /// The policy of a rule with its defaults.
    pub fn new(rule: PolicyRule) -> Self {
        // They change requests too often for evictions.
        let is_in_place = matches!(rule, PolicyRule::Balanced | PolicyRule::Tide);
        Self {
            name: rule.as_str().into(),
            rule,
            tuning: rule.profile(),
            apply: rule.default_apply(),
            in_place: is_in_place.then_some(true),
            settings: if is_in_place { "in-place=true" } else { "" }.into(),
        }
    }

    /// What a report says about it.
    pub fn label(&self) -> PolicyLabel {
        let is_current = self.rule == PolicyRule::Current;
        let apply: &str = if is_current { "recorded" } else { self.apply.into() };
        PolicyLabel {
            name: self.name.to_string(),
            settings: self.settings.to_string(),
            apply: apply.to_owned(),
            is_yardstick: self.rule == PolicyRule::Oracle,
            is_current,
        }
    }
}
