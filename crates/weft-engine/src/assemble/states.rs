//! Table of array states: for each, a one-sentence description and advice on what to do next.
//!
//! The table has every state for which an array is refused, and every state of a served array that
//! an administrator should know about. Messages add the details that were found; programs use the
//! identifier.

/// State of an array that is refused, or that is served but needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each has its sentence in the table")]
pub enum AssemblyState {
    NoMember,
    SeveralArrays,
    NoIdentity,
    MembersDisagree,
    Copies,
    OnlySpares,
    SplitBrain,
    SlotTwice,
    TooFewMembers,
    DirtyDegraded,
    NewlyDegraded,
    JournalMissing,
    JournalHoldsData,
    JournalUnexpected,
    Reshaping,
    Unsupported,
    Truncated,
    Misaligned,
    WriteBitmap,
    WriteLogged,
    WriteBadBlocks,
    WriteForeign,
    WriteUnknown,
    BitmapStale,
    Degraded,
    Rebuilding,
    Replacing,
    ReshapePending,
    ResyncPending,
    BadBlocks,
    SuspectData,
    WithoutJournal,
    MembersNotUsed,
    MemberFaulty,
    NoSpace,
    Broken,
}

/// Row of [`TABLE`]: identifier, description and advice for one state.
#[derive(Clone, Copy, Debug)]
pub struct StateRow {
    /// State that the row describes.
    pub state: AssemblyState,
    /// Identifier for programs, which never changes.
    pub id: &'static str,
    /// Whether an array in this state is refused; otherwise it is served with the state noted.
    pub refused: bool,
    /// Description of the state, in one sentence.
    pub says: &'static str,
    /// Advice on what to do next, with a command if there is one.
    pub next: &'static str,
}

const fn refused(
    state: AssemblyState,
    id: &'static str,
    says: &'static str,
    next: &'static str,
) -> StateRow {
    StateRow { state, id, refused: true, says, next }
}

const fn served(
    state: AssemblyState,
    id: &'static str,
    says: &'static str,
    next: &'static str,
) -> StateRow {
    StateRow { state, id, refused: false, says, next }
}

