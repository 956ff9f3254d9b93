//! Kubernetes quantities (`126m`, `250Mi`, `1e3`): parsed leniently, stored exactly, printed canonically.
//!
//! A [`Quantity`] is an integer number of nanos and the suffix format that it prints with. Creating one from an
//! amount and comparing two do not allocate.

mod parse;

use std::{
    borrow::Cow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::{Add, Neg, Sub},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::parse::ParseError;
use crate::types::units::{Bytes, MilliCpu};

const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Nanos in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// The largest amount, in nanos; a whole number of units: 1.7e29.
const MAX_NANOS: i128 = i128::MAX / NANOS_PER_UNIT * NANOS_PER_UNIT;

/// The largest amount with a binary suffix, as in Kubernetes: 2^63 - 1.
const MAX_BINARY_NANOS: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

/// The pattern that the API server validates quantities with.
const SCHEMA_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The suffix format that a quantity prints with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `m`, `k`, `M`: powers of a thousand.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`: powers of 1024, as long as the amount is whole and at least 1024.
    BinarySi,
    /// `e3`, `e6`: powers of a thousand, written as exponents.
    DecimalExponent,
}

/// An exact amount in the notation of Kubernetes. Two quantities are equal if their amounts are, whatever their
/// format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// CPU as status fields show it: `126m`, `1`, `100G`.
    pub const fn cpu(amount: MilliCpu) -> Self {
        Self { nanos: amount.0 as i128 * NANOS_PER_MILLI, format: Format::DecimalSi }
    }

    /// Memory as status fields show it: `250Mi`, or plain digits where 1024 does not divide it.
    pub const fn memory(amount: Bytes) -> Self {
        Self { nanos: amount.0 as i128 * NANOS_PER_UNIT, format: Format::BinarySi }
    }

    /// A whole number of units, printed in this format.
    pub const fn from_units(value: i64, format: Format) -> Self {
        Self { nanos: value as i128 * NANOS_PER_UNIT, format }
    }

    /// Thousandths, printed in this format.
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Self { nanos: value as i128 * NANOS_PER_MILLI, format }
    }

    /// Memory rounded as by [`humanize`]. The result usually has a fraction of a byte, so it prints in
    /// thousandths: 839500000 bytes become `839500431360m`.
    pub fn humanized(amount: Bytes) -> Self {
        humanize(amount).parse().unwrap_or(Self::memory(amount))
    }

    pub const fn format(self) -> Format {
        self.format
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the amount is a whole number of units.
    pub const fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Whether the amount is a whole number of thousandths.
    pub const fn is_whole_milli(self) -> bool {
        self.nanos % NANOS_PER_MILLI == 0
    }

    /// In whole units, rounded away from zero and clamped to `i64`.
    pub fn value(self) -> i64 {
        saturate_to_i64(divide_rounding_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// In thousandths, rounded away from zero and clamped to `i64`.
    pub fn milli_value(self) -> i64 {
        saturate_to_i64(divide_rounding_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// In nanos, exactly.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// As the nearest float: for ratios and metrics, never for amounts that are written back.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }

    /// As CPU, rounded up to a millicore.
    pub fn to_cpu(self) -> MilliCpu {
        MilliCpu(self.milli_value())
    }

    /// As memory, rounded up to a byte.
    pub fn to_memory(self) -> Bytes {
        Bytes(self.value())
    }

    fn new(nanos: i128, format: Format) -> Self {
        Self { nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS), format }
    }

    /// A sum has the format of its first operand that is not zero.
    fn format_of_sum(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

/// `value / by`, rounded away from zero.
fn divide_rounding_away_from_zero(value: i128, by: i128) -> i128 {
    value / by + (value % by).signum()
}

fn saturate_to_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.nanos.saturating_add(other.nanos), self.format_of_sum(other))
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.nanos.saturating_sub(other.nanos), self.format_of_sum(other))
    }
}

impl Neg for Quantity {
    type Output = Self;
    fn neg(self) -> Self {
        Self { nanos: -self.nanos, ..self }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

/// Canonical: no fraction, and the largest suffix that needs none. A binary quantity prints in decimal format if
/// it is fractional or less than 1024.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.pad("0");
        }
        let small = self.nanos.abs() < 1024 * NANOS_PER_UNIT;
        let text = if self.format == Format::BinarySi && self.is_whole() && !small {
            let (mut digits, mut power) = (self.nanos / NANOS_PER_UNIT, 0);
            while digits % 1024 == 0 && power < 6 {
                digits /= 1024;
                power += 1;
            }
            format!("{digits}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
        } else {
            let (mut digits, mut power) = (self.nanos, 0);
            // There is no suffix above E, so an SI number gets more digits instead; exponents have no such limit.
            let last = if self.format == Format::DecimalExponent { usize::MAX } else { 9 };
            while digits % 1000 == 0 && power < last {
                digits /= 1000;
                power += 1;
            }
            match (self.format, power) {
                (Format::DecimalExponent, 3) => digits.to_string(),
                (Format::DecimalExponent, _) => format!("{digits}e{}", power as i32 * 3 - 9),
                _ => {
                    format!("{digits}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
                }
            }
        };
        f.pad(&text)
    }
}

/// Prints as a quantity: `126m`, `1500m`, `2`.
impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::cpu(*self).fmt(f)
    }
}

/// Prints as a quantity: `250Mi`, `262144001`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::memory(*self).fmt(f)
    }
}

impl From<MilliCpu> for Quantity {
    fn from(amount: MilliCpu) -> Self {
        Self::cpu(amount)
    }
}

impl From<Bytes> for Quantity {
    fn from(amount: Bytes) -> Self {
        Self::memory(amount)
    }
}

/// Human-readable memory: two decimals and the largest binary suffix not above the amount (`800.61Mi`).
/// Loses precision in either direction, so it is opt-in.
pub fn humanize(amount: Bytes) -> String {
    for (suffix, twos) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        let unit = 1_i64 << twos;
        if amount.0 >= unit {
            return format!("{:.2}{suffix}", amount.0 as f64 / unit as f64);
        }
    }
    amount.0.to_string()
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts strings and, as the API server does, bare numbers; null is zero.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"100m\" or 2")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity {
                    nanos: i128::from(value) * NANOS_PER_UNIT,
                    format: Format::DecimalSi,
                })
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(value, Format::DecimalSi))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                // The shortest digits that represent this float are the digits that were written.
                self.visit_str(&value.to_string())
            }

            fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": SCHEMA_PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}
