//! Comparison of a journal with the members: whether they hold everything that is in the journal.
//!
//! md writes data and parity to the journal first, then to the members, and advances the tail of
//! the journal only now and then. So after a clean stop the journal may contain meta blocks of
//! stripes that have all reached the members, which the checksums show. A stripe is *on the
//! members* if, at each slot, the block that the member holds equals the last block for it in the
//! journal. A missing member counts as equal if the journal has the stripe's parity, from which the
//! missing block is computed.
//!
//! Source   md-ondisk.md §5 "Recovery"; journal of Linux 6.12 in `fixtures/md/raid5-4-journal`

use std::collections::BTreeMap;

use weft_ondisk::{
    JOURNAL_BLOCK_BYTES, JournalState, Payload, journal_block_checksum, journal_seed,
};
use weft_units::{FullStripe, Sectors, Slot};

use super::{Assembly, Candidate, Member, Options, SlotState, assemble};
use crate::contract::member::MemberInfo;

/// Compares the content of a journal with the members, and marks the journal as empty if the
/// members hold all of it.
///
/// Shape    `read(member, sector, bytes)` returns `bytes` bytes of the member from `sector` on, or
///          `None` if they cannot be read
pub fn settle(
    candidates: &mut [Candidate],
    options: &Options,
    mut read: impl FnMut(&MemberInfo, Sectors, usize) -> Option<Vec<u8>>,
) {
    let holds =
        |candidate: &Candidate| matches!(candidate.logs.journal, Some(Ok(JournalState::Live(_))));
    if !candidates.iter().any(holds) {
        return;
    }
    // Options with which the members would be accepted if the journal was empty.
    let (read_only, without_journal, force_dirty) = (true, true, true);
    let options = Options { read_only, without_journal, force_dirty, ..options.clone() };
    let Ok(assembly) = assemble(candidates, &options) else { return };
    for candidate in candidates.iter_mut().filter(|candidate| holds(candidate)) {
        let Some(Ok(JournalState::Live(blocks))) = &candidate.logs.journal else { continue };
        let payloads = blocks.iter().flat_map(|block| &block.payloads);
        if let Some(stripes) = Stripes::of(payloads, &assembly)
            && stripes.are_on_members(&assembly, &mut read)
        {
            candidate.logs.journal = Some(Ok(JournalState::Empty));
        }
    }
}

/// Blocks in the journal, keyed by data sector on the members. A later block for the same sector
/// and slot replaces an earlier one.
#[derive(Default)]
struct Stripes(BTreeMap<u64, Stripe>);

#[derive(Default)]
struct Stripe {
    /// Checksum of the stripe's block at each slot, as the journal has it.
    blocks: BTreeMap<u16, u32>,
    has_parity: bool,
}

impl Stripes {
    /// Collects the blocks of the journal. `None` if the journal has a payload that is not
    /// understood or that does not belong to this array, or if the array has no parity.
    fn of<'a>(payloads: impl Iterator<Item = &'a Payload>, assembly: &Assembly) -> Option<Self> {
        let geometry = assembly.layout.parity()?;
        let mut stripes = Self::default();
        for payload in payloads {
            match payload {
                Payload::Data { flags: 0, sector, checksums } => {
                    for (checksum, index) in checksums.iter().zip(0u64..) {
                        let sector = Sectors(sector.0.checked_add(index * BLOCK_SECTORS)?);
                        if sector >= geometry.array_size() {
                            return None;
                        }
                        let position = geometry.locate(sector);
                        let stripe = stripes.0.entry(position.sector.0).or_default();
                        stripe.blocks.insert(position.slot.0, *checksum);
                        // Data after the parity belongs to a later write, which the parity does not
                        // cover.
                        stripe.has_parity = false;
                    }
                }
                Payload::Parity { flags: 0, sector, checksums } => {
                    if *sector >= geometry.member_size() {
                        return None;
                    }
                    let placement = geometry.placement(FullStripe(sector.0 / geometry.chunk().0));
                    let slots = std::iter::once(placement.p).chain(placement.q);
                    let stripe = stripes.0.entry(sector.0).or_default();
                    for (slot, checksum) in slots.zip(checksums) {
                        stripe.blocks.insert(slot.0, *checksum);
                    }
                    stripe.has_parity = true;
                }
                Payload::Flush { stripes: flushed, .. } => {
                    for sector in flushed {
                        stripes.0.remove(sector);
                    }
                }
                Payload::Data { .. } | Payload::Parity { .. } => return None,
            }
        }
        Some(stripes)
    }

    fn are_on_members(
        &self,
        assembly: &Assembly,
        read: &mut impl FnMut(&MemberInfo, Sectors, usize) -> Option<Vec<u8>>,
    ) -> bool {
        let seed = journal_seed(assembly.uuid);
        self.0.iter().all(|(sector, stripe)| {
            stripe.blocks.iter().all(|(slot, checksum)| {
                let Some(member) = whole_at(assembly, Slot(*slot)) else {
                    return stripe.has_parity;
                };
                let at = member.superblock.data_offset() + Sectors(*sector);
                let block = read(&member.info, at, JOURNAL_BLOCK_BYTES);
                block.is_some_and(|block| journal_block_checksum(seed, &block) == *checksum)
            })
        })
    }
}

fn whole_at(assembly: &Assembly, slot: Slot) -> Option<&Member> {
    match assembly.slots.get(slot.index())? {
        SlotState::InSync(member) => Some(member),
        SlotState::Missing | SlotState::Rebuilding { .. } => None,
    }
}

const BLOCK_SECTORS: u64 = 8;