/// All rows, in the order of [`AssemblyState`].
pub const TABLE: [StateRow; 36] = [
    refused(
        AssemblyState::NoMember,
        "no-member",
        "none of the devices is a member of an md array",
        "weft rescue DISK… looks into partitions, weft examine --deep DEVICE… into odd places",
    ),
    refused(
        AssemblyState::SeveralArrays,
        "several-arrays",
        "the devices are of several arrays",
        "--uuid UUID or --array NAME chooses one",
    ),
    refused(
        AssemblyState::NoIdentity,
        "no-identity",
        "the uuid of the array is all zeros, which names no array",
        "mdadm --assemble --update=uuid gives it one",
    ),
    refused(
        AssemblyState::MembersDisagree,
        "members-disagree",
        "members of one array describe it differently",
        "weft examine MEMBER… shows each; leave out the one that is wrong",
    ),
    refused(
        AssemblyState::Copies,
        "copies",
        "two devices say that they are the same member",
        "weft examine MEMBER… shows both; leave the copy out",
    ),
    refused(
        AssemblyState::OnlySpares,
        "only-spares",
        "none of the members has a slot in the array",
        "name members with data too; weft examine --deep DEVICE… finds them",
    ),
    refused(
        AssemblyState::SplitBrain,
        "split-brain",
        "two halves of the array were used on their own",
        "give only the half that has the wanted data",
    ),
    refused(
        AssemblyState::SlotTwice,
        "slot-twice",
        "two members say that they are at the same slot",
        "weft examine MEMBER… shows both; leave one out",
    ),
    refused(
        AssemblyState::TooFewMembers,
        "too-few-members",
        "more members are missing than the level can do without",
        "name the missing ones too; weft examine --deep DEVICE… finds members in odd places",
    ),
    refused(
        AssemblyState::DirtyDegraded,
        "dirty-degraded",
        "the array was not stopped and a member is missing: what is reconstructed may be wrong",
        "name the missing member too; --force-dirty accepts it as it is",
    ),
    refused(
        AssemblyState::NewlyDegraded,
        "newly-degraded",
        "a member that the array knows is missing",
        "name it too; --run serves without it, and what is written then is not on it; --read-only \
         needs no consent",
    ),
    refused(
        AssemblyState::JournalMissing,
        "journal-missing",
        "the journal is missing: data may be in it only",
        "name the journal too; --read-only --without-journal reads what members have",
    ),
    refused(
        AssemblyState::JournalHoldsData,
        "journal-holds-data",
        "the journal holds what members do not have yet",
        "mdadm --assemble MEMBER… lets the kernel replay it; --read-only --without-journal reads \
         what members have",
    ),
    refused(
        AssemblyState::JournalUnexpected,
        "journal-unexpected",
        "journals and superblocks do not fit each other",
        "leave the journal out that is not the array's; --read-only --without-journal reads what \
         members have",
    ),
    refused(
        AssemblyState::Reshaping,
        "reshaping",
        "a reshape is under way that this release does not read, or for writing does not continue",
        "weft cat or --read-only may read it; mdadm --assemble MEMBER… lets the kernel finish it",
    ),
    refused(
        AssemblyState::Unsupported,
        "unsupported",
        "this release has no such level or layout",
        "mdadm --assemble --readonly MEMBER… reads it with the kernel",
    ),
    refused(
        AssemblyState::Truncated,
        "truncated",
        "a member is smaller than its data",
        "weft cat and serve --read-only compute its end from the others; for writing, name all of the \
         device it was copied from, or leave the member out",
    ),
    refused(
        AssemblyState::Misaligned,
        "misaligned",
        "a member's data does not begin with a block of its device",
        "copy it to a device with blocks that fit",
    ),
    refused(
        AssemblyState::WriteBitmap,
        "write-bitmap",
        "the array has a bitmap that is damaged, or of a kind which weft does not keep up to date",
        "weft cat or --read-only reads it; for writing, leave out the member that has the damaged \
         bitmap (--run) and weft add it then, or mdadm --grow --bitmap=none /dev/mdX takes the \
         bitmap away",
    ),
    refused(
        AssemblyState::WriteLogged,
        "write-logged",
        "the array logs its writes (partial parity or journal), which this release does not",
        "weft cat or --read-only reads it; mdadm --grow --consistency-policy=resync /dev/mdX ends \
         the log",
    ),
    refused(
        AssemblyState::WriteBadBlocks,
        "write-bad-blocks",
        "the unit of a bad-block log is not a sector, which this release does not write",
        "weft cat or --read-only reads it; a new member with mdadm --replace has none",
    ),
    refused(
        AssemblyState::WriteForeign,
        "write-foreign",
        "the superblock is in the byte order of another kind of machine",
        "weft cat or --read-only reads it; mdadm --assemble --update=byteorder turns it",
    ),
    refused(
        AssemblyState::WriteUnknown,
        "write-unknown",
        "the array uses something that this release does not keep up to date",
        "weft cat or --read-only reads it",
    ),
    served(
        AssemblyState::BitmapStale,
        "bitmap-stale",
        "the bitmap is older than the superblocks: all of its bits count as set",
        "weft serve MEMBER… makes it current again; a resync before that goes over all of the array",
    ),
    served(
        AssemblyState::Degraded,
        "degraded",
        "a slot has no member; its blocks are computed from the others",
        "weft add TARGET DEVICE gives it a new one",
    ),
    served(
        AssemblyState::Rebuilding,
        "rebuilding",
        "a member does not have all of its data yet",
        "weft wait TARGET ends when it has",
    ),
    served(
        AssemblyState::Replacing,
        "replacing",
        "a member is being replaced by one that is filled beside it",
        "weft serve MEMBER… goes on with it, weft wait TARGET ends when it is done; read-only the \
         one that is filled is not used",
    ),
    served(
        AssemblyState::ReshapePending,
        "reshape-pending",
        "the array is being reshaped: a part has the new geometry, the rest the old one",
        "weft serve MEMBER… goes on with it, weft wait TARGET ends when it is done",
    ),
    served(
        AssemblyState::ResyncPending,
        "resync-pending",
        "the array was not stopped: parity may be wrong",
        "weft serve MEMBER… corrects it, weft wait TARGET ends when it has",
    ),
    served(
        AssemblyState::BadBlocks,
        "bad-blocks",
        "blocks of a member are recorded as bad; they are computed from the others",
        "weft check TARGET writes anew what the others can give; the rest is clear once it is written",
    ),
    served(
        AssemblyState::SuspectData,
        "suspect-data",
        "the array was not stopped and a member is missing: what is reconstructed may be wrong",
        "check what is inside (fsck -n) before it is trusted",
    ),
    served(
        AssemblyState::WithoutJournal,
        "without-journal",
        "the journal is left out: data may be old or wrong",
        "name the journal too, or mdadm --assemble MEMBER… lets the kernel replay it",
    ),
    served(
        AssemblyState::MembersNotUsed,
        "members-not-used",
        "a device that was named is not used",
        "weft assemble MEMBER… says why",
    ),
    served(
        AssemblyState::MemberFaulty,
        "member-faulty",
        "a member has failed",
        "weft remove TARGET MEMBER, then weft add TARGET DEVICE",
    ),
    served(
        AssemblyState::NoSpace,
        "no-space",
        "a member has no space for what is written",
        "free space on its file system; after no_space_wait the volume goes on without it, if the others \
         suffice",
    ),
    served(
        AssemblyState::Broken,
        "broken",
        "too many members have failed while it ran, or the last one that has some data failed a \
         flush or its superblock: writes end in errors, what is left is read",
        "weft stop TARGET, then weft assemble MEMBER… says what is left",
    ),
];

