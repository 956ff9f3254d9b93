//! Amounts, shares, money and times as text.

use std::time::Duration;

use plimsoll_charts::time_format;
use plimsoll_core::{rightsizing::survey::Resource, types::Time};

use crate::report::{recommend::amounts, style::format_span};

pub(crate) fn resource_name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "memory",
    }
}

/// An amount of one container, as in all other forms: `1650m`, `844Mi`.
pub(crate) fn quantity(resource: Resource, amount: i64) -> String {
    amounts::amount(resource, amount)
}

/// An amount of many pods: `1,204 cores`, `3,110 GiB`.
pub(crate) fn total(resource: Resource, amount: i64) -> String {
    let sums = amounts::sums(resource, amount, amount);
    format!("{} {}", with_minus(&sums.before), sums.unit)
}

/// The sign of negative numbers in text: a hyphen is shorter than the plus sign.
fn with_minus(text: &str) -> String {
    text.replace('-', "−")
}

/// A number with groups of thousands: without decimals from 100 on, else with at most two.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    let text = if value.abs() >= 99.95 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let digits = text.trim_start_matches('-');
    let sign = if text.len() > digits.len() && digits != "0" { "−" } else { "" };
    let (whole, decimals) =
        digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(decimals) = decimals {
        grouped.push('.');
        grouped.push_str(decimals);
    }
    grouped
}

/// A count with its noun, which takes an `s` for more than one.
pub(crate) fn count(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", number(count as f64))
}

/// An amount of money, below 100 with two decimals.
pub(crate) fn money(currency: &str, amount: f64) -> String {
    format!("{currency} {}", with_minus(&amounts::money(amount)))
}

/// A change with its sign.
pub(crate) fn signed(text: &str, is_increase: bool) -> String {
    if is_increase { format!("+{text}") } else { text.to_owned() }
}

/// A change in percent: `+65 %`. `None` if there was nothing before.
pub(crate) fn change(from: f64, to: f64) -> Option<String> {
    if !(from > 0.0 && to.is_finite()) {
        return None;
    }
    Some(with_minus(&amounts::percent_change((to - from) / from * 100.0)))
}

pub(crate) fn percentage(share: f64) -> String {
    amounts::share(share)
}

/// A size in bytes, as networks count them: `94 MB`.
pub(crate) fn size(bytes: u64) -> String {
    amounts::response_size(bytes)
}

/// `2026-11-26 13:40 UTC`.
pub(crate) fn time(time: Time) -> String {
    format!("{} UTC", time_format::date_and_time(time.as_secs() as f64))
}

/// The time between two times, such as `2 d`.
pub(crate) fn span(from: Time, to: Time) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    format_span(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_the_other_forms() {
        let (mi, gi) = (1 << 20, 1 << 30);
        for (resource, amount, expected) in [
            (Resource::Cpu, 4000, "4"),
            (Resource::Cpu, 1650, "1650m"),
            (Resource::Memory, 844 * mi, "844Mi"),
            (Resource::Memory, 12 * gi + 128 * mi, "12416Mi"),
        ] {
            assert_eq!(quantity(resource, amount), expected, "{amount}");
            assert_eq!(quantity(resource, amount), amounts::amount(resource, amount), "{amount}");
        }
        assert_eq!(total(Resource::Cpu, 1_204_000), "1,204 cores");
        assert_eq!(total(Resource::Memory, 3 * gi / 2), "1.50 GiB");
    }

    #[test]
    fn numbers_have_groups_and_signs() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.001, "0"),
            (12.0, "12"),
            (12.345, "12.35"),
            (999.5, "1,000"),
            (-1044.0, "−1,044"),
            (1_234_567.0, "1,234,567"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
        assert_eq!(money("USD", -1044.4), "USD −1,044");
        assert_eq!(money("USD", 1.5), "USD 1.50");
        assert_eq!(money("USD", 2.0), "USD 2.00");
        assert_eq!(count(1, "container"), "1 container");
        assert_eq!(count(2300, "container"), "2,300 containers");
        assert_eq!(size(94_312_000), "94 MB");
    }

    #[test]
    fn changes_have_a_sign_and_need_a_value_before() {
        assert_eq!(change(512.0, 844.0).as_deref(), Some("+65 %"));
        assert_eq!(change(4.0, 0.9).as_deref(), Some("−78 %"));
        assert_eq!(change(4.0, 4.0).as_deref(), Some("0 %"));
        assert_eq!(change(0.0, 4.0), None);
        assert_eq!(percentage(0.316), "32 %");
    }
}
