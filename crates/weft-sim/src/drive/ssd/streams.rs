//! Detection of sequential streams among the commands of a solid-state drive.

/// Number of streams that are distinguished (assumed).
const STREAMS: usize = 8;

/// The [`STREAMS`] most recently used streams.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    streams: [Stream; STREAMS],
    used: u64,
}

/// A stream: commands each of which begins where the preceding one ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Sector after the last command.
    pub(super) next: u64,
    /// Number of commands that continued the stream.
    pub(super) continued: u64,
    /// Number of the first superpage that was not read ahead for the stream.
    pub(super) fetched: u64,
    used: u64,
}

impl Streams {
    pub(super) fn new() -> Self {
        let none = Stream { next: u64::MAX, continued: 0, fetched: 0, used: 0 };
        Self { streams: [none; STREAMS], used: 0 }
    }

    /// Adds the range of a command. Returns the stream that it continues. If it continues none, a
    /// new stream replaces the least recently used one, which is returned as the error.
    pub(super) fn take(&mut self, first: u64, end: u64) -> Result<&mut Stream, Stream> {
        self.used += 1;
        let used = self.used;
        if let Some(index) = self.streams.iter().position(|stream| stream.next == first) {
            let stream = &mut self.streams[index];
            (stream.next, stream.continued, stream.used) = (end, stream.continued + 1, used);
            return Ok(stream);
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used);
        let oldest = oldest.expect("streams exist");
        Err(std::mem::replace(oldest, Stream { next: end, continued: 0, fetched: 0, used }))
    }
}
