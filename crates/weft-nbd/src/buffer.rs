//! Byte buffers of a connection: input until a header is complete, output until the socket takes
//! it.

/// Collector for a header that arrives in parts, with room for the longest header. The collector
/// never allocates.
#[derive(Debug)]
pub(crate) struct Gather {
    bytes: [u8; GATHER_BYTES],
    len: usize,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; GATHER_BYTES], len: 0 }
    }

    /// Moves bytes from the front of `input` into the collector until it holds `need` bytes.
    /// Returns whether the collector then holds them.
    pub(crate) fn fill(&mut self, input: &mut &[u8], need: usize) -> bool {
        debug_assert!(need <= GATHER_BYTES);
        let (taken, rest) = input.split_at(input.len().min(need.saturating_sub(self.len)));
        self.bytes[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        *input = rest;
        self.len >= need
    }

    /// Returns a whole header of `N` bytes, if all of it has arrived: straight from `input` when it
    /// contains all of the header, which is the usual case, or from the collected parts.
    #[inline]
    pub(crate) fn next<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if self.len == 0
            && let Some((header, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(*header);
        }
        self.fill(input, N).then(|| self.take())
    }

    /// The first `N` bytes of a header, which stay in place.
    pub(crate) fn peek<const N: usize>(&self) -> [u8; N] {
        assert!(self.len >= N);
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[..N]);
        array
    }

    /// Returns a whole header of `N` bytes and empties the collector.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        assert_eq!(self.len, N);
        let array = self.peek();
        self.len = 0;
        array
    }
}

/// Outcome of one transition of a session: another transition follows, an event, or a need for
/// input.
pub(crate) enum Transition<E> {
    Again,
    Event(E),
    NeedInput,
}

/// Calls `step` until it returns an event or needs more input. Returns the number of bytes
/// consumed, and the event; `None` if more input is needed.
#[inline]
pub(crate) fn transitions<E>(
    bytes: &[u8],
    mut step: impl FnMut(&mut &[u8]) -> Transition<E>,
) -> (usize, Option<E>) {
    let mut rest = bytes;
    let event = loop {
        match step(&mut rest) {
            Transition::Again => {}
            Transition::Event(event) => break Some(event),
            Transition::NeedInput => break None,
        }
    };
    (bytes.len() - rest.len(), event)
}

/// Bytes to be sent: whole messages, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.pending().len(), "more bytes sent than were pending");
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            // A long list of exports is sent once; its memory is not kept for the session.
            self.bytes.shrink_to(OUTBOX_KEEP_BYTES);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Drops up to `remaining` bytes from the front of `input`, and subtracts their number from
/// `remaining`. Returns whether `remaining` is then 0.
pub(crate) fn skip(input: &mut &[u8], remaining: &mut u32) -> bool {
    let count = (*remaining as usize).min(input.len());
    *input = &input[count..];
    *remaining -= u32::try_from(count).expect("at most the u32 it was limited by");
    *remaining == 0
}

/// Moves bytes from the front of `input` to the end of `data` until `data` holds `len` bytes.
/// Returns whether `data` then holds them. Memory grows with the bytes received, not with the
/// announced length.
pub(crate) fn collect(input: &mut &[u8], data: &mut Vec<u8>, len: u32) -> bool {
    let missing = (len as usize) - data.len();
    let (taken, rest) = input.split_at(missing.min(input.len()));
    data.extend_from_slice(taken);
    *input = rest;
    data.len() == len as usize
}

/// Size in bytes of the longest fixed header: that of a request or of a chunk with extended
/// headers.
const GATHER_BYTES: usize = crate::wire::RequestHeader::EXTENDED_BYTES;
/// Capacity in bytes that an empty outbox keeps while its connection is open: about 200 replies.
const OUTBOX_KEEP_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_joins_pieces_and_leaves_the_rest() {
        let mut gather = Gather::new();
        let mut input: &[u8] = &[1, 2];
        assert!(!gather.fill(&mut input, 4));
        assert!(input.is_empty());
        let mut input: &[u8] = &[3, 4, 5];
        assert!(gather.fill(&mut input, 4));
        assert_eq!(input, [5]);
        assert_eq!(gather.take::<4>(), [1, 2, 3, 4]);
    }

    #[test]
    fn outbox_returns_memory_of_a_long_list() {
        let mut out = Outbox::default();
        out.push(&[7; 100_000]);
        out.advance(99_999);
        assert_eq!(out.pending(), [7]);
        out.advance(1);
        assert!(out.pending().is_empty());
        assert!(out.memory_bytes() <= OUTBOX_KEEP_BYTES);
    }
}
