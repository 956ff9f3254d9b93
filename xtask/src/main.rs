//! Set-up, tests and benchmarks of the project.

fn main() {}
