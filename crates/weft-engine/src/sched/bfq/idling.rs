//! Idling: whether the member is kept idle for a queue that has no request at the moment.
//!
//! A source that waits for each request before it issues the next one is never backlogged, and
//! would get no larger share than others whatever its weight. The scheduler may therefore keep the
//! member idle (plugged) for up to `slice_idle` when a queue runs empty. It does so if that
//! increases throughput (on a disk, or on flash that does not queue commands, with a source that
//! continues soon and nearby), or if the share of the queue depends on it: its weight is not the
//! smallest of several, several classes compete, or its weight is raised. A queue of the smallest
//! weight loses nothing when others are served. With `idle_lowest` the member is kept idle for such
//! a queue too, as kernels before 5.2 did ("do not idle for lowest-weight queues", 2019).
//!
//! Inputs   [`IdleFacts`]
//! Answer   the reason to keep the member idle, or none
//! Knobs    `slice_idle`, `strict_guarantees`, `idle_lowest`
//! Source   io-schedulers.md §2.6

use weft_units::Span;

use super::stats::IdleReason;

/// Facts about a queue and its member that determine whether the member is kept idle for the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleFacts {
    pub(super) strict: bool,
    pub(super) slice_idle: Span,
    pub(super) rotational: bool,
    /// Whether the device itself queues commands; `None` until that is known.
    pub(super) hw_tag: Option<bool>,
    pub(super) sync: bool,
    /// Whether no process waits for the completion of the queue's requests.
    pub(super) unattended: bool,
    pub(super) seeky: bool,
    pub(super) io_bound: bool,
    pub(super) thinks_long: bool,
    pub(super) raised: bool,
    /// Whether the queue would not get its share if queues were only served in turn.
    pub(super) asymmetric: bool,
    /// Number of busy queues, including this one.
    pub(super) busy: u32,
    pub(super) raised_busy: u32,
    /// Number of requests in flight at the member, and (`own_in_driver`) number of this queue's
    /// requests among them.
    pub(super) in_driver: u32,
    pub(super) own_in_driver: u32,
}

impl IdleFacts {
    /// Reason to keep the member idle for this queue; `None` if there is none.
    pub(super) fn better_to_idle(&self) -> Option<IdleReason> {
        if self.strict {
            return Some(IdleReason::Strict);
        }
        if self.slice_idle == Span::ZERO || !self.sync || self.unattended {
            return None;
        }
        if self.boosts_throughput() {
            return Some(IdleReason::Throughput);
        }
        self.needed_for_guarantees()
    }

    /// Whether keeping the member idle for this queue increases its throughput.
    pub(super) fn boosts_throughput(&self) -> bool {
        let one_at_a_time = self.hw_tag == Some(false);
        let goes_on = !self.seeky && self.io_bound && !self.thinks_long;
        self.raised_busy == 0
            && (self.rotational && one_at_a_time || (self.rotational || one_at_a_time) && goes_on)
    }

    /// Reason why the queue would lose its share if the member were not kept idle; `None` if it
    /// would not lose it.
    pub(super) fn needed_for_guarantees(&self) -> Option<IdleReason> {
        let others_in_driver = self.in_driver >= self.own_in_driver + 4;
        if self.raised && (self.raised_busy < self.busy || others_in_driver) {
            Some(IdleReason::Raised)
        } else if self.asymmetric {
            Some(IdleReason::Asymmetric)
        } else {
            (self.busy == 1).then_some(IdleReason::Alone)
        }
    }

    /// Time for which the member is kept idle for this queue.
    pub(super) fn patience(&self) -> Span {
        if self.raised {
            self.slice_idle.max(RAISED_MIN)
        } else if self.seeky && !self.asymmetric {
            self.slice_idle.min(SEEKY_MAX)
        } else {
            self.slice_idle
        }
    }
}

const SEEKY_MAX: Span = Span::millis(2);
const RAISED_MIN: Span = Span::millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts about one of three busy queues of equal weight, on flash that queues commands.
    const FLASH: IdleFacts = IdleFacts {
        strict: false,
        slice_idle: Span::millis(8),
        rotational: false,
        hw_tag: Some(true),
        sync: true,
        unattended: false,
        seeky: false,
        io_bound: true,
        thinks_long: false,
        raised: false,
        asymmetric: false,
        busy: 3,
        raised_busy: 0,
        in_driver: 1,
        own_in_driver: 0,
    };

    #[test]
    fn the_table_of_reasons() {
        use IdleReason::*;
        let disk = IdleFacts { rotational: true, ..FLASH };
        let cases = [
            (FLASH, None),
            (IdleFacts { hw_tag: None, ..FLASH }, None),
            (IdleFacts { hw_tag: Some(false), ..FLASH }, Some(Throughput)),
            (IdleFacts { hw_tag: Some(false), seeky: true, ..FLASH }, None),
            (disk, Some(Throughput)),
            (IdleFacts { thinks_long: true, ..disk }, None),
            (IdleFacts { io_bound: false, ..disk }, None),
            (IdleFacts { seeky: true, ..disk }, None),
            (IdleFacts { seeky: true, hw_tag: Some(false), ..disk }, Some(Throughput)),
            (IdleFacts { raised_busy: 1, ..disk }, None),
            (IdleFacts { asymmetric: true, ..FLASH }, Some(Asymmetric)),
            (IdleFacts { busy: 1, ..FLASH }, Some(Alone)),
            (IdleFacts { raised: true, raised_busy: 1, ..FLASH }, Some(Raised)),
            (IdleFacts { raised: true, raised_busy: 3, ..FLASH }, None),
            (IdleFacts { raised: true, raised_busy: 3, in_driver: 4, ..FLASH }, Some(Raised)),
            (IdleFacts { asymmetric: true, sync: false, ..FLASH }, None),
            (IdleFacts { asymmetric: true, unattended: true, ..FLASH }, None),
            (IdleFacts { asymmetric: true, slice_idle: Span::ZERO, ..FLASH }, None),
            (IdleFacts { strict: true, sync: false, ..FLASH }, Some(Strict)),
        ];
        for (facts, reason) in cases {
            assert_eq!(facts.better_to_idle(), reason, "{facts:?}");
        }
    }

    #[test]
    fn statement_b26_seeky_queues_are_waited_for_briefly_and_raised_ones_longer() {
        let disk = IdleFacts { rotational: true, seeky: true, ..FLASH };
        assert_eq!(disk.patience(), Span::millis(2));
        assert_eq!(IdleFacts { seeky: false, ..disk }.patience(), Span::millis(8));
        assert_eq!(IdleFacts { asymmetric: true, ..disk }.patience(), Span::millis(8));
        assert_eq!(IdleFacts { raised: true, ..disk }.patience(), Span::millis(20));
    }
}
