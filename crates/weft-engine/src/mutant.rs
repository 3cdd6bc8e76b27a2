//! Planted bugs: defects that the checkers must detect.
//!
//! Without the feature `mutants` none can be planted, and every query here is `false` at compile
//! time.
//!
//! Source   reliability.md §6.4

/// A planted bug. Each variant describes the defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// A write of a mirror is answered when its first copy is written.
    AckBeforeAllCopies,
    /// A write is answered before its parity is written.
    AckBeforeParity,
    /// Writes and answers do not wait for superblocks.
    AckBeforeSuperblock,
    /// Bits of the bitmap are cleared while writes are under way, and before a flush.
    BitClearedEarly,
    /// An array that broke acknowledges writes that a member missed.
    BrokenAcknowledges,
    /// A stripe cache that was made smaller keeps its stripes.
    CacheNotResized,
    /// The queue of a member is not told that the member has ended a command.
    CommandEndForgotten,
    /// One sector past a chunk boundary goes to the wrong member.
    ChunkEdgeOffByOne,
    /// The far or offset copy of a chunk goes to the member after its own.
    CopyOnWrongMember,
    /// The credit of requests of a client that left is not given back.
    CreditLostOnDisconnect,
    /// A client has one request more than its credit is for.
    CreditOvershoots,
    /// Writes do not wait for their bits of the bitmap.
    DataBeforeBit,
    /// Discards do not wait for the dirty state.
    DiscardBeforeDirty,
    /// Stripes of the cache are kept though their strips are discarded.
    DiscardKeepsStripes,
    /// A discard does not go to the first member.
    DiscardSkipsOneMember,
    /// A discard does not wait for a sync of its stripes.
    DiscardUnderSync,
    /// A member is sent a request twice that its scheduler dispatched once.
    DispatchedTwice,
    /// Superblocks are written with an unchanged update count.
    EventsNotRaised,
    /// The write-back cache has more dirty pages than its limit.
    DirtyLimitPassed,
    /// A flush is answered before the failure of a member is recorded.
    FlushBeforeFailureRecorded,
    /// A flush of the write-back cache does not wait for pages that are being written.
    FlushMissesWriteback,
    /// A flush is served by one that started before it arrived.
    FlushServedByEarlier,
    /// With `needed`, only data writes make a member dirty: no metadata, no discard.
    FlushSkipForgetsMetadata,
    /// With `needed`, a member is clean when it joins.
    FlushSkipForgetsStartUp,
    /// A flush does not go to the last member.
    FlushSkipsOneMember,
    /// A write's frames are given back before they were drained.
    FrameReusedInFlight,
    /// A stop that gives up pages does not report that.
    LossNotTold,
    /// A FUA write stays in the write-back cache.
    FuaStaysInCache,
    /// A full-stripe write forgets the last strip of its parity.
    FullStripeWriteWithoutTail,
    /// Strips that a member had no space for are not copied from the zero-copy pages of a client.
    ZeroCopyNotSaved,
    /// A zero-copy page goes back to its client while a member that stalls may still use it.
    ZeroCopyNotPinned,
    /// No wake-up comes when a member was kept idle for a queue for long enough.
    IdleTimerNotSet,
    /// A page that is written to while it is written back is clean afterwards.
    RedirtiedPageLost,
    /// The last writer that waits for room in the write-back cache is not let in.
    RoomWaiterForgotten,
    /// A mirror forgets which members had no space before it says that they have some again.
    LackForgotten,
    /// A resync keeps its lease, so that the array is never marked clean again.
    LeaseNotGivenBack,
    /// Stripes that a turn left over wait for another event.
    LostWakeUp,
    /// A member that left before bits of the bitmap were cleared is copied as if none had been.
    ReaddOfTooOld,
    /// A recovery of several members ends a pending resync, though one was rebuilt in part before.
    PartlyRebuiltSettles,
    /// A FUA write goes to the end of one that is not durable by itself.
    MergeAcrossFlush,
    /// Reads take the last copy where copies may differ, which a resync overwrites.
    MirrorReadUnsynced,
    /// Answers do not wait until the failure of a member is recorded.
    MissedWriteNotRecorded,
    /// Clients are not woken from every second pause.
    PauseForgotten,
    /// The last waiting request of a member's queue is forgotten when the queue is reconfigured.
    QueueSwitchForgets,
    /// A drain of the write-back cache is answered while pages are still being written.
    DrainBeforeWritten,
    /// A queue of BFQ with requests is forgotten by the service tree.
    QueueStarves,
    /// Read-modify-write takes the new data for the old.
    RmwNewAsOld,
    /// A member that was added is taken to be in sync at once.
    StaleMemberAfterAdd,
    /// A superblock that found no space is tried again much too late.
    SuperblockRetriedLate,
    /// An array tolerates one failed member fewer than it has copies, whichever members they are.
    ToleratesByCount,
    /// A write that comes while superblocks that record clean are being written takes them to
    /// record dirty.
    NotDirtyWhileBecomingClean,
    /// Stripes wait to be filled for as long as others are read or written.
    WaitWithoutEnd,
    /// A write is taken though the array is read-only.
    WriteWhileReadOnly,
    /// The last block of a zone of RAID 0, or of a member of linear, goes to the start of the next
    /// one.
    ZoneBoundaryOffByOne,
    /// Data strips past the second have the wrong exponent in Q.
    WrongQExponent,
    /// If pages of one volume cannot be written, writes to others that wait for room are refused.
    OtherVolumeRefused,
}

