//! The resources that are recommended.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use super::{Bytes, MilliCpu, Quantity, quantity::Format};

/// A resource that is recommended, with its names in requests, limits and metrics.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Resource {
    /// CPU: amounts in millicores, usage in cores.
    Cpu,
    /// Memory: amounts and usage in bytes.
    Memory,
}

impl Resource {
    /// The amount of a usage, truncated.
    pub fn amount(self, usage: f64) -> i64 {
        match self {
            Self::Cpu => MilliCpu::from_cores(usage).0,
            Self::Memory => Bytes::from_f64(usage).0,
        }
    }

    /// An amount in milli-units as it is written in objects.
    pub fn quantity(self, milli: i64) -> Quantity {
        match self {
            Self::Cpu => Quantity::from_milli(milli, Format::DecimalSi),
            Self::Memory => Quantity::from_milli(milli, Format::BinarySi),
        }
    }

    /// Multiplies an amount and truncates the result.
    pub fn scale(self, amount: i64, factor: f64) -> i64 {
        match self {
            Self::Cpu => MilliCpu(amount).scale(factor).0,
            Self::Memory => Bytes(amount).scale(factor).0,
        }
    }
}
