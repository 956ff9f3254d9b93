//! Amounts as people write them in manifests.

use crate::{
    rightsizing::survey::Resource,
    types::{Quantity, quantity::Format},
};

const MEBIBYTE: i64 = 1 << 20;
const MILLIS_PER_CORE: i64 = 1000;

/// An amount as it is written in a manifest: `1650m`, `2`, `844Mi`. CPU is in millicores, memory in bytes.
/// Memory from one mebibyte on is rounded up to whole mebibytes.
pub fn amount_text(resource: Resource, amount: i64) -> String {
    match resource {
        // Without suffixes such as `k`, which are not used for CPU.
        Resource::Cpu if amount % MILLIS_PER_CORE == 0 => (amount / MILLIS_PER_CORE).to_string(),
        Resource::Cpu => format!("{amount}m"),
        Resource::Memory => {
            Quantity::from_units(rounded(resource, amount), Format::BinarySi).to_string()
        }
    }
}

/// The amount that [`amount_text`] writes.
pub(super) fn rounded(resource: Resource, amount: i64) -> i64 {
    match resource {
        Resource::Memory if amount >= MEBIBYTE => {
            amount.checked_add(MEBIBYTE - 1).map_or(amount, |above| above / MEBIBYTE * MEBIBYTE)
        }
        _ => amount,
    }
}

/// An amount without rounding, for requests that must not exceed a limit.
pub(super) fn exact_text(resource: Resource, amount: i64) -> String {
    match resource {
        Resource::Cpu => amount_text(resource, amount),
        Resource::Memory => Quantity::from_units(amount, Format::BinarySi).to_string(),
    }
}

pub(super) fn quantity(resource: Resource, amount: i64) -> Quantity {
    match resource {
        Resource::Cpu => Quantity::from_milli(amount, Format::DecimalSi),
        Resource::Memory => Quantity::from_units(amount, Format::BinarySi),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_do() {
        for (resource, amount, text) in [
            (Resource::Cpu, 1650, "1650m"),
            (Resource::Cpu, 2000, "2"),
            (Resource::Cpu, 2_000_000, "2000"),
            (Resource::Cpu, 0, "0"),
            (Resource::Memory, 844 << 20, "844Mi"),
            (Resource::Memory, (844 << 20) - 5, "844Mi"),
            (Resource::Memory, 3 << 30, "3Gi"),
            (Resource::Memory, 2300 << 20, "2300Mi"),
            (Resource::Memory, 1025, "1025"),
            (Resource::Memory, 2048, "2Ki"),
            (Resource::Memory, i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(amount_text(resource, amount), text);
        }
    }
}
