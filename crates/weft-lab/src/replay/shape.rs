//! Fitting of a trace to another volume: devices, offsets, blocks, size and times.
//!
//! The steps, in order: only the selected devices are kept; their offsets are placed on one volume
//! and divided; the range is rounded to the volume's blocks and fitted to its size; times are
//! spread and scaled. Requests that are dropped, cut or split are counted. The runner takes
//! [`Pace`] from the same options.

use super::{DeviceIndex, Op, Record, ReplayError};
use std::collections::VecDeque;
use weft_units::{Bytes, Span, Time};

/// Rule that determines when a request is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Requests are submitted with a fixed number in flight, independent of the recorded times.
    ClosedLoop {
        /// Number of requests in flight, at least 1.
        depth: u32,
    },
    /// Each request is submitted at its recorded time.
    OpenLoop,
}

/// Place of the trace's devices on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All devices begin at byte 0 of the volume.
    Overlaid,
    /// Only this device is replayed.
    Only(DeviceIndex),
    /// Device n begins at byte n times the stride.
    SideBySide {
        /// Distance from the start of one device to that of the next, at least the size of the
        /// largest device.
        stride: Bytes,
    },
}

/// Treatment of a range that does not consist of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The range stays as it is.
    Keep,
    /// The start is rounded down to a multiple of this size; the length stays (fio's
    /// `replay_align`).
    Offset(Bytes),
    /// The start is rounded down and the end up to multiples of this size, so every byte of the
    /// range stays included.
    Outward(Bytes),
}

/// Treatment of a range that reaches beyond the end of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The range is cut at the end of the volume, and dropped if nothing is left.
    Clip,
    /// A range beyond the end is an error.
    Exact,
    /// The start is taken modulo the size, and the range is cut at the end.
    Modulo,
    /// The start is taken modulo the size, and the part beyond the end becomes a request of its own
    /// at byte 0.
    Wrap,
}

/// Options for the replay of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rule that determines when requests are submitted.
    pub pace: Pace,
    /// Time scale of the replay, in percent of the recorded times; 50 is twice as fast.
    pub time_percent: u32,
    /// Time over which requests with equal times are spread evenly (Tencent: one second); zero
    /// leaves their times equal.
    pub spread: Span,
    /// Place of the trace's devices on the volume.
    pub placement: Placement,
    /// Divisor of offsets (fio's `replay_scale`); at least 1.
    pub offset_divisor: u64,
    /// Treatment of ranges that do not consist of whole blocks.
    pub align: Align,
    /// Treatment of ranges beyond the end of the volume.
    pub fit: Fit,
    /// Size of the volume in bytes.
    pub size: Bytes,
}

impl Options {
    /// Options for a replay without changes, on a volume of `size`.
    #[must_use]
    pub fn unchanged(size: Bytes) -> Self {
        Self {
            pace: Pace::OpenLoop,
            time_percent: 100,
            spread: Span::ZERO,
            placement: Placement::Overlaid,
            offset_divisor: 1,
            align: Align::Keep,
            fit: Fit::Exact,
            size,
        }
    }

    /// Block size in bytes that ranges are rounded to; 1 if they are not rounded.
    fn block(&self) -> u64 {
        match self.align {
            Align::Keep => 1,
            Align::Offset(block) | Align::Outward(block) => block.0,
        }
    }
}

/// Counts of requests that were dropped, cut or split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of requests, other than flushes, without any bytes.
    pub empty: u64,
    /// Number of requests to devices that are not replayed.
    pub other_device: u64,
    /// Number of requests dropped because they start beyond the end of the volume.
    pub beyond_end: u64,
    /// Number of requests cut at the end of the volume.
    pub cut: u64,
    /// Number of requests split in two at the end of the volume.
    pub split: u64,
    /// Number of requests moved or lengthened to whole blocks.
    pub aligned: u64,
}

impl Changes {
    /// Adds the counts of another part of the same trace.
    pub fn add(&mut self, other: Self) {
        let Self { empty, other_device, beyond_end, cut, split, aligned } = other;
        self.empty += empty;
        self.other_device += other_device;
        self.beyond_end += beyond_end;
        self.cut += cut;
        self.split += split;
        self.aligned += aligned;
    }
}

