//! Starts the command line and turns its outcome into an exit code.

fn main() {}
