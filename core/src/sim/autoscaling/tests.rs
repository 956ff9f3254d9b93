//! The simulation against passes over real objects, the properties of the rules, and the documented table.

mod exact;
mod properties;
mod table;