/// Largest number of requests with equal times that can be spread: all of them are in memory.
const SPREAD_COUNT_MAX: usize = 1 << 22;

/// Iterator of the requests of a trace in the form in which they are replayed.
pub struct Shaped<I> {
    from: I,
    options: Options,
    changes: Changes,
    number: u64,
    /// Records to return next. With `Options::spread`, records with equal times are read together,
    /// and their times are spread over that interval.
    ready: VecDeque<Record>,
    /// First record with a later time than the records in `ready`; `None` if no such record was
    /// read.
    ahead: Option<Record>,
    /// Whether an error or the end was returned; the source is not read again.
    ended: bool,
}

impl<I: Iterator<Item = Result<Record, ReplayError>>> Shaped<I> {
    /// Applies `options` to the requests of `from`.
    ///
    /// # Panics
    /// The options are invalid: a divisor or depth of 0, or a volume without a whole block.
    #[must_use]
    pub fn new(from: I, options: Options) -> Self {
        assert!(options.offset_divisor > 0);
        assert!(options.block() > 0);
        assert!(options.size.0 >= options.block());
        assert!(!matches!(options.pace, Pace::ClosedLoop { depth: 0 }));
        Self {
            from,
            options,
            changes: Changes::default(),
            number: 0,
            ready: VecDeque::new(),
            ahead: None,
            ended: false,
        }
    }

    /// Counts of the requests so far.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// Options of the replay.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The iterator over the original requests, for the trace's devices and counts.
    #[must_use]
    pub fn from(&self) -> &I {
        &self.from
    }

    /// Reads up to the next record that has a place on the volume. Returns this record, and its
    /// second part if the record is split at the end of the volume; `None` at the end of the trace.
    fn placed(&mut self) -> Result<Option<(Record, Option<Record>)>, ReplayError> {
        while let Some(record) = self.from.next().transpose()? {
            self.number += 1;
            if let Placement::Only(device) = self.options.placement
                && device != record.device
            {
                self.changes.other_device += 1;
                continue;
            }
            let time = u128::from(record.time.0) * u128::from(self.options.time_percent) / 100;
            let time = Time(u64::try_from(time).unwrap_or(u64::MAX));
            let record = Record { time, ..record };
            if record.op == Op::Flush {
                return Ok(Some((record, None)));
            }
            if record.length == Bytes::ZERO {
                self.changes.empty += 1;
                continue;
            }
            let (offset, length) = self.aligned(&record)?;
            let (first, second) = self.fitted(offset, length)?;
            let with = |(offset, length)| Record {
                offset: Bytes(offset),
                length: Bytes(length),
                ..record
            };
            if let Some(first) = first {
                return Ok(Some((with(first), second.map(with))));
            }
        }
        Ok(None)
    }

    /// Offset and length of a record on the volume, after placement, division and rounding to whole
    /// blocks. Fails if the record exceeds the stride of its device, or ends at or above byte 2^63.
    fn aligned(&mut self, record: &Record) -> Result<(u64, u64), ReplayError> {
        let beyond = || ReplayError::Record {
            record: self.number,
            field: "offset",
            found: format!("{}", record.offset),
            expected: "a place below byte 2^63 of the volume".to_owned(),
        };
        let offset = match self.options.placement {
            Placement::SideBySide { stride } => {
                if record.offset.0.saturating_add(record.length.0) > stride.0 {
                    return Err(ReplayError::Record {
                        record: self.number,
                        field: "end of the request",
                        found: format!("byte {}", record.offset.0.saturating_add(record.length.0)),
                        expected: format!("at most the stride of {} bytes", stride.0),
                    });
                }
                let base = stride.0.checked_mul(u64::from(record.device.0)).ok_or_else(beyond)?;
                base.checked_add(record.offset.0).ok_or_else(beyond)?
            }
            Placement::Only(_) | Placement::Overlaid => record.offset.0,
        };
        let offset = offset / self.options.offset_divisor;
        let block = self.options.block();
        let start = offset - offset % block;
        let length = match self.options.align {
            Align::Keep | Align::Offset(_) => Some(record.length.0),
            Align::Outward(_) => offset
                .checked_add(record.length.0)
                .and_then(|end| end.checked_next_multiple_of(block))
                .map(|end| end - start),
        };
        let length = length.filter(|length| start.saturating_add(*length) <= i64::MAX as u64);
        let length = length.ok_or_else(beyond)?;
        self.changes.aligned += u64::from((start, length) != (offset, record.length.0));
        Ok((start, length))
    }

