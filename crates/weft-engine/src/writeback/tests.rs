//! The page cache as a whole: files, flushers and writers against a model and against the
//! references.

mod files;
mod model;
mod rig;
mod system;
