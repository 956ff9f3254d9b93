//! Tests of loads on servers that are simulated.

mod memory_bound;
mod shared_queries;
