//! Proportional scaling in whole units, exact up to rounding: milli-CPU, bytes of memory.

use crate::{
    api::ResourceName,
    types::quantity::{Format, Quantity},
};

/// How a fraction of a unit is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleRounding {
    Down,
    Up,
    /// Upstream's rounding: down, and one byte less if nothing is left of an amount of memory.
    DownAtMostLess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    pub amount: Quantity,
    /// Whether the result overflowed and was capped to `i64::MAX`.
    pub is_saturated: bool,
}

/// Converts an amount to units of its resource, rounded up.
pub fn to_units(resource: &ResourceName, amount: Quantity) -> i64 {
    match resource {
        ResourceName::Cpu => amount.milli_value(),
        _ => amount.value(),
    }
}

pub fn quantity_from_units(resource: &ResourceName, units: i64, format: Format) -> Quantity {
    match resource {
        ResourceName::Cpu => Quantity::from_milli(units, format),
        _ => Quantity::from_units(units, format),
    }
}

/// Returns `amount * to / from`, in the format of `amount`; unchanged if `from` is 0.
pub fn scale(
    resource: &ResourceName,
    amount: Quantity,
    from: Quantity,
    to: Quantity,
    rounding: ScaleRounding,
) -> Scaled {
    let [x, base, result] =
        [amount, from, to].map(|quantity| i128::from(to_units(resource, quantity)));
    if base == 0 {
        return Scaled { amount, is_saturated: false };
    }
    // Products of two i64 fit in i128. Euclidean division rounds down, so the remainder is never negative.
    let (whole, rest) = ((x * result).div_euclid(base), (x * result).rem_euclid(base));
    let Ok(whole) = i64::try_from(whole) else {
        return Scaled {
            amount: quantity_from_units(resource, i64::MAX, amount.format()),
            is_saturated: true,
        };
    };
    let whole = match rounding {
        ScaleRounding::Up if rest != 0 => whole.saturating_add(1),
        ScaleRounding::DownAtMostLess if *resource != ResourceName::Cpu && whole <= 0 => {
            whole.saturating_sub(1)
        }
        _ => whole,
    };
    Scaled { amount: quantity_from_units(resource, whole, amount.format()), is_saturated: false }
}
