//! The resources that are recommended.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
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

    /// An amount as a quantity.
    pub fn to_quantity(self, amount: i64) -> Quantity {
        match self {
            Self::Cpu => Quantity::cpu(MilliCpu(amount)),
            Self::Memory => Quantity::memory(Bytes(amount)),
        }
    }

    /// The amount of a quantity, rounded up.
    pub fn of_quantity(self, quantity: Quantity) -> i64 {
        match self {
            Self::Cpu => quantity.milli_value(),
            Self::Memory => quantity.value(),
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

/// Something for each resource. A missing value means unspecified, not 0.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerResource<T> {
    pub cpu: Option<T>,
    pub memory: Option<T>,
}

impl<T> Default for PerResource<T> {
    fn default() -> Self {
        Self { cpu: None, memory: None }
    }
}

impl<T> PerResource<T> {
    pub const fn get(&self, resource: Resource) -> Option<&T> {
        match resource {
            Resource::Cpu => self.cpu.as_ref(),
            Resource::Memory => self.memory.as_ref(),
        }
    }

    pub const fn get_mut(&mut self, resource: Resource) -> Option<&mut T> {
        match resource {
            Resource::Cpu => self.cpu.as_mut(),
            Resource::Memory => self.memory.as_mut(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.memory.is_none()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.cpu.iter().chain(&self.memory)
    }

    pub fn map<U>(self, mut of: impl FnMut(T) -> U) -> PerResource<U> {
        PerResource { cpu: self.cpu.map(&mut of), memory: self.memory.map(of) }
    }
}
