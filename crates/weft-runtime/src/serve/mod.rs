//! Service of clients: the engine's driver, the threads that share it, and the loop of each.

pub mod clients;
pub mod driver;
mod ending;
mod gate;
mod hub;
pub mod poison;
pub mod pool;
mod port;
pub mod reactor;
pub mod turns;
mod worker;
