//! Charts as SVG, without dependencies: the pictures of dashboards and the charts in pages are drawn by the same code.
//!
//! ```text
//!   time_series state_timeline single_value table ─┐
//!       │   scatter  │ histogram                   ├─▶ svg: shapes and escaped texts ─▶ String
//!       └── axis, legend: units, time_format ──────┤            color: fixed, or custom properties of a page
//!   sparkline request_bar ─────────────────────────┘
//! ```
//!
//! A picture of its own begins with [`svg::Svg::new`], one in a page with [`svg::Svg::embedded`]; the same functions draw on
//! both. A page with embedded charts contains [`STYLESHEET`].

pub mod axis;
pub mod color;
pub mod histogram;
pub mod legend;
pub mod request_bar;
pub mod scatter;
pub mod single_value;
pub mod sparkline;
pub mod state_timeline;
pub mod svg;
pub mod table;
pub mod time_format;
pub mod time_series;
pub mod units;

/// The colors of embedded charts, for light pages, for dark ones and for print.
pub const STYLESHEET: &str = include_str!("charts.css");
