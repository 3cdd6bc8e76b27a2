//! Operations on files: rings that carry out many at once. These rings know neither members nor
//! overlays.

pub mod auto;
pub(crate) mod completions;
pub mod faulty;
pub mod ring;
pub mod threads;
pub(crate) mod timed;
#[allow(unsafe_code, reason = "hands addresses to the kernel")]
pub mod uring;
