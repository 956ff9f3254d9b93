//! Servers that speak Prometheus' API: how they let us in, what they are asked, and how answers are read.

mod client;
mod detect;
mod doctor;
mod doors;
mod faults;
mod flavors;
mod gather;
mod history;
mod live;
mod lived;
mod memory;
mod releases;
mod role;
mod selector;
mod stream;
mod way;
