//! Handshake of a client: it opens an export, describes one, or lists them all.
//!
//! Source: `proto.md` "Newstyle negotiation", "Option types", "Option reply types".

use super::{ClientConnection, ClientError, REPLY_BYTES_MAX};
use crate::buffer::{Gather, Outbox, Transition, collect, skip, transitions};
use crate::handshake::{
    ExportError, ExportInfo, InfoReply, InfoRequest, MetaRequest, len_u32, parse_name,
};
use crate::transmission::Headers;
use crate::wire::{
    self, OptionHeader, OptionReplyHeader, TransmissionFlags, client_flag, handshake_flag, option,
    option_reply,
};

/// Goal of a client's handshake: to describe an export, to list all, or to open one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Describe the export of this name, then end the session.
    Info(String),
    /// List the exports, then end the session.
    List,
    /// Open the export of this name.
    Open(String),
}

/// Session of a client up to its first request.
///
/// Bytes in, events and bytes out. The driver sends [`output`](Self::output) and passes received
/// bytes to [`input`](Self::input) until that consumes nothing and returns nothing. It stops at
/// [`HandshakeEvent::Ready`], [`HandshakeEvent::Finished`] or [`HandshakeEvent::Failed`]; bytes
/// that are left at `Ready` belong to the connection.
///
/// ```text
/// Greeting ──► Replies to EXTENDED_HEADERS, if wanted
///     │             │ unsupported
///     ├──► Replies to STRUCTURED_REPLY ──► Replies to GO or INFO ──► Closed
///     │             └► to SET_META_CONTEXT ─┘      │ unsupported  ▲
///     │                                            └► ExportName ─┘
///     └──────► Replies to LIST ──► Closed
/// ```
#[derive(Debug)]
pub struct ClientHandshake {
    goal: Goal,
    wants_structured: bool,
    wants_extended: bool,
    wants_allocation: bool,
    phase: HandshakePhase,
    gather: Gather,
    out: Outbox,
    /// Number of the option for which the client awaits replies.
    option: u32,
    /// Number of replies to `option` so far.
    reply_count: u32,
    no_zeroes: bool,
    headers: Headers,
    /// Identifier that the server gave to the context `base:allocation`; `None` if it was not
    /// selected.
    allocation: Option<u32>,
    export: Option<ExportInfo>,
    name: Option<String>,
    description: Option<String>,
    block_sizes: Option<crate::BlockSizes>,
}

impl ClientHandshake {
    /// Creates a handshake that waits for the server's greeting and will ask for structured
    /// replies.
    ///
    /// Shape    names at most 4096 bytes, without NUL
    ///
    /// # Errors
    /// [`ExportError::Text`] when the name is too long or contains NUL.
    pub fn new(goal: Goal) -> Result<Self, ExportError> {
        if let Goal::Info(name) | Goal::Open(name) = &goal {
            ExportInfo::new(name.as_str(), 0)?;
        }
        Ok(Self {
            goal,
            wants_structured: true,
            wants_extended: false,
            wants_allocation: false,
            phase: HandshakePhase::Greeting,
            gather: Gather::new(),
            out: Outbox::default(),
            option: 0,
            reply_count: 0,
            no_zeroes: false,
            headers: Headers::Simple,
            allocation: None,
            export: None,
            name: None,
            description: None,
            block_sizes: None,
        })
    }

    /// Makes the client ask for no structured replies. The server then sends simple replies only,
    /// unless extended headers are negotiated, which include structured replies.
    #[must_use]
    pub fn with_simple_replies(mut self) -> Self {
        self.wants_structured = false;
        self
    }

    /// Makes the client ask for extended headers first. With these, requests without payload may be
    /// longer than 4 GiB. A server may decline.
    #[must_use]
    pub fn with_extended_headers(mut self) -> Self {
        self.wants_extended = true;
        self
    }

    /// Makes the client ask for the metadata context `base:allocation` of the export that it opens.
    /// The context describes the export's holes. A server may decline.
    #[must_use]
    pub fn with_allocation(mut self) -> Self {
        self.wants_allocation = true;
        self
    }

