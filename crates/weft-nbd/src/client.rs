//! How does a client take part in a session?
//!
//! [`ClientHandshake`] reaches one [`Goal`]: open an export, describe one, or list them all. It ends
//! by handing over a [`ClientConnection`], or by leaving. [`ClientConnection`] encodes requests,
//! remembers them, and checks every reply against them.
//!
//! Faults expected from the peer: any bytes in any pieces, replies to nothing, data outside the
//! range asked for, data twice, success without all the data, lists without end. Each ends the
//! session with a [`ClientError`]; the caller never takes payload that it has not asked for.
//!
//! Source: `proto.md` "Protocol phases", "Option reply types", "Structured reply types".

use std::collections::BTreeMap;
use std::ops::Range;

use crate::buffer::{Gather, Outbox, collect, skip};
use crate::handshake::{
    ExportError, ExportInfo, InfoReply, InfoRequest, MetaRequest, len_u32, parse_name,
};
use crate::transmission::{Extent, Headers, Op, Reply, RequestBytes, Terms, Verdict};
use crate::wire::{
    self, ChunkHeader, NbdError, OptionHeader, OptionReplyHeader, RequestHeader, SimpleReply,
    TransmissionFlags, chunk, client_flag, command, handshake_flag, option, option_reply,
};

/// What a handshake is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Describe the export of this name, then leave.
    Info(String),
    /// List the exports, then leave.
    List,
    /// Open the export of this name.
    Open(String),
}

/// A session up to the first request, seen from the client.
///
/// Bytes in, events and bytes out. The driver sends [`output`](Self::output), gives what it receives
/// to [`input`](Self::input) until that takes nothing and returns nothing, and stops at
/// [`HandshakeEvent::Ready`], [`HandshakeEvent::Finished`] or [`HandshakeEvent::Failed`]; bytes left
/// over at `Ready` belong to the connection.
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
    /// The option whose replies are awaited.
    option: u32,
    /// Replies to that option so far.
    reply_count: u32,
    no_zeroes: bool,
    headers: Headers,
    /// The server's number for `base:allocation`.
    allocation: Option<u32>,
    export: Option<ExportInfo>,
    name: Option<String>,
    description: Option<String>,
    block_sizes: Option<crate::BlockSizes>,
}

impl ClientHandshake {
    /// A handshake that waits for the server's greeting and will ask for structured replies.
    ///
    /// Shape    names at most 4096 bytes, without NUL
    ///
    /// # Errors
    /// [`ExportError::Text`] when the name breaks the limits.
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

    /// The same, content with simple replies.
    #[must_use]
    pub fn with_simple_replies(mut self) -> Self {
        self.wants_structured = false;
        self
    }

    /// The same, asking for extended headers first: requests without payload may then be longer than
    /// 4 GiB. A server may decline.
    #[must_use]
    pub fn with_extended_headers(mut self) -> Self {
        self.wants_extended = true;
        self
    }

    /// The same, asking an export that is opened to say where its holes are. It may decline.
    #[must_use]
    pub fn with_allocation(mut self) -> Self {
        self.wants_allocation = true;
        self
    }

    /// Takes bytes from the server: how many of them, and what they mean.
    ///
    /// Call it again with the rest, and with what arrives, until it returns `(0, None)`.
    #[must_use = "an event that is not looked at is a request or a reply lost"]
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Option<HandshakeEvent>) {
        let mut rest = bytes;
        let event = loop {
            match self.step(&mut rest) {
                HandshakeStep::Again => {}
                HandshakeStep::Event(event) => break Some(event),
                HandshakeStep::NeedInput => break None,
            }
        };
        (bytes.len() - rest.len(), event)
    }

    /// Bytes waiting to be sent. May grow after `input`.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.out.pending()
    }

    /// The first `count` bytes of [`output`](Self::output) have been sent.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn advance_output(&mut self, count: usize) {
        self.out.advance(count);
    }

    /// Memory held outside the value itself, in bytes, export name and description apart.
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
            // What follows `Ready` belongs to the connection, what follows an end to nobody.
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
        // A server from before NBD_OPT_GO: the old option cannot report errors, but works.
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

    /// All facts about the export are here.
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

    /// Ends the session politely, as a client must while the server keeps to the protocol.
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

