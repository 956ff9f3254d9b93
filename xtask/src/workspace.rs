//! Owns where the workspace is, and which cargo works on it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder of the workspace: cargo says where this crate is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// The cargo that runs us.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