    /// Consumes bytes from the server. Returns the number consumed, and the event if there is one.
    ///
    /// The driver repeats the call with the rest, and with further bytes, until it returns `(0,
    /// None)`.
    #[must_use = "an event that is not looked at is a request or a reply lost"]
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Option<HandshakeEvent>) {
        transitions(bytes, |rest| self.step(rest))
    }

    /// Bytes that wait to be sent. May grow after `input`.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.out.pending()
    }

    /// Removes the first `count` bytes of [`output`](Self::output), which were sent.
    ///
    /// # Panics
    /// Panics when the output is shorter.
    pub fn advance_output(&mut self, count: usize) {
        self.out.advance(count);
    }

    /// Heap memory that the handshake owns, in bytes, without the export's name and description.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let data = match &self.phase {
            HandshakePhase::ReplyData { data, .. } => data.capacity(),
            HandshakePhase::Closed
            | HandshakePhase::ExportName
            | HandshakePhase::ExportNameZeroes { .. }
            | HandshakePhase::Greeting
            | HandshakePhase::ReplyHeader => 0,
        };
        data + self.out.memory_bytes()
    }

    fn step(&mut self, rest: &mut &[u8]) -> HandshakeStep {
        match &mut self.phase {
            HandshakePhase::Greeting => {
                let Some(greeting) = self.gather.next(rest) else {
                    return HandshakeStep::NeedInput;
                };
                self.on_greeting(&greeting)
            }
            HandshakePhase::ReplyHeader => {
                let Some(bytes) = self.gather.next(rest) else { return HandshakeStep::NeedInput };
                match OptionReplyHeader::parse(&bytes) {
                    Ok(header) => self.on_reply_header(header),
                    Err(found) => self.fail(ClientError::Magic { found }),
                }
            }
            HandshakePhase::ReplyData { header, data } => {
                if !collect(rest, data, header.len) {
                    return HandshakeStep::NeedInput;
                }
                let (kind, data) = (header.kind, std::mem::take(data));
                self.phase = HandshakePhase::ReplyHeader;
                match self.on_reply(kind, &data) {
                    Ok(step) => step,
                    Err(what) => self.fail(ClientError::Malformed { what }),
                }
            }
            HandshakePhase::ExportName => {
                let Some(reply) = self.gather.next::<10>(rest) else {
                    return HandshakeStep::NeedInput;
                };
                let flags = TransmissionFlags(wire::u16_at(&reply, 8));
                let (Goal::Info(name) | Goal::Open(name)) = &self.goal else {
                    return self.fail(ClientError::Malformed { what: "unexpected export" });
                };
                let export = ExportInfo::received(name.clone(), wire::u64_at(&reply, 0), flags);
                self.export = Some(export);
                let zeroes = if self.no_zeroes { 0 } else { wire::EXPORT_NAME_ZEROES };
                self.phase = HandshakePhase::ExportNameZeroes { remaining: len_u32(zeroes) };
                HandshakeStep::Again
            }
            HandshakePhase::ExportNameZeroes { remaining } => {
                if !skip(rest, remaining) {
                    return HandshakeStep::NeedInput;
                }
                self.finish_export()
            }
            // Bytes after `Ready` belong to the connection; bytes after another end are ignored.
            HandshakePhase::Closed => HandshakeStep::NeedInput,
        }
    }

    fn on_greeting(&mut self, greeting: &[u8; 18]) -> HandshakeStep {
        for (at, expected) in [(0, wire::NBDMAGIC), (8, wire::IHAVEOPT)] {
            let found = wire::u64_at(greeting, at);
            if found != expected {
                return self.fail(ClientError::Magic { found });
            }
        }
        let flags = wire::u16_at(greeting, 16);
        if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
            return self.fail(ClientError::NotFixedNewstyle);
        }
        self.no_zeroes = flags & handshake_flag::NO_ZEROES != 0;
        let no_zeroes = if self.no_zeroes { client_flag::NO_ZEROES } else { 0 };
        self.out.push(&(client_flag::FIXED_NEWSTYLE | no_zeroes).to_be_bytes());
        if self.goal == Goal::List {
            self.send(option::LIST, &[]);
        } else if self.wants_extended {
            self.send(option::EXTENDED_HEADERS, &[]);
        } else if self.wants_structured {
            self.send(option::STRUCTURED_REPLY, &[]);
        } else {
            self.send_goal();
        }
        HandshakeStep::Again
    }

    fn on_reply_header(&mut self, header: OptionReplyHeader) -> HandshakeStep {
        if header.option != self.option {
            return self.fail(ClientError::Malformed { what: "reply to another option" });
        }
        if header.len > REPLY_BYTES_MAX {
            return self.fail(ClientError::ReplyTooLong { len: header.len.into() });
        }
        self.reply_count += 1;
        if self.reply_count > REPLY_COUNT_MAX {
            return self.fail(ClientError::Malformed { what: "replies without end" });
        }
        self.phase = HandshakePhase::ReplyData { header, data: Vec::new() };
        HandshakeStep::Again
    }

    fn on_reply(&mut self, kind: u32, data: &[u8]) -> Result<HandshakeStep, &'static str> {
        let is_error = kind & option_reply::ERROR_BIT != 0;
        let headers = match self.option {
            option::EXTENDED_HEADERS => Some(Headers::Extended),
            option::STRUCTURED_REPLY => Some(Headers::Structured),
            _ => None,
        };
        if let Some(headers) = headers.filter(|_| is_error || kind == option_reply::ACK) {
            if is_error && headers == Headers::Extended && self.wants_structured {
                self.send(option::STRUCTURED_REPLY, &[]);
                return Ok(HandshakeStep::Again);
            }
            if !is_error {
                self.headers = headers;
            }
            match &self.goal {
                Goal::Open(name) if !is_error && self.wants_allocation => {
                    let data = MetaRequest::encode(name);
                    self.send(option::SET_META_CONTEXT, &data);
                }
                Goal::Info(_) | Goal::List | Goal::Open(_) => self.send_goal(),
            }
            return Ok(HandshakeStep::Again);
        }
        if self.option == option::SET_META_CONTEXT {
            return self.on_meta_reply(kind, data);
        }
        if is_error {
            return Ok(self.on_error_reply(kind, data));
        }
        match (self.option, kind) {
            (option::LIST, option_reply::SERVER) => {
                let (name, description) = parse_list_entry(data)?;
                let (name, description) = (name.to_owned(), printable(description));
                Ok(HandshakeStep::Event(HandshakeEvent::Listed { name, description }))
            }
            (option::LIST, option_reply::ACK) => {
                Ok(self.leave(HandshakeEvent::Finished { export: None }))
            }
            (option::INFO | option::GO, option_reply::INFO) => {
                match InfoReply::parse(data)? {
                    InfoReply::BlockSize(block_sizes) => self.block_sizes = Some(block_sizes),
                    InfoReply::Description(text) => {
                        self.description = Some(printable(text.as_bytes()));
                    }
                    InfoReply::Export { size, flags } => {
                        self.export = Some(ExportInfo::received(String::new(), size, flags));
                    }
                    InfoReply::Name(name) => self.name = Some(name.to_owned()),
                    InfoReply::Unknown => {}
                }
                Ok(HandshakeStep::Again)
            }
            (option::INFO | option::GO, option_reply::ACK) => Ok(self.finish_export()),
            _ => Err("unexpected type of reply"),
        }
    }

    fn on_meta_reply(&mut self, kind: u32, data: &[u8]) -> Result<HandshakeStep, &'static str> {
        let is_error = kind & option_reply::ERROR_BIT != 0;
        if kind == option_reply::META_CONTEXT {
            let (id, name) = data.split_first_chunk().ok_or("context reply too short")?;
            if name != wire::BASE_ALLOCATION.as_bytes() || self.allocation.is_some() {
                return Err("a context that was not asked for");
            }
            self.allocation = Some(u32::from_be_bytes(*id));
        } else if is_error || kind == option_reply::ACK {
            if is_error {
                self.allocation = None;
            }
            self.send_goal();
        } else {
            return Err("unexpected type of reply");
        }
        Ok(HandshakeStep::Again)
    }

    fn on_error_reply(&mut self, kind: u32, message: &[u8]) -> HandshakeStep {
        // The server predates NBD_OPT_GO. The older option cannot report errors, but works.
        if self.option == option::GO
            && kind == option_reply::ERR_UNSUP
            && let Goal::Open(name) = &self.goal
        {
            let name = name.clone();
            self.send(option::EXPORT_NAME, name.as_bytes());
            self.phase = HandshakePhase::ExportName;
            return HandshakeStep::Again;
        }
        let error = ClientError::Refused { option: self.option, kind, message: printable(message) };
        self.leave(HandshakeEvent::Failed(error))
    }

    /// Ends the negotiation of the export. Returns the event that reports its end: a failure if the
    /// server has not described the export.
    fn finish_export(&mut self) -> HandshakeStep {
        let Some(mut export) = self.export.take() else {
            let what = "success without size and flags of the export";
            return self.fail(ClientError::Malformed { what });
        };
        if let Goal::Info(name) | Goal::Open(name) = &self.goal {
            export.rename(self.name.take().unwrap_or_else(|| name.clone()));
        }
        if let Some(description) = self.description.take() {
            export.describe(description);
        }
        if let Some(block_sizes) = self.block_sizes.take() {
            export = export.with_block_sizes(block_sizes);
        }
        if !export.flags().contains(TransmissionFlags::HAS_FLAGS) {
            return self.fail(ClientError::Malformed { what: "transmission flags without bit 0" });
        }
        if let Goal::Info(_) = self.goal {
            return self.leave(HandshakeEvent::Finished { export: Some(export) });
        }
        self.phase = HandshakePhase::Closed;
        if self.allocation.is_some() {
            export = export.with_allocation();
        }
        let connection = ClientConnection::new(export, self.headers, self.allocation);
        HandshakeStep::Event(HandshakeEvent::Ready(connection))
    }

    fn send_goal(&mut self) {
        let (option, name) = match &self.goal {
            Goal::List => return self.send(option::LIST, &[]),
            Goal::Info(name) => (option::INFO, name),
            Goal::Open(name) => (option::GO, name),
        };
        let data =
            InfoRequest { name, wants_name: true, wants_description: true, wants_block_size: true }
                .encode();
        self.send(option, &data);
    }

    fn send(&mut self, option: u32, data: &[u8]) {
        self.out.push(&OptionHeader { option, len: len_u32(data.len()) }.encode());
        self.out.push(data);
        self.option = option;
        self.reply_count = 0;
        self.phase = HandshakePhase::ReplyHeader;
    }

    /// Ends the session with `NBD_OPT_ABORT`, as a client must unless the server violates the
    /// protocol, and reports `event`.
    fn leave(&mut self, event: HandshakeEvent) -> HandshakeStep {
        self.send(option::ABORT, &[]);
        self.phase = HandshakePhase::Closed;
        HandshakeStep::Event(event)
    }

    fn fail(&mut self, error: ClientError) -> HandshakeStep {
        self.phase = HandshakePhase::Closed;
        HandshakeStep::Event(HandshakeEvent::Failed(error))
    }
}

