//! RAID personalities: how each level carries out requests, behind one closed enum.
//!
//! A volume handles requests, their order and their answers, and is independent of the RAID level.
//! Its personality turns requests into member requests and computations through `Cx`, and reports
//! back with `Event`s. Each level is a folder here and a variant of `Personality`; the traits in
//! `personality` define the methods of a level, some with a default.
//!
//! ```text
//! Volume ── submit(ArrayIo) ──► Personality ── Cx::stage ──► members
//!        ◄── Event, PartOutcome ──             ◄── part_done ── their answers
//! ```

mod clear;
pub(crate) mod cx;
pub(crate) mod io;
mod mirror;
pub mod parity;
mod personality;
mod reshape;
mod single;
mod straight;
mod striped;

pub(crate) use self::cx::{ArrayView, Cx};
pub(crate) use self::io::{Answer, ArrayIo, Busy, Event, PartOutcome, SPLITTING};
pub(crate) use self::parity::{ParityRaid, StripeMemory};
pub(crate) use self::personality::Personality;
pub(crate) use self::straight::StraightPart;

#[cfg(test)]
mod tests;