/// What a server said during the handshake.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// The goal is out of reach. Send the output if there is some, then hang up.
    Failed(ClientError),
    /// The goal is reached and the session over. Send the output, then hang up.
    Finished {
        /// The export of [`Goal::Info`].
        export: Option<ExportInfo>,
    },
    /// One export of [`Goal::List`].
    Listed {
        /// The name to ask for.
        name: String,
        /// A text for people, possibly empty.
        description: String,
    },
    /// The export of [`Goal::Open`] is open.
    Ready(ClientConnection),
}

/// A session from the first request on, seen from the client.
///
/// The driver
///
/// 1. asks [`request`](Self::request) for the bytes of a request and sends them, after a write
///    followed by the payload;
/// 2. gives what it received to [`input`](Self::input) until that takes nothing and returns nothing;
/// 3. after [`ClientEvent::Data`], takes the payload itself, from its receive buffer or straight from
///    the socket into its own memory, and says so with [`payload_consumed`](Self::payload_consumed),
///    then calls `input` again even when it has no more bytes: the end of a request may be waiting.
#[derive(Debug)]
pub struct ClientConnection {
    export: ExportInfo,
    terms: Terms,
    /// The server's number for `base:allocation`.
    allocation: Option<u32>,
    open: BTreeMap<u64, OpenRequest>,
    open_max: usize,
    phase: Phase,
    gather: Gather,
    /// A request that ended together with its payload.
    ended: Option<ClientEvent>,
    leaving: bool,
}

impl ClientConnection {
    fn new(export: ExportInfo, headers: Headers, allocation: Option<u32>) -> Self {
        let terms = Terms {
            size: export.size(),
            flags: export.flags(),
            block_sizes: export.block_sizes(),
            headers,
            allocation: allocation.is_some(),
        };
        Self {
            export,
            terms,
            allocation,
            open: BTreeMap::new(),
            open_max: OPEN_COUNT_MAX,
            phase: Phase::Reply,
            gather: Gather::new(),
            ended: None,
            leaving: false,
        }
    }

