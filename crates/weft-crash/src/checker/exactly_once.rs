//! Checker I11, exactly once: every token, request, frame and credit ends once.
//!
//! Each token is fresh and gets one `Done`. An accepted request gets one reply, unless its client
//! left. Its frames are given back once, and its credit is returned in full. With nothing
//! outstanding the engine's own counters are zero.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::{Input, NO_CREDIT, Output, ReplyError, RequestOp, Run, Snapshot, Tag, Token};
use weft_units::ClientId;

use super::Violation;

const NAME: &str = "I11 exactly once";

/// Checker I11: all requests, commands, tokens, frames and credit that are outstanding.
#[derive(Clone, Debug, Default)]
pub struct ExactlyOnce {
    newest: Option<Token>,
    outstanding: BTreeSet<Token>,
    requests: BTreeMap<(ClientId, Tag), (RequestOp, Run, i128)>,
    commands: BTreeSet<(ClientId, Tag)>,
    /// Client frames that the engine holds, with the number of requests that use them.
    frames: BTreeMap<Run, usize>,
    gone: BTreeSet<ClientId>,
    /// Bytes of credit that the engine owes, by client: the bytes of requests sent, less the credit
    /// returned.
    credit: BTreeMap<ClientId, i128>,
}

impl ExactlyOnce {
    /// Records requests and commands, and checks that each token is done once.
    pub fn input(&mut self, input: &Input, found: &mut Vec<Violation>) {
        match input {
            Input::Client(request) => {
                let key = (request.client, request.tag);
                assert!(!self.gone.contains(&request.client), "the driver uses {key:?}, gone");
                let credit = i128::from(request.payload().0);
                let known = self.requests.insert(key, (request.op, request.frames, credit));
                assert!(known.is_none(), "the driver uses {key:?} twice");
                if request.frames.count > 0 {
                    *self.frames.entry(request.frames).or_default() += 1;
                    *self.credit.entry(request.client).or_default() += credit;
                }
            }
            Input::ClientGone(client) => {
                self.gone.insert(*client);
                self.credit.remove(client);
                self.requests.retain(|(owner, _), _| owner != client);
                self.commands.retain(|(owner, _)| owner != client);
            }
            Input::Done { token, .. } => {
                if !self.outstanding.remove(token) {
                    found.push(Violation::new(NAME, format!("{token:?} is done twice")));
                }
            }
            Input::Admin(command) => {
                self.commands.insert((command.client, command.tag));
            }
            Input::Wake => {}
        }
    }

    /// Checks that tokens are new, and that replies, frames, credit and aborts belong to something
    /// outstanding.
    pub fn output(&mut self, output: &Output, found: &mut Vec<Violation>) {
        let mut fail = |message: String| found.push(Violation::new(NAME, message));
        match output {
            Output::Submit { token, .. } | Output::Compute { token, .. } => {
                if self.newest.is_some_and(|newest| newest >= *token) {
                    fail(format!("{token:?} is not fresh"));
                }
                self.newest = Some(*token);
                self.outstanding.insert(*token);
            }
            Output::Reply { client, tag, result } => {
                if self.gone.contains(client) {
                    fail(format!("a reply to {client:?}, which is gone"));
                } else if let Some((op, run, credit)) = self.requests.remove(&(*client, *tag)) {
                    if *result == Err(ReplyError::Busy(NO_CREDIT)) {
                        // A request that is refused for lack of credit has used none.
                        *self.credit.entry(*client).or_default() -= credit;
                    }
                    if op == RequestOp::Read && result.is_ok() && run.count > 0 {
                        self.take_back(run, found);
                    }
                } else if !self.commands.remove(&(*client, *tag)) {
                    fail(format!("a reply to {client:?} {tag:?}, which is not outstanding"));
                }
            }
            Output::Release(run) => {
                self.take_back(*run, found);
            }
            Output::Credit { client, bytes } => {
                let credit = self.credit.entry(*client).or_default();
                *credit -= i128::from(bytes.0);
                if self.gone.contains(client) {
                    self.credit.remove(client);
                }
            }
            Output::Abort(token) => {
                if !self.outstanding.contains(token) {
                    fail(format!("{token:?} is aborted and not outstanding"));
                }
            }
            Output::Notice(_) => {}
        }
    }

    /// Checks that every request and command was answered, all frames and credit came back, and the
    /// engine's counters are zero.
    pub fn at_rest(&mut self, snapshot: &Snapshot, found: &mut Vec<Violation>) {
        let mut fail = |message: String| found.push(Violation::new(NAME, message));
        if let Some((client, tag)) = self.requests.keys().next() {
            fail(format!("{client:?} {tag:?} was never answered"));
        }
        if let Some((client, tag)) = self.commands.first() {
            fail(format!("command {client:?} {tag:?} was never answered"));
        }
        if let Some(run) = self.frames.keys().next() {
            fail(format!("{run:?} never came back"));
        }
        if snapshot.tokens_outstanding != 0 {
            fail(format!("{} tokens outstanding at rest", snapshot.tokens_outstanding));
        }
        if snapshot.frames_held != 0 {
            fail(format!("{} client frames held at rest", snapshot.frames_held));
        }
        let requests: usize = snapshot.volumes.iter().map(|volume| volume.requests_active).sum();
        if requests != 0 {
            fail(format!("{requests} requests active at rest"));
        }
        if let Some((client, bytes)) = snapshot.clients.first() {
            fail(format!("{client:?} still has {bytes} of credit out at rest"));
        }
        let owed = self.credit.iter().find(|(_, bytes)| **bytes != 0);
        if let Some((client, bytes)) = owed {
            fail(format!("{client:?} is owed {bytes} bytes of credit at rest"));
        }
    }

    fn take_back(&mut self, run: Run, found: &mut Vec<Violation>) {
        match self.frames.get_mut(&run) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                self.frames.remove(&run);
            }
            None => {
                let message = format!("{run:?} comes back and was not out");
                found.push(Violation::new(NAME, message));
            }
        }
    }
}
