//! The flags for sizing pods, shared by the admission controller, the updater and `explain pod`.

use clap::Args;

use super::feature_gates::{FeatureGate, FeatureGates};
use crate::controllers::runtime::hpa_replacement::DEFAULT_NAMESPACE;
use plimsoll_core::{
    sizing::LimitPolicy,
    types::compat::{Compat, Fix, Fixes},
};

/// Compatibility mode, feature gates and the limit policy.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    /// Compatibility mode: `plimsoll`, or `upstream` including its bugs
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    pub compat: Compat,
    /// Disables a fix of an upstream bug (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_short_help = true)]
    disable_fix: Vec<Fix>,
    /// Feature gates, such as InPlace=true,CPUStartupBoost=true
    #[arg(long, value_name = "GATES")]
    feature_gates: Vec<FeatureGates>,
    /// Limit policy: `ratio`, `requestsOnly`, `fixed:FACTOR` or `max`; must be the same for the admission controller and the
    /// updater
    #[arg(long, value_name = "POLICY", default_value = "ratio", hide_short_help = true)]
    pub limit_policy: LimitPolicy,
    /// Namespace of the Lease of the horizontal controller, which shows whether it replaces the HPA controller
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_NAMESPACE, hide_short_help = true)]
    pub horizontal_lease_namespace: String,
    /// Changes requests that a HorizontalPodAutoscaler scales by, together with its averageUtilization; set it for the updater,
    /// which needs the right to patch HorizontalPodAutoscalers, and for the admission controller
    #[arg(long, hide_short_help = true)]
    retarget_hpas: bool,
}

impl SizingArgs {
    pub fn fixes(&self) -> Fixes {
        self.disable_fix.iter().copied().fold(Fixes::for_compat(self.compat), Fixes::without)
    }

    /// Whether targets of HorizontalPodAutoscalers change together with requests.
    pub fn retarget_hpas(&self) -> Result<bool, String> {
        if self.retarget_hpas && self.compat == Compat::Upstream {
            let why = "--retarget-hpas cannot be used with --compat=upstream, which ignores HorizontalPodAutoscalers";
            return Err(why.to_owned());
        }
        Ok(self.retarget_hpas)
    }

    pub fn is_enabled(&self, gate: FeatureGate) -> bool {
        FeatureGates::merged(self.feature_gates.iter().cloned()).is_enabled(gate, self.compat)
    }
}
