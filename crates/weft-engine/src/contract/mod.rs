//! Contract with drivers: what goes into the engine, what comes out, and what the two have in
//! common.

pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod input;
pub(crate) mod member;
pub(crate) mod output;
pub(crate) mod snapshot;
pub(crate) mod stripe_waits;
pub(crate) mod token;
pub(crate) mod turn;
