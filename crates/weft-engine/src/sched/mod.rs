//! What happens to member requests between a decision and the member.
//!
//! One scheduler so far: `none`, which merges what one turn made and sends it on.

pub(crate) mod merge;
