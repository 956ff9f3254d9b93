//! What commands print. [`collect`] reads from the cluster; the other modules are pure.

pub mod backtest;
pub mod changes;
pub mod collect;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod recommend;
pub mod status;
pub mod style;
