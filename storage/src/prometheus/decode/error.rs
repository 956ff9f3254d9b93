//! Decode errors.

/// Why a response could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The response is valid but incomplete.
    #[error("the response was truncated after {bytes} bytes")]
    Truncated {
        /// The number of bytes received.
        bytes: u64,
    },
    /// The response is not a query result.
    #[error("byte {at} of the response: expected {expected}, found {found}")]
    Malformed {
        /// The position in bytes.
        at: u64,
        /// The expected token.
        expected: &'static str,
        /// The actual bytes.
        found: String,
    },
    /// A label set, string or number exceeds the maximum length.
    #[error("byte {at} of the response: token exceeds {longest} bytes")]
    TooLong {
        /// The position in bytes.
        at: u64,
        /// The maximum length.
        longest: usize,
    },
    /// The server reports an error.
    #[error("{kind}: {message}")]
    ReportedByServer {
        /// The error type (`bad_data`, `execution`, `timeout`, ...).
        kind: String,
        /// The error message.
        message: String,
    },
}