    /// The export that was opened.
    #[must_use]
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Whether structured replies were agreed on, with extended headers or without.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        self.terms.headers.are_structured()
    }

    /// Whether extended headers were agreed on.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.terms.headers.are_extended()
    }

    /// Requests sent and not yet answered.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The bytes of a request, which is from now on expected to be answered. After an
    /// [`Op::Write`], send exactly `len` bytes of payload.
    ///
    /// Shape    `cookie` unlike those of all open requests; zero bytes long only for [`Op::Flush`]
    ///
    /// # Errors
    /// [`RequestError::Refused`] when the export does not take such a request, with what a server
    /// would answer; [`RequestError::CookieInUse`]; [`RequestError::TooManyOpen`] at 4096;
    /// [`RequestError::Closed`] after the end of the session. Nothing changes then.
    pub fn request(&mut self, cookie: u64, op: Op) -> Result<RequestBytes, RequestError> {
        if self.leaving || matches!(self.phase, Phase::Closed) {
            return Err(RequestError::Closed);
        }
        let header = op.header(cookie);
        match self.terms.judge(&header) {
            Verdict::Perform(judged) => debug_assert_eq!(judged, op),
            Verdict::Refuse(error) => return Err(RequestError::Refused(error)),
            Verdict::Disconnect
            | Verdict::Nothing(Reply::Done | Reply::Hole { .. } | Reply::Read { .. }) => {
                return Err(RequestError::Refused(NbdError::Invalid));
            }
            Verdict::Nothing(Reply::Error(error)) => return Err(RequestError::Refused(error)),
        }
        if self.open.contains_key(&cookie) {
            return Err(RequestError::CookieInUse);
        }
        if self.open.len() >= self.open_max {
            return Err(RequestError::TooManyOpen);
        }
        let (error, covered, extents_told) = (None, Coverage::default(), false);
        self.open.insert(cookie, OpenRequest { op, error, covered, extents_told });
        Ok(RequestBytes::new(header, self.is_extended()))
    }

    /// The bytes that end the session; to be sent when every request is answered. There is no
    /// reply: the server hangs up.
    ///
    /// Source   proto.md "Request types", `NBD_CMD_DISC`
    #[must_use = "the bytes are to be sent"]
    pub fn disconnect(&mut self) -> RequestBytes {
        self.leaving = true;
        let header =
            RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
        RequestBytes::new(header, self.is_extended())
    }

    /// Takes bytes from the server: how many of them, and what they mean.
    ///
    /// Call it again with the rest, and with what arrives, until it returns `(0, None)`.
    ///
    /// # Panics
    /// While [`payload_remaining`](Self::payload_remaining) is not zero: those bytes are the driver's.
    #[must_use = "an event that is not looked at is a request or a reply lost"]
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Option<ClientEvent>) {
        assert_eq!(self.payload_remaining(), 0, "the payload of a read was not taken");
        if let Some(event) = self.ended.take() {
            return (0, Some(event));
        }
        let mut rest = bytes;
        let event = loop {
            match self.step(&mut rest) {
                Ok(Step::Again) => {}
                Ok(Step::Event(event)) => break Some(event),
                Ok(Step::NeedInput) => break None,
                Err(error) => {
                    self.phase = Phase::Closed;
                    break Some(ClientEvent::Close(error));
                }
            }
        };
        (bytes.len() - rest.len(), event)
    }

    /// How many of the next bytes from the server are payload of the last [`ClientEvent::Data`].
    #[must_use]
    pub fn payload_remaining(&self) -> usize {
        match self.phase {
            Phase::Payload { remaining, .. } => remaining as usize,
            Phase::Chunk { .. }
            | Phase::Closed
            | Phase::Extents { .. }
            | Phase::Reply
            | Phase::Skip { .. } => 0,
        }
    }

    /// The driver has taken the next `count` bytes of payload.
    ///
    /// # Panics
    /// When `count` is more than [`payload_remaining`](Self::payload_remaining).
    pub fn payload_consumed(&mut self, count: usize) {
        let remaining = self.payload_remaining();
        assert!(count <= remaining, "took {count} bytes of {remaining} bytes of payload");
        if let Phase::Payload { cookie, done, .. } = self.phase {
            if count < remaining {
                self.phase = Phase::Payload { remaining: len_u32(remaining - count), cookie, done };
                return;
            }
            self.phase = Phase::Reply;
            if done {
                self.ended = Some(self.end(cookie).unwrap_or_else(|error| {
                    self.phase = Phase::Closed;
                    ClientEvent::Close(error)
                }));
            }
        }
    }

    fn step(&mut self, rest: &mut &[u8]) -> Result<Step, ClientError> {
        match &mut self.phase {
            Phase::Reply => {
                if !self.gather.fill(rest, 4) {
                    return Ok(Step::NeedInput);
                }
                match u32::from_be_bytes(self.gather.peek()) {
                    wire::SIMPLE_REPLY_MAGIC if !self.is_extended() => {
                        if !self.gather.fill(rest, SimpleReply::BYTES) {
                            return Ok(Step::NeedInput);
                        }
                        let reply = SimpleReply::parse(&self.gather.take());
                        self.on_simple_reply(reply)
                    }
                    wire::EXTENDED_CHUNK_MAGIC if self.is_extended() => {
                        if !self.gather.fill(rest, ChunkHeader::EXTENDED_BYTES) {
                            return Ok(Step::NeedInput);
                        }
                        let (header, offset) = ChunkHeader::parse_extended(&self.gather.take())
                            .map_err(|len| ClientError::ReplyTooLong { len })?;
                        if self.find(header.cookie)?.op.header(0).offset != offset {
                            let what = "offset of a reply unlike that of its request";
                            return Err(ClientError::Malformed { what });
                        }
                        self.on_chunk(header)
                    }
                    wire::CHUNK_MAGIC if self.terms.headers == Headers::Structured => {
                        if !self.gather.fill(rest, ChunkHeader::BYTES) {
                            return Ok(Step::NeedInput);
                        }
                        let header = ChunkHeader::parse(&self.gather.take());
                        self.on_chunk(header)
                    }
                    found => Err(ClientError::Magic { found: u64::from(found) }),
                }
            }
            Phase::Chunk { header, prefix_len } => {
                if !self.gather.fill(rest, usize::from(*prefix_len)) {
                    return Ok(Step::NeedInput);
                }
                let header = *header;
                self.on_chunk_prefix(header)
            }
            Phase::Extents { header, data } => {
                if !collect(rest, data, header.len) {
                    return Ok(Step::NeedInput);
                }
                let (header, data) = (*header, std::mem::take(data));
                self.on_extents(header, &data)
            }
            Phase::Skip { remaining, cookie, done } => {
                if !skip(rest, remaining) {
                    return Ok(Step::NeedInput);
                }
                let (cookie, done) = (*cookie, *done);
                self.end_chunk(cookie, done)
            }
            // Not reached from `input`, which has asserted that there is no payload to take.
            Phase::Payload { .. } => Ok(Step::NeedInput),
            Phase::Closed => {
                *rest = &[];
                Ok(Step::NeedInput)
            }
        }
    }

    fn on_simple_reply(&mut self, reply: SimpleReply) -> Result<Step, ClientError> {
        let SimpleReply { error, cookie } = reply;
        let structured = self.is_structured();
        let request = self.find(cookie)?;
        if let Op::Read { offset, len, .. } = request.op {
            if structured {
                return Err(ClientError::Malformed { what: "simple reply to a read" });
            }
            if error == 0 {
                request.covered.add(0..len)?;
                self.phase = Phase::Payload { remaining: len, cookie, done: true };
                return Ok(Step::Event(ClientEvent::Data { cookie, offset, len }));
            }
        }
        if error != 0 {
            request.error = Some(NbdError::from_code(error));
        }
        self.end(cookie).map(Step::Event)
    }

    fn on_chunk(&mut self, header: ChunkHeader) -> Result<Step, ClientError> {
        let ChunkHeader { flags, kind, cookie, len } = header;
        let done = flags & chunk::DONE != 0;
        let asked = matches!(self.find(cookie)?.op, Op::BlockStatus { .. });
        let what = match kind {
            chunk::NONE if len == 0 && done => return self.end_chunk(cookie, done),
            chunk::NONE => "end chunk with data or without end mark",
            chunk::OFFSET_DATA if len > 8 => return self.expect_prefix(header, 8),
            chunk::OFFSET_DATA => "data chunk without data",
            chunk::OFFSET_HOLE if len == 12 => return self.expect_prefix(header, 12),
            chunk::OFFSET_HOLE => "hole chunk of the wrong length",
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT if !asked => {
                "extents for a request that did not ask for them"
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT
                if (kind == chunk::BLOCK_STATUS_EXT) != self.is_extended() =>
            {
                "extents of the other headers"
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT if len > REPLY_BYTES_MAX => {
                return Err(ClientError::ReplyTooLong { len: len.into() });
            }
            chunk::BLOCK_STATUS if len >= 12 && len % 8 == 4 => {
                self.phase = Phase::Extents { header, data: Vec::new() };
                return Ok(Step::Again);
            }
            chunk::BLOCK_STATUS_EXT if len >= 24 && len % 16 == 8 => {
                self.phase = Phase::Extents { header, data: Vec::new() };
                return Ok(Step::Again);
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => "extents of the wrong length",
            _ if kind & chunk::ERROR_BIT == 0 => "unknown type of chunk",
            _ if len > REPLY_BYTES_MAX => {
                return Err(ClientError::ReplyTooLong { len: len.into() });
            }
            _ if len >= 6 => return self.expect_prefix(header, 6),
            _ => "error chunk too short",
        };
        Err(ClientError::Malformed { what })
    }

    fn expect_prefix(&mut self, header: ChunkHeader, prefix_len: u8) -> Result<Step, ClientError> {
        self.phase = Phase::Chunk { header, prefix_len };
        Ok(Step::Again)
    }

    fn on_chunk_prefix(&mut self, header: ChunkHeader) -> Result<Step, ClientError> {
        let ChunkHeader { flags, kind, cookie, len } = header;
        let done = flags & chunk::DONE != 0;
        self.phase = Phase::Reply;
        match kind {
            chunk::OFFSET_DATA => {
                let offset = u64::from_be_bytes(self.gather.take());
                let len = len - 8;
                self.cover(cookie, offset, len)?;
                self.phase = Phase::Payload { remaining: len, cookie, done };
                Ok(Step::Event(ClientEvent::Data { cookie, offset, len }))
            }
            chunk::OFFSET_HOLE => {
                let prefix: [u8; 12] = self.gather.take();
                let (offset, len) = (wire::u64_at(&prefix, 0), wire::u32_at(&prefix, 8));
                self.cover(cookie, offset, len)?;
                if done {
                    self.ended = Some(self.end(cookie)?);
                }
                Ok(Step::Event(ClientEvent::Hole { cookie, offset, len }))
            }
            _ => {
                let prefix: [u8; 6] = self.gather.take();
                let (code, text_len) = (wire::u32_at(&prefix, 0), wire::u16_at(&prefix, 4));
                let suffix_len = if kind == chunk::ERROR_OFFSET { 8 } else { 0 };
                if u32::from(text_len) + 6 + suffix_len > len {
                    return Err(ClientError::Malformed { what: "error text beyond its chunk" });
                }
                self.find(cookie)?.error.get_or_insert(NbdError::from_code(code));
                self.phase = Phase::Skip { remaining: len - 6, cookie, done };
                Ok(Step::Again)
            }
        }
    }

    /// Extents have come: of the context that was agreed on, once, none empty, and as many as asked for.
    fn on_extents(&mut self, header: ChunkHeader, data: &[u8]) -> Result<Step, ClientError> {
        let ChunkHeader { flags, cookie, kind, .. } = header;
        self.phase = Phase::Reply;
        let malformed = |what| ClientError::Malformed { what };
        let context = self.allocation;
        let request = self.find(cookie)?;
        let Op::BlockStatus { len: asked, one, .. } = request.op else {
            return Err(malformed("extents that were not expected"));
        };
        if context != Some(wire::u32_at(data, 0)) || request.extents_told {
            return Err(malformed("extents of a context that was not asked for"));
        }
        request.extents_told = true;
        let extents: Vec<Extent> = if kind == chunk::BLOCK_STATUS_EXT {
            let (pairs, _) = data[8..].as_chunks::<16>();
            if pairs.len() != wire::u32_at(data, 4) as usize {
                return Err(malformed("another number of extents than it says"));
            }
            pairs.iter().map(Extent::parse_extended).collect()
        } else {
            let (pairs, _) = data[4..].as_chunks::<8>();
            pairs.iter().map(Extent::parse).collect()
        };
        let (last, before) = extents.split_last().ok_or(malformed("no extents"))?;
        let before = before.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.len));
        let before = before.ok_or(malformed("extents beyond the range asked for"))?;
        if extents.iter().any(|extent| extent.len == 0) {
            return Err(malformed("an empty extent"));
        }
        // Only the last may go on beyond what was asked, and an only one may not.
        if before >= asked || (one && (extents.len() > 1 || last.len > asked)) {
            return Err(malformed("extents beyond the range asked for"));
        }
        if flags & chunk::DONE != 0 {
            self.ended = Some(self.end(cookie)?);
        }
        Ok(Step::Event(ClientEvent::Extents { cookie, extents }))
    }

    fn end_chunk(&mut self, cookie: u64, done: bool) -> Result<Step, ClientError> {
        self.phase = Phase::Reply;
        if done { self.end(cookie).map(Step::Event) } else { Ok(Step::Again) }
    }

    /// Data or a hole has come: inside what was asked, and not twice.
    fn cover(&mut self, cookie: u64, offset: u64, len: u32) -> Result<(), ClientError> {
        let request = self.find(cookie)?;
        let Op::Read { offset: first, len: asked, df } = request.op else {
            return Err(ClientError::Malformed { what: "data for a request that is not a read" });
        };
        let start = offset.checked_sub(first).and_then(|start| u32::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        let Some(range) = range.filter(|range| len > 0 && range.end <= asked) else {
            return Err(ClientError::Malformed { what: "data outside the range asked for" });
        };
        if df && request.covered.total > 0 {
            return Err(ClientError::Malformed { what: "data in pieces despite NBD_CMD_FLAG_DF" });
        }
        request.covered.add(range)
    }

    /// The reply is complete.
    fn end(&mut self, cookie: u64) -> Result<ClientEvent, ClientError> {
        let request = self.open.remove(&cookie).ok_or(ClientError::UnknownCookie { cookie })?;
        if let Some(error) = request.error {
            return Ok(ClientEvent::Done { cookie, result: Err(error) });
        }
        if matches!(request.op, Op::BlockStatus { .. }) && !request.extents_told {
            return Err(ClientError::Malformed { what: "success without extents" });
        }
        if let Op::Read { len, .. } = request.op
            && request.covered.total != len
        {
            return Err(ClientError::Malformed { what: "success without all the data" });
        }
        Ok(ClientEvent::Done { cookie, result: Ok(()) })
    }

    fn find(&mut self, cookie: u64) -> Result<&mut OpenRequest, ClientError> {
        self.open.get_mut(&cookie).ok_or(ClientError::UnknownCookie { cookie })
    }
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server cannot be followed any further. Hang up; open requests are not answered.
    Close(ClientError),
    /// The next `len` bytes are data of a read. More may follow, and an error may still come.
    Data {
        /// The request.
        cookie: u64,
        /// Where they are in the export, inside what was asked and not told before.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// The request is answered, and its cookie free. A read has all its data if this is success.
    Done {
        /// The request.
        cookie: u64,
        /// How it went.
        result: Result<(), NbdError>,
    },
    /// What there is from the first byte of a request for block status on. An error may still come.
    Extents {
        /// The request.
        cookie: u64,
        /// At least one; the last may go on beyond what was asked.
        extents: Vec<Extent>,
    },
    /// This range of a read is zeroes, which do not follow.
    Hole {
        /// The request.
        cookie: u64,
        /// Where they are in the export, inside what was asked and not told before.
        offset: u64,
        /// Bytes.
        len: u32,
    },
}

/// Why a client gives up on a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A message that does not start like one; also an old server, or not an NBD server.
    #[error("magic: found {found:#018x}; not an NBD server of fixed newstyle, or out of step")]
    Magic {
        /// The number in its place.
        found: u64,
    },
    /// A message that breaks the protocol.
    #[error("server broke the protocol: {what}")]
    Malformed {
        /// In which way.
        what: &'static str,
    },
    /// A server that cannot refuse options.
    #[error("server does not speak fixed newstyle")]
    NotFixedNewstyle,
    /// The server refused the option that the goal needs.
    #[error("server refused option {option} with {}: {message}", option_error_name(*.kind))]
    Refused {
        /// Its number.
        option: u32,
        /// See [`wire::option_reply`].
        kind: u32,
        /// The server's text, possibly empty, control characters replaced.
        message: String,
    },
    /// A reply longer than any reply has to be.
    #[error("reply: found {len} bytes, expected at most {REPLY_BYTES_MAX}")]
    ReplyTooLong {
        /// Its length, bytes.
        len: u64,
    },
    /// A reply to nothing.
    #[error("reply to cookie {cookie:#x}, which no open request has")]
    UnknownCookie {
        /// The cookie.
        cookie: u64,
    },
}

/// Why a request was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The session is over.
    #[error("the session is over")]
    Closed,
    /// Another open request has this cookie.
    #[error("an open request has this cookie")]
    CookieInUse,
    /// A server would answer this.
    #[error("the export does not take such a request: {0}")]
    Refused(NbdError),
    /// 4096 requests are open.
    #[error("too many open requests, expected at most {OPEN_COUNT_MAX}")]
    TooManyOpen,
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

#[expect(clippy::large_enum_variant, reason = "lives for one return, a few times per session")]
enum HandshakeStep {
    Again,
    Event(HandshakeEvent),
    NeedInput,
}

#[derive(Debug)]
enum Phase {
    /// The fixed first part of a chunk's payload.
    Chunk {
        header: ChunkHeader,
        prefix_len: u8,
    },
    Closed,
    /// The payload of a chunk of extents.
    Extents {
        header: ChunkHeader,
        data: Vec<u8>,
    },
    Payload {
        remaining: u32,
        cookie: u64,
        done: bool,
    },
    Reply,
    /// The rest of an error chunk.
    Skip {
        remaining: u32,
        cookie: u64,
        done: bool,
    },
}

enum Step {
    Again,
    Event(ClientEvent),
    NeedInput,
}

#[derive(Debug)]
struct OpenRequest {
    op: Op,
    /// The first error told, if any.
    error: Option<NbdError>,
    covered: Coverage,
    extents_told: bool,
}

/// Which parts of a read have come. Disjoint ranges inside the read whose lengths add up to that of
/// the read cover it, so no merging is needed.
#[derive(Debug, Default)]
struct Coverage {
    total: u32,
    /// Grows at its end: the only range of a server that sends in order.
    first: Range<u32>,
    others: Vec<Range<u32>>,
}

impl Coverage {
    fn add(&mut self, range: Range<u32>) -> Result<(), ClientError> {
        let overlaps = |other: &Range<u32>| range.start < other.end && other.start < range.end;
        if overlaps(&self.first) || self.others.iter().any(overlaps) {
            return Err(ClientError::Malformed { what: "data told twice" });
        }
        self.total += range.end - range.start;
        if self.total == range.end - range.start {
            self.first = range;
        } else if range.start == self.first.end {
            self.first.end = range.end;
        } else if self.others.len() < FRAGMENT_COUNT_MAX {
            self.others.push(range);
        } else {
            return Err(ClientError::Malformed { what: "data in too many pieces" });
        }
        Ok(())
    }
}

/// One entry of the list of exports: name and description.
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

/// A server's text for people, safe to print: at most 4096 bytes of it, without control characters.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(wire::STRING_BYTES_MAX)])
        .chars()
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .collect()
}

