//! The golden vectors, the size of the stored state, and what holds for all inputs.

mod fixture;
mod golden;
mod properties;
mod stored;
