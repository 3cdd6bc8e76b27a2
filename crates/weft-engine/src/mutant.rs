//! Planted bugs: defects that the checkers must detect.
//!
//! Without the feature `mutants` no bug can be planted, and every query here is `false` at compile
//! time.
//!
//! Source   reliability.md §6.4

/// A planted bug. Each variant describes the defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// A write of a mirror is answered when its first copy is written.
    AckBeforeAllCopies,
    /// A write is answered before its parity is written to the members.
    AckBeforeParity,
    /// Writes and answers do not wait until superblocks have recorded the dirty state or a failure.
    AckBeforeSuperblock,
    /// Sectors that a recovery could not compute are not recorded as bad.
    BadBlockForgotten,
    /// Superblocks say that a member is rebuilt, although its bad-block log is not written.
    BadBlocksNotWritten,
    /// Bits of the bitmap are cleared while writes are under way, and before a flush.
    BitClearedEarly,
    /// A broken array acknowledges writes that missed a member.
    BrokenAcknowledges,
    /// A stripe cache that is made smaller keeps all of its stripes.
    CacheNotResized,
    /// A member's queue is not notified when the member has completed a command.
    CommandEndForgotten,
    /// The sector after a chunk boundary goes to the wrong member.
    ChunkEdgeOffByOne,
    /// The far or offset copy of a chunk goes to the member after the right one.
    CopyOnWrongMember,
    /// Credit is not returned for the requests of a client that has disconnected.
    CreditLostOnDisconnect,
    /// A client's last request may exceed the credit that is left.
    CreditOvershoots,
    /// Writes do not wait until the bitmap durably records that their chunks may be written.
    DataBeforeBit,
    /// Discards do not wait until the dirty state is recorded.
    DiscardBeforeDirty,
    /// A discard does not remove its stripes from the stripe cache, which keeps the old content.
    DiscardKeepsStripes,
    /// A discard does not go to the first member.
    DiscardSkipsOneMember,
    /// A discard does not wait until a sync of its stripes is done.
    DiscardUnderSync,
    /// A request that the scheduler dispatched once is sent to the member twice.
    DispatchedTwice,
    /// Superblocks are written with an unchanged update count.
    EventsNotRaised,
    /// The write-back cache has more dirty pages than its limit.
    DirtyLimitPassed,
    /// A flush also goes to failed members that were not removed.
    FailedMemberFlushed,
    /// A flush is answered before the failure of a member is recorded on the others.
    FlushBeforeFailureRecorded,
    /// A flush of the write-back cache does not wait for pages that are being written.
    FlushMissesWriteback,
    /// A flush request is served by a member flush that started before the request arrived.
    FlushServedByEarlier,
    /// With `flush_batch=needed`, only data writes make a member dirty; metadata writes and
    /// discards do not.
    FlushSkipForgetsMetadata,
    /// With `flush_batch=needed`, a member counts as clean when it joins.
    FlushSkipForgetsStartUp,
    /// A flush does not go to the last member.
    FlushSkipsOneMember,
    /// The frames of a write are returned before the data was drained from them.
    FrameReusedInFlight,
    /// A stop of the write-back cache does not report the pages that it gave up.
    LossNotTold,
    /// A FUA write stays in the write-back cache.
    FuaStaysInCache,
    /// A full-stripe write forgets the last strip of its parity.
    FullStripeWriteWithoutTail,
    /// Strips that a member had no space for are not copied from the client's zero-copy pages, so
    /// that the only copy is lost.
    ZeroCopyNotSaved,
    /// A zero-copy page goes back to its client while a member that stalls may still use it.
    ZeroCopyNotPinned,
    /// No wake-up comes at the end of an idle period of BFQ.
    IdleTimerNotSet,
    /// A page that is written to while it is under writeback is clean afterwards.
    RedirtiedPageLost,
    /// The last write that waits for room in the write-back cache never gets room.
    RoomWaiterForgotten,
    /// A mirror forgets too early that a member ran out of space: before the member has shown that
    /// it has space again.
    LackForgotten,
    /// A resync does not return its lease, which keeps the array dirty, so that the array is never
    /// marked clean again.
    LeaseNotGivenBack,
    /// Stripes that are left over when a turn has handled its maximum are not handled until another
    /// event comes.
    LostWakeUp,
    /// A former member that left before bits of the bitmap were cleared is brought up to date from
    /// the bitmap, as if no bit had been cleared.
    ReaddOfTooOld,
    /// A recovery of several members also ends a pending resync, although one of the members was
    /// partly rebuilt before.
    PartlyRebuiltSettles,
    /// A FUA write is merged into a write without FUA.
    MergeAcrossFlush,
    /// Where copies may differ, reads take the last copy, which a resync overwrites.
    MirrorReadUnsynced,
    /// Answers to writes that missed a member do not wait until the member's failure is recorded.
    MissedWriteNotRecorded,
    /// A run of pages of the write-back cache forgets that there was no space for one of its parts
    /// when a later part is written.
    PartLackForgotten,
    /// A run of pages of the write-back cache forgets another error of one of its parts when a
    /// later part is written.
    PartErrorForgotten,
    /// In the write-back cache, every second pause of a client never ends.
    PauseForgotten,
    /// The last waiting request of a member's queue is forgotten when the queue is reconfigured.
    QueueSwitchForgets,
    /// A drain of the write-back cache is answered while pages are still being written.
    DrainBeforeWritten,
    /// BFQ's service tree forgets a queue that has requests.
    QueueStarves,
    /// A reshape records a position before the data below it is durable.
    ReshapeNotFlushed,
    /// A reshape writes over sectors from which a restart would copy.
    ReshapeOverSource,
    /// A reshape admits client requests to a range that is copied while the superblocks do not yet
    /// record its new position.
    ReshapeLetsPass,
    /// The range that a larger size adds to an array is not resynced.
    ResizeNotResynced,
    /// An array is used with its new size before superblocks record the size.
    ResizeNotRecorded,
    /// The bad blocks of a replacement are forgotten when it takes its slot.
    BadBlocksForgottenAtSwap,
    /// Writes do not wait until superblocks record that a replacement has taken its slot.
    SwapNotRecorded,
    /// Writes of a slot go only to its member, and not to the replacement that is being filled.
    ReplacementNotWritten,
    /// A read-modify-write uses the new data in place of the old data.
    RmwNewAsOld,
    /// A member that was added counts as in sync at once.
    StaleMemberAfterAdd,
    /// A superblock that found no space on its member is written again after 60 s instead of 1 s.
    SuperblockRetriedLate,
    /// The number of failed members that an array tolerates is one less than its number of copies,
    /// even if members fail that share no data.
    ToleratesByCount,
    /// A write that arrives during the superblock update that records clean starts as if the
    /// superblocks recorded dirty.
    NotDirtyWhileBecomingClean,
    /// Partly written stripes wait for more data without a limit, as long as other stripes are read
    /// or written.
    WaitWithoutEnd,
    /// A write is accepted although the array is read-only.
    WriteWhileReadOnly,
    /// The last block of a zone of RAID 0, or of a member of linear, is written to the start of the
    /// next zone or member.
    ZoneBoundaryOffByOne,
    /// Data strips past the second have the wrong exponent in Q.
    WrongQExponent,
    /// If pages of one volume cannot be written, writes to other volumes that wait for room are
    /// refused too.
    OtherVolumeRefused,
}

