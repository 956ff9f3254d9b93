//! How the fields of a log line are written: whatever a cluster's users put into names and messages, nothing of it can
//! steer a terminal or pretend to be a line of its own.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::format::{FormatFields, Writer},
};

/// Writes what comes with control characters as escapes.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut letters = from.chars();
            for letter in letters.next().into_iter().flat_map(char::escape_default) {
                self.0.write_char(letter)?;
            }
            rest = letters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// The message as it is, and every other field as `name=value`, as tracing's own format has them: that one escapes the
/// message and what is formatted for debugging, but not what is formatted for display.
pub struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

/// The fields of one line as far as they are written.
struct Line<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: &dyn Debug) -> fmt::Result {
        if !self.is_empty {
            self.writer.write_char(' ')?;
        }
        self.is_empty = false;
        if name != "message" {
            write!(self.writer, "{}=", name.strip_prefix("r#").unwrap_or(name))?;
        }
        write!(Escaped(&mut self.writer), "{value:?}")
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Where a line of the `log` crate came from is in its head already.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            self.result = self.write(field.name(), value);
        }
    }
}
