//! Formats the fields of a log line. Control characters are escaped, so that names and messages from users of the cluster
//! cannot control a terminal or fake a log line.

use std::fmt::{self, Debug};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::format::{FormatFields, Writer},
};

use crate::cli::output::escape_to_one_line;

/// Formats the message, and every other field as `name=value`, like tracing's default format. That one escapes the message
/// and fields formatted with `Debug`, but not fields formatted with `Display`.
pub struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

/// The state of one log line while its fields are written.
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
        self.writer.write_str(&escape_to_one_line(&format!("{value:?}")))
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Skip the metadata of `log` records, which the line already has.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            self.result = self.write(field.name(), value);
        }
    }
}
