//! `plimsoll ui`: a web page that shows what is decided and why. It reads, and changes nothing.
//!
//! ```text
//!   watches, reports in the background ─▶ Snapshot: rows, totals ─┐
//!   request ─▶ server: limits, access, router ────────────────────┴─▶ pages: plain data ─▶ HTML, JSON or CSV
//! ```
//!
//! Each page is a struct: its JSON form is that struct, and its HTML form is rendered from it alone.

pub mod access;
pub mod assets;
pub mod facts;
mod layout;
pub mod list_query;
mod number_table;
pub mod pages;
pub mod quota;
pub mod reader;
pub mod replica_timeline;
pub mod router;
mod rows;
pub mod server;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod timeline;
mod timeline_cache;
pub mod timeline_reader;
