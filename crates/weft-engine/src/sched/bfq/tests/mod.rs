//! Tests of BFQ: orders of the kernel, exact rules, numbered statements, sorted sets.

mod exact;
mod kernel_orders;
mod statements;
mod treaps;
