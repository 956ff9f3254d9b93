//! Servers that speak Prometheus' API: how they let us in, what they are asked, and how answers are read.

mod client;
mod doors;
mod faults;
mod gather;
mod memory;
mod selector;
mod stream;
mod way;