impl Mutant {
    /// Planted bugs that random runs do not detect, because they need an order of events that
    /// occurs with few seeds. The exhaustive small scope reaches
    /// [`Self::NotDirtyWhileBecomingClean`].
    pub const MISSED: [Self; 2] = [Self::ZeroCopyNotSaved, Self::NotDirtyWhileBecomingClean];

    /// Planted bugs of the write-back cache, which `write_back.rs` in `weft-crash` detects.
    pub const WRITE_BACK: [Self; 7] = [
        Self::DirtyLimitPassed,
        Self::FlushMissesWriteback,
        Self::FuaStaysInCache,
        Self::LossNotTold,
        Self::PauseForgotten,
        Self::RedirtiedPageLost,
        Self::RoomWaiterForgotten,
    ];

    /// Planted bugs that the random scripts of `weft-crash` detect.
    pub const ALL: [Self; 60] = [
        Self::AckBeforeAllCopies,
        Self::AckBeforeParity,
        Self::AckBeforeSuperblock,
        Self::BadBlockForgotten,
        Self::BadBlocksNotWritten,
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
        Self::FailedMemberFlushed,
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
        Self::PartErrorForgotten,
        Self::PartLackForgotten,
        Self::PartlyRebuiltSettles,
        Self::QueueStarves,
        Self::QueueSwitchForgets,
        Self::ReaddOfTooOld,
        Self::ReplacementNotWritten,
        Self::ReshapeLetsPass,
        Self::ReshapeNotFlushed,
        Self::ReshapeOverSource,
        Self::ResizeNotRecorded,
        Self::ResizeNotResynced,
        Self::SwapNotRecorded,
        Self::BadBlocksForgottenAtSwap,
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

pub(crate) fn is(planted: Option<Mutant>, mutant: Mutant) -> bool {
    cfg!(feature = "mutants") && planted == Some(mutant)
}