impl Mutant {
    /// Planted bugs that random runs miss, because they need an order of events that few seeds
    /// have. The small scope brings [`Self::NotDirtyWhileBecomingClean`] about.
    pub const MISSED: [Self; 2] = [Self::ZeroCopyNotSaved, Self::NotDirtyWhileBecomingClean];

    /// Planted bugs of the write-back cache, which `write_back.rs` in `weft-sim` finds.
    pub const WRITE_BACK: [Self; 7] = [
        Self::DirtyLimitPassed,
        Self::FlushMissesWriteback,
        Self::FuaStaysInCache,
        Self::LossNotTold,
        Self::PauseForgotten,
        Self::RedirtiedPageLost,
        Self::RoomWaiterForgotten,
    ];

    /// Planted bugs that scripts show.
    pub const ALL: [Self; 47] = [
        Self::AckBeforeAllCopies,
        Self::AckBeforeParity,
        Self::AckBeforeSuperblock,
        Self::BitClearedEarly,
        Self::BrokenAcknowledges,
        Self::CacheNotResized,
        Self::CommandEndForgotten,
        Self::ChunkEdgeOffByOne,
        Self::CopyOnWrongMember,
        Self::CreditLostOnDisconnect,
        Self::CreditOvershoots,
        Self::DataBeforeBit,
        Self::DiscardBeforeDirty,
        Self::DiscardKeepsStripes,
        Self::DiscardSkipsOneMember,
        Self::DiscardUnderSync,
        Self::DispatchedTwice,
        Self::DrainBeforeWritten,
        Self::EventsNotRaised,
        Self::FlushBeforeFailureRecorded,
        Self::FlushServedByEarlier,
        Self::FlushSkipForgetsMetadata,
        Self::FlushSkipForgetsStartUp,
        Self::FlushSkipsOneMember,
        Self::FrameReusedInFlight,
        Self::FullStripeWriteWithoutTail,
        Self::ZeroCopyNotPinned,
        Self::IdleTimerNotSet,
        Self::LackForgotten,
        Self::LeaseNotGivenBack,
        Self::LostWakeUp,
        Self::MergeAcrossFlush,
        Self::MirrorReadUnsynced,
        Self::MissedWriteNotRecorded,
        Self::OtherVolumeRefused,
        Self::PartlyRebuiltSettles,
        Self::QueueStarves,
        Self::QueueSwitchForgets,
        Self::ReaddOfTooOld,
        Self::RmwNewAsOld,
        Self::StaleMemberAfterAdd,
        Self::SuperblockRetriedLate,
        Self::ToleratesByCount,
        Self::WaitWithoutEnd,
        Self::WriteWhileReadOnly,
        Self::WrongQExponent,
        Self::ZoneBoundaryOffByOne,
    ];
}

/// Whether this bug is planted.
pub(crate) fn is(planted: Option<Mutant>, mutant: Mutant) -> bool {
    cfg!(feature = "mutants") && planted == Some(mutant)
}
