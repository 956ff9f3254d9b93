//! State that controllers persist in annotations: JSON with the version of its format as `v`, and with the hash of what it
//! belongs to as `of`, so that it is ignored once that has changed.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest value that a controller writes to persist state.
pub const MAX_STATE_BYTES: usize = 32 * 1024;

/// Why a state could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// What it belongs to has changed since.
    #[error("{0}")]
    Stale(&'static str),
    /// Unsupported version.
    #[error("unsupported version {found}, expected {expected}")]
    Version { found: u32, expected: u32 },
    /// Malformed value.
    #[error("malformed value: {0}")]
    Malformed(String),
    /// The value exceeds the size limit.
    #[error("size of {0} bytes exceeds the limit of {MAX_STATE_BYTES}")]
    TooLong(usize),
}

impl From<serde_json::Error> for StateError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

pub fn write_state(state: &impl Serialize, v: u32, of: Option<u64>) -> Result<String, StateError> {
    #[derive(Serialize)]
    struct Written<'a, T> {
        v: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        #[serde(flatten)]
        state: &'a T,
    }
    let of = of.map(|of| format!("{of:016x}"));
    Ok(serde_json::to_string(&Written { v, of, state })?)
}

/// Parses a state of this version, which must belong to something with this hash. With another hash it is stale,
/// as the text says.
pub fn read_state<T: DeserializeOwned>(
    text: &str,
    version: u32,
    of: Option<(u64, &'static str)>,
) -> Result<T, StateError> {
    check_version(text, version)?;
    if let Some((of, stale)) = of
        && read_hash(text)? != of
    {
        return Err(StateError::Stale(stale));
    }
    Ok(serde_json::from_str(text)?)
}

/// Returns the hash of what a state belongs to, if the state has this version.
pub fn state_hash(text: &str, version: u32) -> Option<u64> {
    check_version(text, version).and_then(|()| read_hash(text)).ok()
}

fn check_version(text: &str, expected: u32) -> Result<(), StateError> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let Version { v: found } = serde_json::from_str(text)?;
    if found == expected { Ok(()) } else { Err(StateError::Version { found, expected }) }
}

fn read_hash(text: &str) -> Result<u64, StateError> {
    #[derive(Deserialize)]
    struct Hash {
        of: String,
    }
    let Hash { of } = serde_json::from_str(text)?;
    u64::from_str_radix(&of, 16).map_err(|error| StateError::Malformed(error.to_string()))
}

/// Appends a text to the input of a hash, after its length.
pub fn hash_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
