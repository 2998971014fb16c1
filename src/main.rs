//! The `voxbridge` program.

fn main() {}
