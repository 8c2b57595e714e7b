//! The `sedge` program.

fn main() {}
