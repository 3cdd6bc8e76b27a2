//! Contract with drivers: inputs and outputs of the engine, and the types that both share.

pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod input;
pub(crate) mod member;
pub(crate) mod output;
pub(crate) mod snapshot;
pub(crate) mod stripe_waits;
pub(crate) mod token;
pub(crate) mod turn;
