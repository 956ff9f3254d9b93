//! Proportions in whole units, as exact as they can be: thousandths of a core, bytes of memory.

use crate::{
    api::ResourceName,
    types::quantity::{Format, Quantity},
};

/// What becomes of the part of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// It is cut off.
    Down,
    /// It counts as a whole one.
    Up,
    /// It is cut off, and of memory a whole byte more where nothing is left: upstream's rounding down.
    DownAndBelow,
}

/// An amount in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The amount.
    pub amount: Quantity,
    /// Whether it is only the most that a number can say.
    pub is_capped: bool,
}

/// The amount in units of its resource, rounded up.
pub fn units(resource: &ResourceName, amount: Quantity) -> i64 {
    match resource {
        ResourceName::Cpu => amount.milli_value(),
        _ => amount.value(),
    }
}

/// So many units of a resource.
pub fn quantity(resource: &ResourceName, units: i64, format: Format) -> Quantity {
    match resource {
        ResourceName::Cpu => Quantity::milli(units, format),
        _ => Quantity::whole(units, format),
    }
}

/// `amount * to / from`, in the notation of the amount; unchanged where `from` is 0.
pub fn scale(
    resource: &ResourceName,
    amount: Quantity,
    from: Quantity,
    to: Quantity,
    rounding: Rounding,
) -> Scaled {
    let [x, base, result] = [amount, from, to].map(|it| i128::from(units(resource, it)));
    if base == 0 {
        return Scaled { amount, is_capped: false };
    }
    // Products of two i64 fit. A negative remainder cannot be: floors go towards the past of zero.
    let (whole, rest) = ((x * result).div_euclid(base), (x * result).rem_euclid(base));
    let Ok(whole) = i64::try_from(whole) else {
        return Scaled { amount: quantity(resource, i64::MAX, amount.format()), is_capped: true };
    };
    let whole = match rounding {
        Rounding::Up if rest != 0 => whole.saturating_add(1),
        Rounding::DownAndBelow if *resource != ResourceName::Cpu && whole <= 0 => {
            whole.saturating_sub(1)
        }
        _ => whole,
    };
    Scaled { amount: quantity(resource, whole, amount.format()), is_capped: false }
}
