//! The binary `weft`.
fn main() {}
