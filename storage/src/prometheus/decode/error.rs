//! Why an answer could not be read.

/// Why an answer could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// What came is valid, and then there was no more.
    #[error("the answer breaks off after {bytes} bytes")]
    Truncated {
        /// How much came.
        bytes: u64,
    },
    /// Something else came than an answer to a query.
    #[error("byte {at} of the answer: expected {expected}, found {found}")]
    Malformed {
        /// Where.
        at: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// One label set, text or number is longer than any sane one.
    #[error("byte {at} of the answer: something longer than {longest} bytes begins there")]
    TooLong {
        /// Where.
        at: u64,
        /// What would be read.
        longest: usize,
    },
    /// The server says that it failed.
    #[error("{kind}: {message}")]
    ReportedByServer {
        /// Prometheus' word for the kind of failure (`bad_data`, `execution`, `timeout`, ...).
        kind: String,
        /// What it says.
        message: String,
    },
}

/// Somebody's words on one line, and not too many of them.
pub(crate) fn one_line(words: &str) -> String {
    const MOST: usize = 300;
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()).take(MOST));
        if line.len() > MOST {
            let end = (0..=MOST).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    line
}
