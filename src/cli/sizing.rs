//! The flags for sizing pods, shared by the admission controller, the updater and `explain pod`.

use clap::Args;

use super::feature_gates::{FeatureGate, FeatureGates};
use plimsoll_core::{
    sizing::LimitPolicy,
    types::compat::{Compat, Fix, Fixes},
};

/// Compatibility mode, feature gates and the limit policy.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    /// Compatibility mode: `plimsoll`, or `upstream` including its bugs
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    #[arg(env = "PLIMSOLL_FLAG_COMPAT", hide_env = true)]
    compat: Compat,
    /// Disables a fix of an upstream bug (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(env = "PLIMSOLL_FLAG_DISABLE_FIX", hide_short_help = true, hide_env = true)]
    disable_fix: Vec<Fix>,
    /// Feature gates, such as InPlace=true,CPUStartupBoost=true
    #[arg(long, value_name = "GATES")]
    #[arg(env = "PLIMSOLL_FLAG_FEATURE_GATES", hide_env = true)]
    feature_gates: Vec<FeatureGates>,
    /// Limit policy: `ratio`, `requestsOnly`, `fixed:FACTOR` or `max`; must be the same for the admission controller and the
    /// updater
    #[arg(long, value_name = "POLICY", default_value = "ratio")]
    #[arg(env = "PLIMSOLL_FLAG_LIMIT_POLICY", hide_short_help = true, hide_env = true)]
    limit_policy: LimitPolicy,
}

impl SizingArgs {
    /// The compatibility mode.
    pub const fn compat(&self) -> Compat {
        self.compat
    }

    /// The enabled fixes.
    pub fn fixes(&self) -> Fixes {
        self.disable_fix.iter().copied().fold(Fixes::for_compat(self.compat), Fixes::without)
    }

    /// Whether a feature is enabled.
    pub fn is_enabled(&self, gate: FeatureGate) -> bool {
        FeatureGates::merged(self.feature_gates.iter().cloned()).is_enabled(gate, self.compat)
    }

    /// The limit policy.
    pub const fn limit_policy(&self) -> LimitPolicy {
        self.limit_policy
    }
}
