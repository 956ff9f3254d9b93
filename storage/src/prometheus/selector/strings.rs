//! Quoting and parsing of PromQL strings.

use std::fmt::Write as _;

pub(in crate::prometheus) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Parses the string at the start of a text, and returns the rest. Strings follow Go: two kinds of quotes with escapes,
/// one without.
pub(super) fn string(text: &str) -> Option<(String, &str)> {
    let mut chars = text.chars();
    let quote = chars.next()?;
    let mut value = String::new();
    loop {
        let c = chars.next()?;
        if c == quote {
            return Some((value, chars.as_str()));
        }
        if c != '\\' || quote == '`' {
            if c == '\n' && quote != '`' {
                return None;
            }
            value.push(c);
            continue;
        }
        let escape = chars.next()?;
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                value.push(match escape {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    c if c == '\\' || c == quote => c,
                    _ => return None,
                });
                continue;
            }
        };
        let code = u32::from_str_radix(chars.as_str().get(..digits)?, 16).ok()?;
        // From 0x80 on, `\x` is a byte of a multi-byte character.
        value.push(char::from_u32(code).filter(|_| digits > 2 || code < 0x80)?);
        chars = chars.as_str()[digits..].chars();
    }
}
