//! Tests of BFQ: the kernel's orders, the exact rules, the numbered statements, sorted sets.

mod exact;
mod kernel_orders;
mod statements;
mod treaps;
