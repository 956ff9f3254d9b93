//! The text format 0.0.4, with numbers exactly as Go's client library prints them: dashboards match `le="1e+06"` as text.

use std::fmt::Write as _;

use super::definition::Definition;

/// Writes the HELP and TYPE lines of a family.
pub fn write_header(text: &mut String, definition: &Definition) {
    let Definition { name, help, kind, .. } = definition;
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes one line: a name with a suffix, labels as rendered by [`write_labels`], and a value.
pub fn write_sample(text: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
    text.push_str(name);
    text.push_str(suffix);
    if !labels.is_empty() {
        text.push('{');
        text.push_str(labels);
        text.push('}');
    }
    text.push(' ');
    write_float(text, value);
    text.push('\n');
}

/// Writes the lines of a family that is rendered on the fly. HELP and TYPE are written before the first series.
pub(super) struct FamilyWriter<'a> {
    pub text: &'a mut String,
    pub definition: &'a Definition,
    pub header_written: &'a mut bool,
}

impl FamilyWriter<'_> {
    /// Writes one line, with those labels of the family that the object has.
    pub(super) fn write(&mut self, names: &[&str], values: &[&str], value: f64) {
        // An unknown value has no series: NaN or infinity would spoil every sum over objects.
        if !value.is_finite() {
            return;
        }
        if !*self.header_written {
            write_header(self.text, self.definition);
            *self.header_written = true;
        }
        self.text.push_str(self.definition.name);
        self.text.push('{');
        write_labels(self.text, names, values);
        self.text.push_str("} ");
        write_float(self.text, value);
        self.text.push('\n');
    }
}

/// Writes `name="value",...` without braces.
pub fn write_labels(text: &mut String, names: &[&str], values: &[&str]) {
    for (index, (name, value)) in names.iter().zip(values).enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        write_escaped(text, value);
        text.push('"');
    }
}

fn write_escaped(text: &mut String, value: &str) {
    let mut rest = value;
    // Values that need escaping are rare. All others are copied at once, because a scrape writes millions of them.
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
        text.push_str(&rest[..at]);
        text.push_str(match rest.as_bytes()[at] {
            b'\\' => "\\\\",
            b'"' => "\\\"",
            _ => "\\n",
        });
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
}

/// Writes a number as Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits that parse to the same number,
/// with an exponent of at least two digits below 1e-4 and from 1e6.
pub fn write_float(text: &mut String, value: f64) {
    if value.is_nan() {
        return text.push_str("NaN");
    }
    if value.is_infinite() {
        return text.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    if value == 0.0 {
        return text.push('0');
    }
    let start = text.len();
    // Writing into a String cannot fail.
    let _ = write!(text, "{value:e}");
    let Some(mantissa) = text[start..].find('e') else { return };
    let exponent: i32 = text[start + mantissa + 1..].parse().unwrap_or(0);
    if (-4..EXPONENT_THRESHOLD).contains(&exponent) {
        text.truncate(start);
        let _ = write!(text, "{value}");
    } else {
        text.truncate(start + mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "e{sign}{:02}", exponent.abs());
    }
}

/// Numbers from this power of ten have an exponent.
const EXPONENT_THRESHOLD: i32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-0.25, "-0.25"),
            (0.01, "0.01"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (655.36, "655.36"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (6.5536e10, "6.5536e+10"),
            (1_234_567.0, "1.234567e+06"),
            (1e100, "1e+100"),
            (1.0 / 3.0, "0.3333333333333333"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut text = String::new();
            write_float(&mut text, value);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut text = String::new();
        write_labels(&mut text, &["a", "b"], &["x\"y\\z\n", ""]);
        assert_eq!(text, r#"a="x\"y\\z\n",b="""#);
    }
}