    /// Fits a range to the size of the volume. Returns its parts, each with offset and length: none
    /// if the range is dropped, two if it is split. With [`Fit::Exact`], a range beyond the end is
    /// an error.
    #[expect(clippy::type_complexity, reason = "two optional ranges, named where they are used")]
    fn fitted(
        &mut self,
        offset: u64,
        length: u64,
    ) -> Result<(Option<(u64, u64)>, Option<(u64, u64)>), ReplayError> {
        let size = self.options.size.0 - self.options.size.0 % self.options.block();
        if offset + length <= size {
            return Ok((Some((offset, length)), None));
        }
        match self.options.fit {
            Fit::Exact => {
                let (record, end) = (self.number, offset + length);
                Err(ReplayError::BeyondEnd { record, end, size: self.options.size.0 })
            }
            Fit::Clip if offset >= size => {
                self.changes.beyond_end += 1;
                Ok((None, None))
            }
            Fit::Clip => {
                self.changes.cut += 1;
                Ok((Some((offset, size - offset)), None))
            }
            Fit::Modulo | Fit::Wrap => {
                let offset = offset % size;
                let here = length.min(size - offset);
                let rest = length - here;
                if rest == 0 {
                    return Ok((Some((offset, here)), None));
                }
                if self.options.fit == Fit::Modulo {
                    self.changes.cut += 1;
                    return Ok((Some((offset, here)), None));
                }
                // The second part is limited to the size of the volume.
                self.changes.split += 1;
                self.changes.cut += u64::from(rest > size);
                Ok((Some((offset, here)), Some((0, rest.min(size)))))
            }
        }
    }

    /// Fills `ready`. With a spread, it gets the next records that have equal times, and a split
    /// record with a later time begins a second group. Without a spread it gets one record, or the
    /// two parts of a split one.
    fn gather(&mut self) -> Result<(), ReplayError> {
        let mut group: Vec<Record> = self.ahead.take().into_iter().collect();
        while let Some((first, second)) = self.placed()? {
            let next = group.first().is_some_and(|begun| begun.time != first.time);
            if next && second.is_none() {
                self.ahead = Some(first);
                break;
            }
            if next {
                // A split record must stay together, so the group ends before it.
                self.finish(&mut group);
            }
            group.push(first);
            group.extend(second);
            if self.options.spread == Span::ZERO {
                break;
            }
            if group.len() > SPREAD_COUNT_MAX {
                return Err(ReplayError::Record {
                    record: self.number,
                    field: "time",
                    found: format!("more than {SPREAD_COUNT_MAX} requests at one moment"),
                    expected: "fewer; choose a closed loop".to_owned(),
                });
            }
        }
        self.finish(&mut group);
        Ok(())
    }

    /// Spreads a group of records with equal times and adds them to `ready`.
    fn finish(&mut self, group: &mut Vec<Record>) {
        let count = group.len() as u128;
        let spread =
            u128::from(self.options.spread.0) * u128::from(self.options.time_percent) / 100;
        for (index, record) in group.drain(..).enumerate() {
            let shift = u64::try_from(spread * index as u128 / count).unwrap_or(u64::MAX);
            self.ready.push_back(Record { time: record.time + Span(shift), ..record });
        }
    }
}

impl<I: Iterator<Item = Result<Record, ReplayError>>> Iterator for Shaped<I> {
    type Item = Result<Record, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.ended {
            if let Err(error) = self.gather() {
                self.ended = true;
                return Some(Err(error));
            }
            self.ended = self.ready.is_empty();
        }
        self.ready.pop_front().map(Ok)
    }
}
