//! `--feature-gates`: upstream's feature gates and ours.

use std::str::FromStr;

use strum::{EnumString, VariantNames};

use super::go_values;
use plimsoll_core::types::compat::Compat;

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
pub enum FeatureGate {
    AllAlpha,
    /// All beta features of upstream; there are none.
    AllBeta,
    /// CPU startup boost, for the admission controller and the updater.
    #[strum(serialize = "CPUStartupBoost")]
    CpuStartupBoost,
    /// In-place resize, for the admission controller and the updater.
    InPlace,
    /// Recommendations for native sidecars. Not in upstream yet.
    NativeSidecar,
    #[strum(serialize = "PerVPAConfig")]
    PerVpaConfig,
}

/// The value of one `--feature-gates` flag: `PerVPAConfig=true,InPlace=false`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(Vec<(FeatureGate, bool)>);

impl FeatureGates {
    /// Merges several flags. The last value of a gate counts.
    pub fn merged(flags: impl IntoIterator<Item = Self>) -> Self {
        Self(flags.into_iter().flat_map(|gates| gates.0).collect())
    }

    fn setting(&self, wanted: FeatureGate) -> Option<bool> {
        self.0.iter().rev().find(|(gate, _)| *gate == wanted).map(|(_, on)| *on)
    }

    pub fn is_enabled(&self, gate: FeatureGate, compat: Compat) -> bool {
        self.setting(gate).unwrap_or_else(|| match gate {
            FeatureGate::NativeSidecar => compat == Compat::Plimsoll,
            FeatureGate::PerVpaConfig | FeatureGate::CpuStartupBoost | FeatureGate::InPlace => {
                self.setting(FeatureGate::AllAlpha).unwrap_or(false)
            }
            FeatureGate::AllAlpha | FeatureGate::AllBeta => false,
        })
    }
}

impl FromStr for FeatureGates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let gate = |pair: &str| {
            let (name, on) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair}: use {pair}=true or {pair}=false"))?;
            let (name, on) = (name.trim(), on.trim());
            let gate: FeatureGate = name.parse().map_err(|_| {
                let known = FeatureGate::VARIANTS.join(", ");
                format!("unknown feature gate `{name}`: valid gates are {known}")
            })?;
            Ok((gate, go_values::boolean(on).map_err(|wanted| format!("{name}: {wanted}"))?))
        };
        pairs.map(gate).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_gate_is_set_by_itself_before_its_stage() {
        for (flags, upstream, ours) in [
            ("", [false, false], [false, true]),
            ("PerVPAConfig=true", [true, false], [true, true]),
            ("AllAlpha=true", [true, false], [true, true]),
            ("PerVPAConfig=false, AllAlpha=true", [false, false], [false, true]),
            ("PerVPAConfig=true,PerVPAConfig=F,", [false, false], [false, true]),
            ("NativeSidecar=false", [false, false], [false, false]),
            ("NativeSidecar=1,InPlace=true,AllBeta=true", [false, true], [false, true]),
        ] {
            let gates: FeatureGates = flags.parse().expect(flags);
            let enabled = |compat| {
                [FeatureGate::PerVpaConfig, FeatureGate::NativeSidecar]
                    .map(|gate| gates.is_enabled(gate, compat))
            };
            assert_eq!(enabled(Compat::Upstream), upstream, "{flags}");
            assert_eq!(enabled(Compat::Plimsoll), ours, "{flags}");
        }
    }

    #[test]
    fn gates_of_several_flags_add_up() {
        let flags = ["PerVPAConfig=true", "InPlace=true", "PerVPAConfig=false"];
        let gates = FeatureGates::merged(flags.map(|flag| flag.parse().expect("valid gates")));
        assert!(gates.is_enabled(FeatureGate::InPlace, Compat::Upstream));
        assert!(!gates.is_enabled(FeatureGate::PerVpaConfig, Compat::Upstream));
    }

    #[test]
    fn an_unknown_gate_is_rejected_with_the_known_ones() {
        for (bad, remedy) in [
            ("PerVpaConfig=true", "PerVPAConfig"),
            ("PerVPAConfig", "PerVPAConfig=true"),
            ("PerVPAConfig=yes", "true or false"),
        ] {
            let error = bad.parse::<FeatureGates>().expect_err(bad);
            assert!(error.contains(remedy), "{error}");
        }
    }
}
