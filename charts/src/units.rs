//! Formats values in the Grafana units that the boards use.

use crate::time_format;

/// Formats a value with its unit. `decimals: None` uses as many as are significant; `now` is for relative times.
pub fn write(value: f64, unit: &str, decimals: Option<usize>, now: f64) -> String {
    match unit {
        "bytes" => {
            let (scaled, name) = scale(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
            format!("{} {name}", number(scaled, decimals))
        }
        "short" => {
            let (scaled, name) = scale(value, 1000.0, &["", " K", " Mil", " Bil", " Tri"]);
            format!("{}{name}", number(scaled, decimals))
        }
        "percentunit" => format!("{}%", number(value * 100.0, decimals.or_else(|| whole(value)))),
        "s" => seconds(value, decimals),
        "d" => format!("{} {}", number(value, decimals), if value == 1.0 { "day" } else { "days" }),
        "reqps" => format!("{} req/s", number(value, decimals)),
        "wps" => format!("{} wr/s", number(value, decimals)),
        "cps" => format!("{} c/s", number(value, decimals)),
        "dateTimeAsIsoNoDateIfToday" => {
            let (at, day) = (value / 1000.0, 86_400.0);
            // A second before midnight is shown as midnight, and still counts as today.
            let is_today = (at / day).floor() == ((now - 1.0) / day).floor();
            if is_today { time_format::time(at) } else { time_format::date_and_time(at) }
        }
        _ => number(value, decimals),
    }
}

/// The smallest step for an axis in this unit with at most `most` steps: 1, 2 or 5 times a power of ten, mostly.
pub fn step(span: f64, most: f64, unit: &str) -> f64 {
    let least = span / most.max(1.0);
    let clock = [
        1.0,
        2.0,
        5.0,
        10.0,
        15.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        900.0,
        1_800.0,
        3_600.0,
        7_200.0,
        10_800.0,
        21_600.0,
        43_200.0,
        86_400.0,
        172_800.0,
        604_800.0,
        1_209_600.0,
    ];
    match unit {
        "s" if least > 0.5 && least <= 1_209_600.0 => {
            clock.into_iter().find(|step| *step >= least).unwrap_or(least)
        }
        "bytes" if least >= 1.0 => {
            let power = 1024_f64.powf(least.log(1024.0).floor());
            let digits = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
            digits
                .map(|digit| digit * power)
                .into_iter()
                .find(|step| *step >= least)
                .unwrap_or(least)
        }
        _ => {
            let power = 10_f64.powf(least.log10().floor());
            let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
            steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(least)
        }
    }
}

/// No decimals if a percentage is a whole number.
fn whole(value: f64) -> Option<usize> {
    ((value * 100.0).fract().abs() < 1e-9).then_some(0)
}

fn scale(value: f64, by: f64, names: &[&'static str]) -> (f64, &'static str) {
    let (mut scaled, mut place) = (value, 0);
    while scaled.abs() >= by && place + 1 < names.len() {
        scaled /= by;
        place += 1;
    }
    (scaled, names[place])
}

fn seconds(value: f64, decimals: Option<usize>) -> String {
    let size = value.abs();
    let (scaled, name) = match size {
        0.0 => (0.0, "s"),
        _ if size < 1e-3 => (value * 1e6, "µs"),
        _ if size < 1.0 => (value * 1e3, "ms"),
        _ if size < 60.0 => (value, "s"),
        _ if size < 3_600.0 => (value / 60.0, "min"),
        _ if size < 86_400.0 => (value / 3_600.0, "hours"),
        _ if size < 604_800.0 => (value / 86_400.0, "days"),
        _ if size < 31_536_000.0 => (value / 604_800.0, "weeks"),
        _ => (value / 31_536_000.0, "years"),
    };
    // The seconds may be a whole number where the hours are not.
    let decimals = decimals.map(|decimals| if size < 60.0 { decimals } else { decimals.max(1) });
    let decimals = if scaled.fract().abs() < 1e-9 { Some(0) } else { decimals };
    format!("{} {name}", number(scaled, decimals))
}

/// Formats with this many decimals, or with three significant digits and no trailing zeros.
fn number(value: f64, decimals: Option<usize>) -> String {
    let text = if let Some(decimals) = decimals {
        format!("{value:.decimals$}")
    } else {
        let digits = match value.abs() {
            size if size >= 100.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 1.0 => 2,
            size if size >= 0.1 => 3,
            0.0 => 0,
            size => (-size.log10().floor()) as usize + 2,
        };
        let text = format!("{value:.digits$}");
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    };
    if text.trim_start_matches('-').chars().all(|letter| matches!(letter, '0' | '.')) {
        return text.trim_start_matches('-').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_in_their_units() {
        for (value, unit, decimals, expected) in [
            (0.0, "none", None, "0"),
            (-0.0001, "none", Some(1), "0.0"),
            (12.0, "none", None, "12"),
            (0.25, "none", None, "0.25"),
            (0.0123, "none", None, "0.0123"),
            (3.0, "none", Some(2), "3.00"),
            (1_234_567.0, "short", None, "1.23 Mil"),
            (1_610_612_736.0, "bytes", None, "1.5 GiB"),
            (-268_435_456.0, "bytes", None, "-256 MiB"),
            (0.125, "percentunit", None, "12.5%"),
            (1.0, "percentunit", None, "100%"),
            (0.0005, "s", None, "500 µs"),
            (0.25, "s", None, "250 ms"),
            (90.0, "s", None, "1.5 min"),
            (7_200.0, "s", Some(0), "2 hours"),
            (1.0, "d", None, "1 day"),
            (8.0, "d", Some(1), "8.0 days"),
            (12.5, "reqps", None, "12.5 req/s"),
            (60_000.0, "dateTimeAsIsoNoDateIfToday", None, "00:01"),
            (-60_000.0, "dateTimeAsIsoNoDateIfToday", None, "1969-12-31 23:59"),
        ] {
            assert_eq!(write(value, unit, decimals, 2_000.0), expected, "{value} {unit}");
        }
    }

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(step(10.0, 5.0, "none"), 2.0);
        assert_eq!(step(0.9, 4.0, "none"), 0.25);
        assert_eq!(step(7_000.0, 5.0, "s"), 1_800.0);
        assert_eq!(step(3.0 * 1_073_741_824.0, 5.0, "bytes"), 1_073_741_824.0);
        assert_eq!(step(600.0 * 1_048_576.0, 5.0, "bytes"), 128.0 * 1_048_576.0);
    }
}
