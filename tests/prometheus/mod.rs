//! Servers that speak Prometheus' API: how they are asked.

mod doors;
