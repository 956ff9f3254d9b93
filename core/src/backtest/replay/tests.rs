//! Replays of made-up recordings.

mod by_hand;
mod cadence;
mod decisions;
mod kills;
mod modelled;
mod properties;
mod upstream_model;
