//! Amounts, money, percentages and times as they are printed for people.

use plimsoll_core::{manifests::amount_text, rightsizing::survey::Resource, types::Time};

const GIBIBYTE: i64 = 1 << 30;

/// Formats the amount of one container as manifests get it, so that a report and its patches have the same numbers:
/// `500m`, `4`, `844Mi`, `8Gi`.
pub(in crate::report) fn amount(resource: Resource, amount: i64) -> String {
    amount_text(resource, amount)
}

/// An amount in the base unit, cores or bytes, exactly: `0.512`, `268435456`.
pub(in crate::report) fn base_units(resource: Resource, amount: i64) -> String {
    match resource {
        Resource::Memory => amount.to_string(),
        Resource::Cpu => {
            let sign = if amount < 0 { "-" } else { "" };
            let (cores, millis) = (amount.unsigned_abs() / 1000, amount.unsigned_abs() % 1000);
            let text = format!("{sign}{cores}.{millis:03}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

pub(in crate::report) const fn base_unit(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cores",
        Resource::Memory => "bytes",
    }
}

/// The sums of one resource before and after, with their difference, all with the same number of decimals.
pub(in crate::report) struct Sums {
    pub(in crate::report) before: String,
    pub(in crate::report) after: String,
    pub(in crate::report) difference: String,
    pub(in crate::report) unit: &'static str,
}

pub(in crate::report) fn sums(resource: Resource, before: i64, after: i64) -> Sums {
    let (scale, unit) = match resource {
        Resource::Cpu => (1000.0, "cores"),
        Resource::Memory => (GIBIBYTE as f64, "GiB"),
    };
    let (before, after) = (before as f64 / scale, after as f64 / scale);
    let digits = match before.abs().max(after.abs()) {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    Sums {
        before: grouped(before, digits),
        after: grouped(after, digits),
        difference: signed(after - before, digits),
        unit,
    }
}

/// By how many percent an amount changes; `None` from nothing.
pub(in crate::report) fn change_percent(from: i64, to: i64) -> Option<f64> {
    (from > 0).then(|| (to as f64 - from as f64) * 100.0 / from as f64)
}

/// Formats a change in percent: `+65 %`.
pub(in crate::report) fn percent_change(percent: f64) -> String {
    format!("{} %", signed(percent, 0))
}

/// Formats a share from 0 to 1: `31 %`.
pub(in crate::report) fn share(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 10.0 && percent.round() != percent);
    format!("{} %", grouped(percent, digits))
}

/// Formats money without its currency; small sums with cents.
pub(in crate::report) fn money(sum: f64) -> String {
    grouped(sum, money_digits(sum))
}

/// Formats a change of money with its sign.
pub(in crate::report) fn money_change(sum: f64) -> String {
    signed(sum, money_digits(sum))
}

fn money_digits(sum: f64) -> usize {
    if sum.abs() < 100.0 { 2 } else { 0 }
}

fn signed(value: f64, digits: usize) -> String {
    let text = grouped(value, digits);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if is_zero || text.starts_with('-') || !value.is_finite() { text } else { format!("+{text}") }
}

/// Formats a number with thousands separated by commas.
pub(in crate::report) fn grouped(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    let text = format!("{:.digits$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::with_capacity(text.len() * 4 / 3 + 1);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if value < 0.0 && !is_zero {
        grouped.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// Formats a count.
pub(in crate::report) fn count(count: usize) -> String {
    grouped(count as f64, 0)
}

/// Formats a count and what is counted: `1 container`, `240 containers`.
pub(in crate::report) fn counted(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats how many more there are: `and 5 more containers`.
pub(in crate::report) fn and_more(number: usize, thing: &str) -> String {
    format!("and {} more {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats the size of responses: `94 MB`.
pub(in crate::report) fn response_size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{} MB", grouped(bytes as f64 / 1e6, usize::from(bytes < 10_000_000))),
    }
}

/// Formats a time to the minute: `26 Nov 2026 13:40 UTC`.
pub(in crate::report) fn minute(time: Time) -> String {
    jiff::Timestamp::from(time).strftime("%-d %b %Y %H:%M UTC").to_string()
}

/// Formats the day of a time: `26 Nov 2026`.
pub(in crate::report) fn day(time: Time) -> String {
    jiff::Timestamp::from(time).strftime("%-d %b %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_printed_as_they_are_written() {
        for (resource, value, expected) in [
            (Resource::Cpu, 500, "500m"),
            (Resource::Cpu, 4000, "4"),
            (Resource::Cpu, 1650, "1650m"),
            (Resource::Cpu, 123_456, "123456m"),
            (Resource::Cpu, 0, "0"),
            (Resource::Memory, 512 << 20, "512Mi"),
            (Resource::Memory, 884_998_144, "844Mi"),
            (Resource::Memory, 3 << 30, "3Gi"),
            (Resource::Memory, 2300 << 20, "2300Mi"),
            (Resource::Memory, 12_800 << 20, "12800Mi"),
            (Resource::Memory, (512 << 20) + 1, "513Mi"),
            (Resource::Memory, 4096, "4Ki"),
            (Resource::Memory, 1000, "1k"),
            (Resource::Memory, i64::MIN, "-8Ei"),
        ] {
            assert_eq!(amount(resource, value), expected);
        }
    }

    #[test]
    fn base_units_are_exact() {
        for (value, expected) in
            [(512, "0.512"), (4000, "4"), (100, "0.1"), (0, "0"), (-5, "-0.005")]
        {
            assert_eq!(base_units(Resource::Cpu, value), expected);
        }
        assert_eq!(base_units(Resource::Memory, 1 << 40), "1099511627776");
    }

    #[test]
    fn sums_have_the_same_decimals() {
        let sums = sums(Resource::Cpu, 1_204_000, 611_400);
        assert_eq!(
            (&*sums.before, &*sums.after, &*sums.difference, sums.unit),
            ("1,204", "611", "-593", "cores")
        );
        let sums = super::sums(Resource::Memory, 1 << 29, 1 << 30);
        assert_eq!(
            (&*sums.before, &*sums.after, &*sums.difference, sums.unit),
            ("0.50", "1.00", "+0.50", "GiB")
        );
    }

    #[test]
    fn numbers_have_few_digits_and_grouped_thousands() {
        for (value, digits, expected) in [
            (0.0, 0, "0"),
            (-0.4, 0, "0"),
            (999.0, 0, "999"),
            (1000.0, 0, "1,000"),
            (-1_234_567.891, 2, "-1,234,567.89"),
            (f64::NAN, 0, "unknown"),
        ] {
            assert_eq!(grouped(value, digits), expected);
        }
        assert_eq!((money(27.5), money(27_774.4)), ("27.50".to_owned(), "27,774".to_owned()));
        assert_eq!((money_change(0.0), money_change(5.0)), ("0.00".to_owned(), "+5.00".to_owned()));
        assert_eq!(percent_change(125.4), "+125 %");
        assert_eq!(
            (share(0.31), share(0.005), share(0.0)),
            ("31 %".into(), "0.5 %".into(), "0 %".into())
        );
        assert_eq!(change_percent(0, 5), None);
        assert_eq!(counted(1, "container"), "1 container");
        assert_eq!(counted(1200, "container"), "1,200 containers");
    }

    #[test]
    fn sizes_and_times_are_printed_briefly() {
        assert_eq!(response_size(94_400_000), "94 MB");
        assert_eq!(response_size(1_500_000), "1.5 MB");
        assert_eq!(response_size(12_345), "12 kB");
        let time = Time::from_secs(1_795_700_400);
        assert_eq!(
            (minute(time), day(time)),
            ("26 Nov 2026 13:40 UTC".to_owned(), "26 Nov 2026".to_owned())
        );
    }
}
