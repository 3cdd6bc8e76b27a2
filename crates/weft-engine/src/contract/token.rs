//! Tokens: identifiers that connect a `Done` to its `Submit` or `Compute`.

/// Identifier of one `Submit` or `Compute` of an engine, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Identifier of one request of one client. The driver chooses it, unique among the client's
/// outstanding requests, and gets it back in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Number of a request within its volume. It is reused after the request has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u32);
