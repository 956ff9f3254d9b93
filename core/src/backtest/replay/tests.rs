//! Replays of made-up recordings.

mod by_hand;
mod cadence;
mod decisions;
mod modelled;
mod properties;
