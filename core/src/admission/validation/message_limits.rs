//! Limits the number and length of messages about one object, because users choose how many errors it has.

use std::fmt;

use super::{FieldError, FieldErrorType};

/// Maximum number of errors, and of warnings, of one review.
pub const MAX_MESSAGES: usize = 50;
/// Maximum length in bytes of a message, and of each part of an error.
pub const MAX_MESSAGE_BYTES: usize = 512;

/// Warnings, up to the maximum number.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    texts: Vec<String>,
    omitted: usize,
}

impl Warnings {
    /// Adds a warning. It is formatted only if it is kept.
    pub fn add(&mut self, text: fmt::Arguments<'_>) {
        if self.texts.len() < MAX_MESSAGES {
            self.texts.push(truncated(text.to_string()));
        } else {
            self.omitted += 1;
        }
    }

    /// Returns all messages, and how many were omitted.
    pub fn into_texts(self) -> Vec<String> {
        let mut texts = self.texts;
        if self.omitted > 0 {
            texts.push(format!("and {} more warnings", self.omitted));
        }
        texts
    }
}

/// Errors, up to the maximum number.
#[derive(Debug, Default)]
pub(super) struct Errors {
    errors: Vec<FieldError>,
    omitted: usize,
}

impl Errors {
    pub fn add(&mut self, error: FieldError) {
        if self.errors.len() < MAX_MESSAGES {
            let FieldError { path, error_type, value, detail } = error;
            let (path, detail) = (truncated(path), truncated(detail));
            self.errors.push(FieldError { path, error_type, value: value.map(truncated), detail });
        } else {
            self.omitted += 1;
        }
    }

    /// Returns all messages, and how many were omitted.
    pub fn into_errors(self) -> Vec<FieldError> {
        let mut errors = self.errors;
        if self.omitted > 0 {
            let detail = format!("and {} more errors", self.omitted);
            let path = ".".to_owned();
            errors.push(FieldError {
                path,
                error_type: FieldErrorType::Invalid,
                value: None,
                detail,
            });
        }
        errors
    }
}

/// Truncates a text to [`MAX_MESSAGE_BYTES`], with an ellipsis at the end.
pub fn truncated(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_limited_in_number_and_length_and_report_what_is_omitted() {
        let (mut warnings, mut errors) = (Warnings::default(), Errors::default());
        let long = "\u{e9}".repeat(MAX_MESSAGE_BYTES);
        for _ in 0..MAX_MESSAGES + 7 {
            warnings.add(format_args!("x{long}"));
            let (path, value, detail) = (long.clone(), Some(long.clone()), long.clone());
            errors.add(FieldError { path, error_type: FieldErrorType::Invalid, value, detail });
        }
        let (warnings, errors) = (warnings.into_texts(), errors.into_errors());
        assert_eq!((warnings.len(), errors.len()), (MAX_MESSAGES + 1, MAX_MESSAGES + 1));
        assert_eq!(warnings.last().map(String::as_str), Some("and 7 more warnings"));
        assert_eq!(errors.last().map(|last| &*last.detail), Some("and 7 more errors"));
        assert!(
            warnings.iter().all(|text| text.len() <= MAX_MESSAGE_BYTES + 3),
            "{}",
            warnings[0].len()
        );
        let length = |error: &FieldError| error.to_string().len();
        assert!(errors.iter().all(|error| length(error) <= 3 * (MAX_MESSAGE_BYTES + 3) + 30));
    }
}
