//! Tests of the page cache as a whole, against a model and against references.

mod files;
mod model;
mod rig;
mod system;
mod turns;
