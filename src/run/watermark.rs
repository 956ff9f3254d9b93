//! The watermark controller as a process: its parts, how they start, and how they end.

pub mod config;
