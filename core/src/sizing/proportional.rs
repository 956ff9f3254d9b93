//! Proportions in whole units, as exact as they can be: thousandths of a core, bytes of memory.

use crate::{
    api::ResourceName,
    types::quantity::{Format, Quantity},
};

/// What becomes of the part of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleRounding {
    /// It is cut off.
    Down,
    /// It counts as a whole one.
    Up,
    /// It is cut off, and of memory a whole byte more where nothing is left: upstream's rounding down.
    DownAtMostLess,
}

/// An amount in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The amount.
    pub amount: Quantity,
    /// Whether it is only the most that a number can say.
    pub is_saturated: bool,
}

/// The amount in units of its resource, rounded up.
pub fn to_units(resource: &ResourceName, amount: Quantity) -> i64 {
    match resource {
        ResourceName::Cpu => amount.milli_value(),
        _ => amount.value(),
    }
}

/// So many units of a resource.
pub fn quantity_from_units(resource: &ResourceName, units: i64, format: Format) -> Quantity {
    match resource {
        ResourceName::Cpu => Quantity::from_milli(units, format),
        _ => Quantity::from_units(units, format),
    }
}

/// `amount * to / from`, in the notation of the amount; unchanged where `from` is 0.
pub fn scale(
    resource: &ResourceName,
    amount: Quantity,
    from: Quantity,
    to: Quantity,
    rounding: ScaleRounding,
) -> Scaled {
    let [x, base, result] = [amount, from, to].map(|it| i128::from(to_units(resource, it)));
    if base == 0 {
        return Scaled { amount, is_saturated: false };
    }
    // Products of two i64 fit. A negative remainder cannot be: floors go towards the past of zero.
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
