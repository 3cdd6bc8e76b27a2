//! Use of a simulated host's volumes by processes: idle time, and threads that sleep until a disk's
//! queue has a token (`nr_requests`) for their request.

use std::collections::VecDeque;

use weft_units::{Span, Time, VolumeId};

use super::super::{Pid, Woken};
use super::Host;

/// State of one volume that depends on its processes.
#[derive(Clone, Debug, Default)]
pub(super) struct VolumeUse {
    /// Number of requests to the volume that are not answered.
    outstanding: u32,
    /// Time of the last answer, since which no request is outstanding; valid only while none is.
    idle_since: Time,
    /// Sum of the times without requests, except for the present one since `idle_since`.
    idle: Span,
    /// Sleeping threads, each with the number of ended waits for tokens at which the thread is
    /// woken.
    sleepers: VecDeque<(u64, Pid)>,
}

impl VolumeUse {
    /// Counts a request as outstanding. The first one ends the idle time of the volume.
    pub(super) fn asked(&mut self, now: Time) {
        if self.outstanding == 0 {
            self.idle.0 += now.since(self.idle_since).0;
        }
        self.outstanding += 1;
    }

    /// Removes an answered request from the count. After the last one the volume is idle.
    pub(super) fn answered(&mut self, now: Time) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.idle_since = now;
        }
    }
}

/// A request's wait for a token of its disk's queue, during which its thread sleeps.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct TokenWait {
    volume: VolumeId,
    /// Number of this wait, counted from 1 over all waits for tokens of the volume. The wait has
    /// ended once this many waits of the volume have ended.
    place: u64,
}

impl Host {
    /// Time from the start to `at`, which is not in the past, during which a volume had no request.
    #[must_use]
    pub fn idle(&self, volume: VolumeId, at: Time) -> Span {
        let VolumeUse { outstanding, idle_since, idle, .. } = self.volumes[volume.index()];
        let since = if outstanding == 0 { at.since(idle_since).0 } else { 0 };
        Span(idle.0 + since)
    }

    /// Number of requests to a volume that have waited for a token, or still wait.
    pub(in crate::machine) fn token_waits(&self, volume: VolumeId) -> u64 {
        self.engine.token_waits(volume).begun
    }

    /// Wait of a thread for a token, at the end of which the process is woken. `None` if threads of
    /// the machine do not sleep for tokens, or if no request to the volume still waits for a token
    /// since `before`, the result of an earlier [`Host::token_waits`].
    pub(in crate::machine) fn wait_for_token(
        &mut self,
        pid: Pid,
        volume: VolumeId,
        before: u64,
    ) -> Option<TokenWait> {
        let place = self.token_waits(volume);
        let wait = TokenWait { volume, place };
        let sleeps = self.files().sleeps_for_token && place > before;
        let waits = sleeps && self.waits_for_token(wait);
        waits.then(|| {
            self.volumes[volume.index()].sleepers.push_back((place, pid));
            wait
        })
    }

    /// Whether a wait for a token still goes on.
    pub(in crate::machine) fn waits_for_token(&self, wait: TokenWait) -> bool {
        self.engine.token_waits(wait.volume).ended < wait.place
    }

    /// Wakes the threads that no longer have to wait for a token.
    pub(super) fn wake_with_tokens(&mut self) {
        for (volume, id) in self.volumes.iter_mut().zip(0..) {
            if volume.sleepers.is_empty() {
                continue;
            }
            let ended = self.engine.token_waits(VolumeId(id)).ended;
            while let Some((place, pid)) = volume.sleepers.front().copied() {
                if place > ended {
                    break;
                }
                volume.sleepers.pop_front();
                self.ready.push_back((pid, Woken::Unblocked));
            }
        }
    }
}