impl AssemblyState {
    /// Row of [`TABLE`] with the description of this state.
    #[must_use]
    pub const fn row(self) -> &'static StateRow {
        &TABLE[self as usize]
    }

    /// Identifier for programs, such as `too-few-members`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.row().id
    }

    /// Description, in one sentence.
    #[must_use]
    pub const fn says(self) -> &'static str {
        self.row().says
    }

    /// Advice on what to do next.
    #[must_use]
    pub const fn next(self) -> &'static str {
        self.row().next
    }
}

/// The table as text for people, one paragraph per state.
#[must_use]
pub fn as_text() -> String {
    let row =
        |row: &StateRow| format!("  {}\n      {}\n      next: {}\n", row.id, row.says, row.next);
    let of = |refused: bool| -> String {
        TABLE.iter().filter(|line| line.refused == refused).map(row).collect()
    };
    format!("Refused states:\n{}\nDegraded states:\n{}", of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_sentence_and_a_next_step() {
        let mut ids = Vec::new();
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.state as usize, index, "{}: rows are in the order of states", row.id);
            assert_eq!(row.state.id(), row.id);
            assert_eq!((row.state.says(), row.state.next()), (row.says, row.next), "{}", row.id);
            let word = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(!row.id.is_empty() && row.id.chars().all(word), "{}", row.id);
            assert!(row.says.split(' ').count() >= 4, "{}: {}", row.id, row.says);
            assert!(row.next.split(' ').count() >= 4, "{}: {}", row.id, row.next);
            for text in [row.says, row.next] {
                assert!(!text.ends_with('.') && !text.contains("  "), "{}: {text}", row.id);
            }
            let names_a_step =
                ["weft ", "mdadm ", "--", "name ", "leave ", "give ", "copy ", "free "]
                    .iter()
                    .any(|word| row.next.contains(word))
                    || row.next.contains("fsck");
            assert!(names_a_step, "{}: {}", row.id, row.next);
            let text = as_text();
            let (refused, degraded) = text.split_once("\nDegraded states:\n").unwrap();
            let paragraph = format!("  {}\n      {}\n      next: {}\n", row.id, row.says, row.next);
            assert_eq!(refused.contains(&paragraph), row.refused, "{}", row.id);
            assert_eq!(degraded.contains(&paragraph), !row.refused, "{}", row.id);
            ids.push(row.id);
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), TABLE.len(), "each identifier once");
    }
}
