//! Shared by the project's commands and its tests: the programs that tests run against, dashboards and their
//! pictures.
//!
//! ```text
//!   sources in tests/cluster ──▶ go build ──▶ the user's cache ──▶ cargo xtask test, and every test
//! ```

pub mod archive;
pub mod boards;
pub mod cache;
pub mod chart;
pub mod console;
pub mod debian;
pub mod go_toolchain;
pub mod hpa;
pub mod krew;
pub mod man;
pub mod pictures;
pub mod test_programs;
