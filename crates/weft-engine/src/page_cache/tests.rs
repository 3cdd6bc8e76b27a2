//! Tests of the page cache as a whole, compared with a model and with reference results.

mod files;
mod model;
mod rig;
mod system;
mod turns;