fn option_error_name(kind: u32) -> &'static str {
    match kind {
        option_reply::ERR_UNSUP => "NBD_REP_ERR_UNSUP",
        option_reply::ERR_POLICY => "NBD_REP_ERR_POLICY",
        option_reply::ERR_INVALID => "NBD_REP_ERR_INVALID",
        option_reply::ERR_PLATFORM => "NBD_REP_ERR_PLATFORM",
        option_reply::ERR_TLS_REQD => "NBD_REP_ERR_TLS_REQD",
        option_reply::ERR_UNKNOWN => "NBD_REP_ERR_UNKNOWN",
        option_reply::ERR_SHUTDOWN => "NBD_REP_ERR_SHUTDOWN",
        option_reply::ERR_BLOCK_SIZE_REQD => "NBD_REP_ERR_BLOCK_SIZE_REQD",
        option_reply::ERR_TOO_BIG => "NBD_REP_ERR_TOO_BIG",
        option_reply::ERR_EXT_HEADER_REQD => "NBD_REP_ERR_EXT_HEADER_REQD",
        _ => "an unknown error",
    }
}

/// Longest reply to an option, and longest error chunk: an error chunk's text is at most 65,535
/// bytes by its 16-bit length, plus 14 of numbers.
const REPLY_BYTES_MAX: u32 = (64 << 10) + 14;
/// Most replies to one option: a list of 65,536 exports.
const REPLY_COUNT_MAX: u32 = 1 << 16;
/// Most open requests; a member's queue is a few hundred.
const OPEN_COUNT_MAX: usize = 4096;
/// Most pieces of one read out of order: 32 MiB in pieces of 32 KiB.
const FRAGMENT_COUNT_MAX: usize = 1024;