/// Event that the handshake reports to its driver: an export of the server's list, or the end of
/// the handshake.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// The goal cannot be reached. Send the output if there is any, then disconnect.
    Failed(ClientError),
    /// The goal is reached and the session has ended. Send the output, then disconnect.
    Finished {
        /// The export, for [`Goal::Info`]; `None` for [`Goal::List`].
        export: Option<ExportInfo>,
    },
    /// One export of the server's list, for [`Goal::List`].
    Listed {
        /// Name by which clients open the export.
        name: String,
        /// Description for people, possibly empty.
        description: String,
    },
    /// The export of [`Goal::Open`] is open.
    Ready(ClientConnection),
}

#[derive(Debug)]
enum HandshakePhase {
    Closed,
    ExportName,
    ExportNameZeroes { remaining: u32 },
    Greeting,
    ReplyData { header: OptionReplyHeader, data: Vec<u8> },
    ReplyHeader,
}

type HandshakeStep = Transition<HandshakeEvent>;

/// Parses an entry of the list of exports: name and description. The error says what is malformed.
fn parse_list_entry(data: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    if data.len() < 4 {
        return Err("list entry too short");
    }
    let name_len = wire::u32_at(data, 0) as usize;
    if name_len > data.len() - 4 {
        return Err("list entry shorter than its name");
    }
    let (name, description) = data[4..].split_at(name_len);
    Ok((parse_name(name)?, description))
}

/// Text from the server that is safe to print: cut to 4096 bytes, and with control characters
/// replaced.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(wire::STRING_BYTES_MAX)])
        .chars()
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .collect()
}

/// Largest number of replies to one option that the client accepts: enough for a list of 65,535
/// exports and the reply that ends it.
const REPLY_COUNT_MAX: u32 = 1 << 16;
