//! Servers that speak Prometheus' API: how to be let in, and how to ask.

pub mod door;
