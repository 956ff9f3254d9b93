//! Quantities compared with apimachinery's parsing and printing of the same texts, and their properties.

use plimsoll_core::types::{
    quantity::{Format, Quantity, humanize},
    units::{Bytes, MilliCpu},
};
use proptest::prelude::*;

use crate::support::tier;

fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

/// `quantities.tsv` holds texts, what apimachinery 0.36 prints for them, and their whole and milli values
/// (`-` where its 64-bit integers overflow, or where it rounds a negative amount by its representation).
#[test]
fn parses_and_prints_quantities_as_apimachinery_does() {
    let mut seen = 0;
    for line in include_str!("data/quantities.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [text, printed, value, milli] =
            line.split('\t').collect::<Vec<_>>().try_into().expect("four columns");
        let read = quantity(text);
        assert_eq!(read.to_string(), printed, "{text}");
        if value != "-" {
            assert_eq!(read.value().to_string(), value, "whole value of {text}");
        }
        if milli != "-" {
            assert_eq!(read.milli_value().to_string(), milli, "milli value of {text}");
        }
        seen += 1;
    }
    assert!(seen >= 500, "only {seen} vectors");
}

/// Golden vectors V115 and V116.
#[test]
fn amounts_print_in_the_format_of_status_fields() {
    for (bytes, printed) in [
        (262_144_000, "250Mi"),
        (104_857_600, "100Mi"),
        (11_500_000, "11500000"),
        (1000, "1k"),
        (1024, "1Ki"),
        (100_000_000_000_000, "97656250000Ki"),
        (0, "0"),
    ] {
        assert_eq!(Quantity::memory(Bytes(bytes)).to_string(), printed);
        assert_eq!(Bytes(bytes).to_string(), printed);
    }
    for (millis, printed) in
        [(126, "126m"), (1000, "1"), (1500, "1500m"), (100_000_000_000_000, "100G")]
    {
        assert_eq!(Quantity::cpu(MilliCpu(millis)).to_string(), printed);
        assert_eq!(MilliCpu(millis).to_string(), printed);
    }
}

/// Golden vectors V113 and V114.
#[test]
fn humanized_memory_has_two_decimals() {
    for (bytes, text) in [
        (262_144_000, "250.00Mi"),
        (839_500_000, "800.61Mi"),
        (1_050_000, "1.00Mi"),
        (1537, "1.50Ki"),
        (4_992_073_454, "4.65Gi"),
        (6_499_152_537, "6.05Gi"),
        (16_357_476_492, "15.23Gi"),
        (4_022_251_530, "3.75Gi"),
        (13_580_968_030, "12.65Gi"),
        (15_530_468_536, "14.46Gi"),
        (1 << 40, "1.00Ti"),
        (1023, "1023"),
    ] {
        assert_eq!(humanize(Bytes(bytes)), text);
    }
    for (bytes, printed) in [
        (839_500_000, "839500431360m"),
        (4_992_073_454, "4992899481600m"),
        (1_610_612_736, "1536Mi"),
    ] {
        assert_eq!(Quantity::humanized(Bytes(bytes)).to_string(), printed);
    }
}

/// Golden vectors V117 and V118.
#[test]
fn milli_values_are_rounded_up() {
    for (text, millis) in [
        ("250123456n", 251),
        ("1500u", 2),
        ("100n", 1),
        ("1.2345", 1235),
        ("1050m", 1050),
        ("1.5", 1500),
    ] {
        assert_eq!(quantity(text).milli_value(), millis, "{text}");
    }
    assert_eq!(quantity("-1.2345").milli_value(), -1235, "rounding goes away from zero");
}

