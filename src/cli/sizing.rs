//! The flags by which pods are sized: the same for whoever makes pods, changes them, or explains that.

use clap::Args;

use super::feature_gates::{FeatureGate, FeatureGates};
use plimsoll_core::{
    sizing::LimitPolicy,
    types::compat::{Compat, Fix, Fixes},
};

/// Whose ways, and what becomes of limits.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    /// Whose ways: `plimsoll`, or `upstream` with its defects
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    #[arg(env = "PLIMSOLL_FLAG_COMPAT", hide_env = true)]
    compat: Compat,
    /// Switches one named fix off (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(env = "PLIMSOLL_FLAG_DISABLE_FIX", hide_short_help = true, hide_env = true)]
    disable_fix: Vec<Fix>,
    /// Features by name, as in InPlace=true,CPUStartupBoost=true
    #[arg(long, value_name = "GATES")]
    #[arg(env = "PLIMSOLL_FLAG_FEATURE_GATES", hide_env = true)]
    feature_gates: Vec<FeatureGates>,
    /// Limits: `ratio`, `requestsOnly`, `fixed:FACTOR` or `max`; the same for all who size pods
    #[arg(long, value_name = "POLICY", default_value = "ratio")]
    #[arg(env = "PLIMSOLL_FLAG_LIMIT_POLICY", hide_short_help = true, hide_env = true)]
    limit_policy: LimitPolicy,
}

impl SizingArgs {
    /// Whose ways are wanted.
    pub const fn compat(&self) -> Compat {
        self.compat
    }

    /// The fixes that are on.
    pub fn fixes(&self) -> Fixes {
        self.disable_fix.iter().copied().fold(Fixes::for_compat(self.compat), Fixes::without)
    }

    /// Whether a feature is on.
    pub fn is_enabled(&self, gate: FeatureGate) -> bool {
        FeatureGates::merged(self.feature_gates.iter().cloned()).is_enabled(gate, self.compat)
    }

    /// What becomes of limits.
    pub const fn limit_policy(&self) -> LimitPolicy {
        self.limit_policy
    }
}