#[test]
fn an_invalid_quantity_is_rejected_in_one_line_that_shows_the_valid_forms() {
    for (text, why) in [
        (
            "",
            r#""" is not a quantity: it does not start with a number, such as 100m, 1.5 or 250Mi"#,
        ),
        (
            "Mi",
            r#""Mi" is not a quantity: it does not start with a number, such as 100m, 1.5 or 250Mi"#,
        ),
        ("1.2.3", r#""1.2.3" is not a quantity: it has more than one decimal point"#),
        (
            "100MB",
            r#""100MB" is not a quantity: invalid suffix "MB": use n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent such as e3"#,
        ),
    ] {
        assert_eq!(text.parse::<Quantity>().expect_err("not a quantity").to_string(), why);
    }
    for text in [
        "-", "+", ".", "--1", "1 Mi", " 1", "1e", "1e1.5", "1ee3", "1Kii", "1e3Mi", "0x10",
        "1_000", "１",
    ] {
        let message = text.parse::<Quantity>().expect_err(text).to_string();
        assert!(!message.contains('\n'), "{message}");
    }
    let endless = "9".repeat(100_000) + "!";
    let message = endless.parse::<Quantity>().expect_err("a bad ending").to_string();
    assert!(message.len() < 300, "the text is cut short in the message: {}", message.len());
}

#[test]
fn amounts_saturate_at_the_limits() {
    assert_eq!(quantity("100Ei").to_string(), "9223372036854775807");
    assert_eq!(quantity("-100Ei").to_string(), "-9223372036854775807");
    assert_eq!(quantity("10E").value(), i64::MAX);
    assert_eq!(quantity("-10E").value(), i64::MIN);
    let largest = quantity("1e999999999999");
    assert_eq!(largest + largest, largest);
    assert_eq!(-largest - largest, -largest);
    assert_eq!(quantity(&largest.to_string()), largest);
    assert_eq!(
        quantity("1e-999999999999").to_string(),
        "1e-9",
        "a tiny amount does not become zero"
    );
}

#[test]
fn json_accepts_a_string_a_number_or_null() {
    for (json, printed) in [
        (r#""250Mi""#, "250Mi"),
        (r#"" 1.5 ""#, "1500m"),
        ("2", "2"),
        ("-2", "-2"),
        ("0.1", "100m"),
        ("1e3", "1k"),
        ("18446744073709551615", "18446744073709551615"),
        ("null", "0"),
    ] {
        let read: Quantity = serde_json::from_str(json).expect(json);
        assert_eq!(serde_json::to_value(read).expect("a string"), printed);
    }
    let error = serde_json::from_str::<Quantity>("true").expect_err("not a quantity").to_string();
    assert!(error.starts_with("invalid type: boolean `true`, expected a quantity"), "{error}");
}

/// Texts of every notation, with many digits on both sides of the point.
fn any_text() -> impl Strategy<Value = String> {
    "[-+]?[0-9]{1,25}(\\.[0-9]{0,25})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?"
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    any_text().prop_map(|text| quantity(&text))
}

proptest! {
    #![proptest_config(tier::properties(256, 50_000))]

    #[test]
    fn a_printed_quantity_parses_to_the_same_amount(text in any_text()) {
        let read = quantity(&text);
        let printed = read.to_string();
        prop_assert_eq!(quantity(&printed), read);
        prop_assert_eq!(quantity(&printed).to_string(), printed, "printing is a fixed point");
    }

    #[test]
    fn the_parser_never_panics_on_any_text(text in "\\PC*") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn the_parser_never_panics_on_text_that_resembles_a_quantity(text in "[-+.0-9eEinumkKMGTP]{0,40}") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn order_agrees_with_arithmetic(left in any_quantity(), right in any_quantity()) {
        prop_assert_eq!(left.cmp(&right), (left - right).cmp(&Quantity::ZERO));
        prop_assert_eq!(left + right, right + left);
        prop_assert_eq!((-left).cmp(&-right), right.cmp(&left));
        prop_assert_eq!(left - left, Quantity::ZERO);
    }

    #[test]
    fn rounded_values_are_the_smallest_that_cover_the_amount(amount in "[0-9]{1,15}\\.[0-9]{1,9}") {
        let exact = quantity(&amount);
        let whole = Quantity::from_units(exact.value(), Format::DecimalSi);
        let milli = Quantity::cpu(exact.to_cpu());
        prop_assert!(exact <= milli && milli <= whole);
        prop_assert!(whole - exact < quantity("1"));
        prop_assert!(milli - exact < quantity("1m"));
        prop_assert_eq!(whole == exact, exact.is_whole());
        prop_assert_eq!(milli == exact, exact.is_whole_milli());
    }

    #[test]
    fn amounts_survive_printing_and_parsing(amount in 0_i64..=i64::MAX) {
        let cpu = Quantity::cpu(MilliCpu(amount));
        let memory = Quantity::memory(Bytes(amount));
        prop_assert_eq!(quantity(&cpu.to_string()).to_cpu(), MilliCpu(amount));
        prop_assert_eq!(quantity(&memory.to_string()).to_memory(), Bytes(amount));
    }
}
