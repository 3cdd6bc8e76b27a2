//! Server half of the protocol: the session of one client from greeting to end.
//!
//! Legal transitions of [`ServerConnection`]:
//!
//! ```text
//! ClientFlags ──► OptionHeader ◄──► OptionData, OptionSkip, StartingTls
//!                      │                │ GO, EXPORT_NAME
//!                      │                ▼
//!                      │          RequestHeader ◄──► Payload, RequestSkip
//!                      ▼ ABORT          ▼ DISC
//!                   Closed ◄────────────┴──── from anywhere: a client that cannot be followed
//! ```
//!
//! Faults expected from the peer: any bytes, split at any byte, any lengths, a client that never
//! reads. The countermeasures are bounded memory ([`ServerConnection::memory_bytes`]), a check of
//! each length before data is kept, and no further input while [`OUTPUT_BYTES_HIGH`] bytes wait to
//! be sent.
//!
//! Source: `proto.md` "Protocol phases", "Option types".

use std::sync::Arc;

use crate::buffer::{Gather, Outbox, Transition, collect, skip, transitions};
use crate::handshake::{
    BlockSizes, ExportInfo, InfoRequest, MetaRequest, encode_export, len_u32, parse_name,
    push_info_replies, push_option_reply,
};
use crate::transmission::{
    Extent, Headers, NbdRequest, Op, Reply, ReplyHeader, Terms, To, Verdict, reply_header,
};
use crate::wire::{
    self, NbdError, OptionHeader, RequestHeader, TransmissionFlags, client_flag, command,
    command_flag, handshake_flag, option, option_reply,
};

/// Session of one client, on the server's side.
///
/// Bytes in, events and bytes out; the socket is the driver's. The driver
///
/// 1. sends [`output`](Self::output), which begins with the greeting, and reports it with
///    [`advance_output`](Self::advance_output);
/// 2. passes received bytes to [`input`](Self::input) until that consumes nothing and returns
///    nothing;
/// 3. after an [`Op::Write`], takes the payload itself, from its receive buffer or straight from
///    the socket into its own memory, and reports it with
///    [`payload_consumed`](Self::payload_consumed);
/// 4. answers each [`NbdRequest`] once, in any order, with [`reply`](Self::reply) or, for a read,
///    with [`reply_header`](Self::reply_header) and the data.
///
/// `output` is a stream of whole messages. A driver that sends headers and data itself does so
/// between two messages: when `output` is empty, or after all of it.
///
/// After [`ServerEvent::StartTls`] the driver sends the output in plain text, and calls
/// [`tls_started`](Self::tls_started); from then on it passes and sends the bytes within TLS.
///
/// The driver has to limit the number of open requests, and the time for which a client may be
/// silent.
#[derive(Debug)]
pub struct ServerConnection {
    exports: Arc<[ExportInfo]>,
    default_export: Option<usize>,
    phase: Phase,
    gather: Gather,
    out: Outbox,
    zeroes: bool,
    shutting_down: bool,
    tls: Tls,
    terms: Terms,
    /// Index of the export for which the client selected `base:allocation`; `None` if it did not.
    allocation_of: Option<usize>,
}

impl ServerConnection {
    /// Creates a session that is about to send its greeting.
    ///
    /// `exports` are those that this client may see; volumes that are added later appear in later
    /// sessions. `default_export` is the index of the export for the empty name, if any; an export
    /// with an empty name takes precedence.
    ///
    /// # Panics
    /// Panics when `default_export` is not an index into `exports`.
    #[must_use]
    pub fn new(exports: Arc<[ExportInfo]>, default_export: Option<usize>) -> Self {
        assert!(default_export.is_none_or(|index| index < exports.len()));
        let mut out = Outbox::default();
        out.push(&wire::NBDMAGIC.to_be_bytes());
        out.push(&wire::IHAVEOPT.to_be_bytes());
        out.push(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
        let terms = Terms {
            size: 0,
            flags: TransmissionFlags::default(),
            block_sizes: BlockSizes::default(),
            headers: Headers::Simple,
            allocation: false,
        };
        Self {
            exports,
            default_export,
            phase: Phase::ClientFlags,
            gather: Gather::new(),
            out,
            zeroes: true,
            shutting_down: false,
            tls: Tls::NotOffered,
            terms,
            allocation_of: None,
        }
    }

    /// Makes the session refuse every option but `NBD_OPT_STARTTLS` and `NBD_OPT_ABORT` until TLS
    /// has started.
    ///
    /// Source   proto.md "TLS support", FORCEDTLS
    #[must_use]
    pub fn require_tls(self) -> Self {
        Self { tls: Tls::Required, ..self }
    }

    /// Records that TLS has started: from now on the bytes of input and output are those within
    /// TLS.
    ///
    /// # Panics
    /// Panics unless the last event was [`ServerEvent::StartTls`].
    pub fn tls_started(&mut self) {
        assert!(matches!(self.phase, Phase::StartingTls), "the client has not asked for TLS");
        self.tls = Tls::Started;
        self.phase = Phase::OptionHeader;
    }

    /// Consumes bytes from the client. Returns the number consumed, and the event if there is one.
    ///
    /// The driver repeats the call with the rest, and with further bytes, until it returns `(0,
    /// None)`. Then either no bytes are left, or [`OUTPUT_BYTES_HIGH`] bytes wait in
    /// [`output`](Self::output) and must be sent before more input is consumed.
    ///
    /// # Panics
    /// Panics while [`payload_remaining`](Self::payload_remaining) is not zero, because the driver
    /// has to take these bytes itself.
    #[must_use = "an event that is not looked at is a request or a reply lost"]
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Option<ServerEvent>) {
        assert_eq!(self.payload_remaining(), 0, "the payload of a write was not taken");
        transitions(bytes, |rest| match self.out.pending().len() {
            OUTPUT_BYTES_HIGH.. => Step::NeedInput,
            _ => self.step(rest),
        })
    }

    /// Bytes that wait to be sent. Calls of `new`, `input` and `reply` may add bytes.
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

    /// Number of payload bytes of the last [`Op::Write`] that the driver has not taken yet. They
    /// come next from the client.
    #[must_use]
    pub fn payload_remaining(&self) -> usize {
        match self.phase {
            Phase::Payload { remaining } => remaining as usize,
            Phase::ClientFlags
            | Phase::Closed
            | Phase::OptionData { .. }
            | Phase::OptionHeader
            | Phase::OptionSkip { .. }
            | Phase::RequestHeader
            | Phase::RequestSkip { .. }
            | Phase::StartingTls => 0,
        }
    }

    /// Records that the driver has taken the next `count` bytes of payload.
    ///
    /// # Panics
    /// Panics when `count` is more than [`payload_remaining`](Self::payload_remaining).
    pub fn payload_consumed(&mut self, count: usize) {
        let remaining = self.payload_remaining();
        assert!(count <= remaining, "took {count} bytes of {remaining} bytes of payload");
        if count < remaining {
            self.phase = Phase::Payload { remaining: len_u32(remaining - count) };
        } else if count > 0 {
            self.phase = Phase::RequestHeader;
        }
    }

    /// Answers a request with a reply that has no data: any request except a read that succeeds.
    /// The reply is appended to [`output`](Self::output).
    ///
    /// # Panics
    /// Panics for a successful read, because the driver has to send its data: see
    /// [`reply_header`](Self::reply_header).
    pub fn reply(&mut self, request: &NbdRequest, result: Result<(), NbdError>) {
        let reply = Reply::to(request, result);
        assert!(!matches!(reply, Reply::Read { .. }), "a successful read is answered with data");
        self.out.push(&reply_header(self.to(request), reply));
    }

    /// Header format, cookie and offset of the reply to `request`.
    fn to(&self, request: &NbdRequest) -> To {
        let offset = if self.terms.headers.are_extended() {
            request.op.header(request.cookie).offset
        } else {
            0
        };
        To { headers: self.terms.headers, cookie: request.cookie, offset }
    }

    /// Header of a reply, for a driver that sends it together with the data.
    ///
    /// For a successful read the driver sends the header and then exactly the `len` bytes asked
    /// for, with nothing in between. Once the header is sent the read can no longer fail; a driver
    /// that cannot supply the bytes then closes the connection. For any other result the header is
    /// the whole reply.
    ///
    /// Source   proto.md "Request types", `NBD_CMD_READ`
    #[must_use]
    pub fn reply_header(&self, request: &NbdRequest, result: Result<(), NbdError>) -> ReplyHeader {
        reply_header(self.to(request), Reply::to(request, result))
    }

    /// Answers a request for block status with the given extents: at least one. The first extent
    /// begins at the first byte of the request.
    ///
    /// Shape    lengths are multiples of the minimum block; extents beyond [`EXTENTS_MAX`], beyond
    ///          the request, or beyond the first when only one was asked for, are left out
    ///
    /// # Panics
    /// Panics without an extent, or with an empty one.
    pub fn reply_extents(&mut self, request: &NbdRequest, extents: &[Extent]) {
        let Op::BlockStatus { len, one, .. } = request.op else {
            panic!("{request:?} does not ask for extents");
        };
        let count = if one { 1 } else { EXTENTS_MAX };
        let mut rest = len;
        let mut told: Vec<Extent> = Vec::new();
        for extent in extents.iter().take(count) {
            assert!(extent.len > 0, "an extent is not empty");
            let len = extent.len.min(rest);
            if len == 0 {
                break;
            }
            told.push(Extent { len, ..*extent });
            rest -= len;
        }
        assert!(!told.is_empty(), "a reply has an extent");
        let (to, done) = (self.to(request), wire::chunk::DONE);
        if self.terms.headers.are_extended() {
            let payload = len_u32(8 + 16 * told.len());
            self.out.push(&to.chunk(done, wire::chunk::BLOCK_STATUS_EXT, payload));
            self.out.push(&ALLOCATION_CONTEXT.to_be_bytes());
            self.out.push(&len_u32(told.len()).to_be_bytes());
            told.iter().for_each(|extent| self.out.push(&extent.encode_extended()));
        } else {
            let payload = len_u32(4 + 8 * told.len());
            self.out.push(&to.chunk(done, wire::chunk::BLOCK_STATUS, payload));
            self.out.push(&ALLOCATION_CONTEXT.to_be_bytes());
            told.iter().for_each(|extent| self.out.push(&extent.encode()));
        }
    }

    /// Header of one part of a read that is answered in several parts, in order and without gaps.
    /// `offset` is the part's position in the export; `extent` has its length, and whether it reads
    /// as zeroes. After the header of a part with data the driver sends its `extent.len` bytes.
    /// Requires structured replies.
    ///
    /// # Panics
    /// Panics without structured replies, or for a part of a read that must be answered in one
    /// chunk.
    #[must_use]
    pub fn piece_header(&self, request: &NbdRequest, extent: Extent, offset: u64) -> ReplyHeader {
        let Op::Read { offset: first, len, df } = request.op else {
            panic!("{request:?} does not read");
        };
        let end = first + u64::from(len);
        let last = offset + extent.len == end;
        assert!(self.is_structured() && extent.len > 0 && offset + extent.len <= end);
        assert!(!df || (offset == first && last), "the read must be answered in one piece");
        ReplyHeader::piece(self.to(request), extent, offset, last)
    }

    /// Answers a read that found only zeroes, with a reply that has no data. Requires structured
    /// replies.
    ///
    /// # Panics
    /// Panics without structured replies.
    pub fn reply_hole(&mut self, request: &NbdRequest) {
        let Op::Read { offset, len, .. } = request.op else {
            panic!("{request:?} does not read");
        };
        let reply = Reply::Hole { offset, len };
        self.out.push(&reply_header(self.to(request), reply));
    }

    /// Refuses options with `NBD_REP_ERR_SHUTDOWN` and requests with [`NbdError::Shutdown`] from
    /// now on, until the client disconnects. The driver still answers requests that it has been
    /// given.
    ///
    /// Source   proto.md "Terminating the transmission phase"
    pub fn begin_shutdown(&mut self) {
        self.shutting_down = true;
    }

    /// Whether structured replies were negotiated, with extended headers or without.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        self.terms.headers.are_structured()
    }

    /// Whether the session is over, which it is after [`ServerEvent::Disconnect`] and
    /// [`ServerEvent::Close`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Heap memory that the session owns, in bytes, without the exports that sessions share.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let data = match &self.phase {
            Phase::OptionData { data, .. } => data.capacity(),
            Phase::ClientFlags
            | Phase::Closed
            | Phase::OptionHeader
            | Phase::OptionSkip { .. }
            | Phase::Payload { .. }
            | Phase::RequestHeader
            | Phase::RequestSkip { .. }
            | Phase::StartingTls => 0,
        };
        data + self.out.memory_bytes()
    }

    fn step(&mut self, rest: &mut &[u8]) -> Step {
        match &mut self.phase {
            Phase::ClientFlags => {
                let Some(bytes) = self.gather.next(rest) else { return Step::NeedInput };
                self.on_client_flags(u32::from_be_bytes(bytes))
            }
            Phase::OptionHeader => {
                let Some(bytes) = self.gather.next(rest) else { return Step::NeedInput };
                match OptionHeader::parse(&bytes) {
                    Ok(header) => self.on_option_header(header),
                    Err(found) => self.close(CloseReason::OptionMagic { found }),
                }
            }
            Phase::OptionData { header, data } => {
                if !collect(rest, data, header.len) {
                    return Step::NeedInput;
                }
                let (option, data) = (header.option, std::mem::take(data));
                self.phase = Phase::OptionHeader;
                self.on_option(option, &data)
            }
            Phase::OptionSkip { option, remaining, answer } => {
                if !skip(rest, remaining) {
                    return Step::NeedInput;
                }
                let (option, answer) = (*option, *answer);
                self.phase = Phase::OptionHeader;
                self.refuse_option(option, answer)
            }
            Phase::RequestHeader => {
                let header = if self.terms.headers.are_extended() {
                    let Some(bytes) = self.gather.next(rest) else { return Step::NeedInput };
                    RequestHeader::parse_extended(&bytes)
                } else {
                    let Some(bytes) = self.gather.next(rest) else { return Step::NeedInput };
                    RequestHeader::parse(&bytes)
                };
                match header {
                    Ok(header) => self.on_request(&header),
                    Err(found) => self.close(CloseReason::RequestMagic { found }),
                }
            }
            Phase::RequestSkip { remaining, to, error } => {
                if !skip(rest, remaining) {
                    return Step::NeedInput;
                }
                let (to, error) = (*to, *error);
                self.phase = Phase::RequestHeader;
                self.out.push(&reply_header(to, Reply::Error(error)));
                Step::Again
            }
            Phase::StartingTls if rest.is_empty() => Step::NeedInput,
            // These bytes were sent before the client had the reply to its option, so TLS does not
            // protect them: another machine may have inserted them.
            Phase::StartingTls => self.close(CloseReason::BeforeTls { len: rest.len() }),
            // Not reached from `input`, which has asserted that no payload remains.
            Phase::Payload { .. } => Step::NeedInput,
            Phase::Closed => {
                *rest = &[];
                Step::NeedInput
            }
        }
    }

    fn on_client_flags(&mut self, flags: u32) -> Step {
        if flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0
            || flags & client_flag::FIXED_NEWSTYLE == 0
        {
            return self.close(CloseReason::ClientFlags { found: flags });
        }
        self.zeroes = flags & client_flag::NO_ZEROES == 0;
        self.phase = Phase::OptionHeader;
        Step::Again
    }

    /// Decides from the number and length of an option whether its data is collected, or skipped
    /// and the option refused. No data has been kept at this point.
    fn on_option_header(&mut self, header: OptionHeader) -> Step {
        let OptionHeader { option, len } = header;
        let is_too_early = matches!(self.tls, Tls::Required)
            && !matches!(option, option::ABORT | option::STARTTLS);
        if is_too_early && option == option::EXPORT_NAME {
            return self.close(CloseReason::TlsRequired);
        }
        if option == option::EXPORT_NAME && len as usize > wire::STRING_BYTES_MAX {
            return self.close(CloseReason::OptionTooLong { option, len });
        }
        if len > OPTION_SKIP_BYTES_MAX {
            self.refuse_option(option, (option_reply::ERR_TOO_BIG, "option too long"));
            return self.close(CloseReason::OptionTooLong { option, len });
        }
        let answer = match option {
            _ if is_too_early => (option_reply::ERR_TLS_REQD, "NBD_OPT_STARTTLS comes first"),
            // `NBD_OPT_ABORT` must not have data, but the client wants to leave, so success is the
            // best answer.
            option::ABORT => (option_reply::ACK, ""),
            option::EXPORT_NAME
            | option::GO
            | option::INFO
            | option::LIST_META_CONTEXT
            | option::SET_META_CONTEXT
                if len <= OPTION_BYTES_MAX =>
            {
                self.phase = Phase::OptionData { header, data: Vec::new() };
                return Step::Again;
            }
            option::EXPORT_NAME
            | option::GO
            | option::INFO
            | option::LIST_META_CONTEXT
            | option::SET_META_CONTEXT => (option_reply::ERR_TOO_BIG, "option too long"),
            option::EXTENDED_HEADERS
            | option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY
                if len == 0 =>
            {
                return self.on_option(option, &[]);
            }
            option::STARTTLS if matches!(self.tls, Tls::NotOffered) => {
                (option_reply::ERR_UNSUP, "")
            }
            option::EXTENDED_HEADERS
            | option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY => (option_reply::ERR_INVALID, "option takes no data"),
            _ => (option_reply::ERR_UNSUP, ""),
        };
        self.phase = Phase::OptionSkip { option, remaining: len, answer };
        Step::Again
    }

    /// Answers an option after all of its data has been skipped, with a type of reply and a
    /// message. The reply is an error, except for `NBD_OPT_ABORT`, which ends the session.
    fn refuse_option(&mut self, option: u32, (kind, message): (u32, &'static str)) -> Step {
        let answer = if self.shutting_down && option != option::ABORT {
            (option_reply::ERR_SHUTDOWN, "server is shutting down")
        } else {
            (kind, message)
        };
        push_option_reply(&mut self.out, option, answer.0, &[answer.1.as_bytes()]);
        if option == option::ABORT {
            self.phase = Phase::Closed;
            return Step::Event(ServerEvent::Disconnect);
        }
        Step::Again
    }

    /// Carries out a known option, with all of its data.
    fn on_option(&mut self, option: u32, data: &[u8]) -> Step {
        if option == option::EXPORT_NAME {
            return self.on_export_name(data);
        }
        if self.shutting_down {
            return self.refuse_option(option, (option_reply::ERR_SHUTDOWN, ""));
        }
        match option {
            option::LIST => {
                for export in self.exports.iter() {
                    let name = export.name().as_bytes();
                    let name_len = len_u32(name.len()).to_be_bytes();
                    let data = [&name_len, name, export.description().as_bytes()];
                    push_option_reply(&mut self.out, option, option_reply::SERVER, &data);
                }
                push_option_reply(&mut self.out, option, option_reply::ACK, &[]);
                Step::Again
            }
            option::EXTENDED_HEADERS if self.terms.headers.are_extended() => self.refuse_option(
                option,
                (option_reply::ERR_INVALID, "extended headers were agreed on already"),
            ),
            option::EXTENDED_HEADERS => {
                self.terms.headers = Headers::Extended;
                push_option_reply(&mut self.out, option, option_reply::ACK, &[]);
                Step::Again
            }
            option::STRUCTURED_REPLY if self.terms.headers.are_extended() => self.refuse_option(
                option,
                (option_reply::ERR_EXT_HEADER_REQD, "extended headers were agreed on"),
            ),
            option::STRUCTURED_REPLY => {
                self.terms.headers = Headers::Structured;
                push_option_reply(&mut self.out, option, option_reply::ACK, &[]);
                Step::Again
            }
            option::STARTTLS => self.on_start_tls(),
            option::GO | option::INFO => self.on_info(option, data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.on_meta_context(option, data)
            }
            _ => self.refuse_option(option, (option_reply::ERR_UNSUP, "")),
        }
    }

    fn on_start_tls(&mut self) -> Step {
        let refusal = match self.tls {
            Tls::NotOffered => (option_reply::ERR_UNSUP, ""),
            Tls::Started => (option_reply::ERR_INVALID, "TLS has started already"),
            Tls::Required => {
                push_option_reply(&mut self.out, option::STARTTLS, option_reply::ACK, &[]);
                self.phase = Phase::StartingTls;
                return Step::Event(ServerEvent::StartTls);
            }
        };
        self.refuse_option(option::STARTTLS, refusal)
    }

    fn on_info(&mut self, option: u32, data: &[u8]) -> Step {
        let request = match InfoRequest::parse(data) {
            Ok(request) => request,
            Err(message) => {
                return self.refuse_option(option, (option_reply::ERR_INVALID, message));
            }
        };
        let Some(index) = self.find(request.name) else {
            return self.refuse_option(option, (option_reply::ERR_UNKNOWN, "export not found"));
        };
        let flags = self.negotiated_flags(index);
        push_info_replies(&mut self.out, option, &self.exports[index], flags, &request);
        if option == option::INFO {
            return Step::Again;
        }
        self.enter_transmission(index)
    }

    /// Lists or selects contexts of an export: `base:allocation`, if the export has it. A selection
    /// replaces the former one.
    fn on_meta_context(&mut self, option: u32, data: &[u8]) -> Step {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            self.allocation_of = None;
        }
        let invalid = |message| (option_reply::ERR_INVALID, message);
        if !self.is_structured() {
            return self.refuse_option(option, invalid("structured replies come first"));
        }
        let request = match MetaRequest::parse(data) {
            Ok(request) => request,
            Err(message) => return self.refuse_option(option, invalid(message)),
        };
        let Some(index) = self.find(request.name) else {
            return self.refuse_option(option, (option_reply::ERR_UNKNOWN, "export not found"));
        };
        let listed = !is_set && (request.is_empty || request.all_of_base);
        if self.exports[index].has_allocation() && (request.allocation || listed) {
            // When listing, the number has no meaning.
            let id = if is_set { ALLOCATION_CONTEXT } else { 0 };
            let data: [&[u8]; 2] = [&id.to_be_bytes(), wire::BASE_ALLOCATION.as_bytes()];
            push_option_reply(&mut self.out, option, option_reply::META_CONTEXT, &data);
            if is_set {
                self.allocation_of = Some(index);
            }
        }
        push_option_reply(&mut self.out, option, option_reply::ACK, &[]);
        Step::Again
    }

    /// Handles `NBD_OPT_EXPORT_NAME`, the only option without an error reply: an unknown export
    /// ends the session.
    fn on_export_name(&mut self, name: &[u8]) -> Step {
        if self.shutting_down {
            return self.close(CloseReason::Shutdown);
        }
        let Some(index) = parse_name(name).ok().and_then(|name| self.find(name)) else {
            return self.close(CloseReason::UnknownExport);
        };
        let flags = self.negotiated_flags(index);
        self.out.push(&encode_export(self.exports[index].size(), flags));
        if self.zeroes {
            self.out.push(&[0; wire::EXPORT_NAME_ZEROES]);
        }
        self.enter_transmission(index)
    }

    fn enter_transmission(&mut self, index: usize) -> Step {
        let export = &self.exports[index];
        self.terms = Terms {
            size: export.size(),
            flags: self.negotiated_flags(index),
            block_sizes: export.block_sizes(),
            headers: self.terms.headers,
            allocation: self.allocation_of == Some(index),
        };
        self.phase = Phase::RequestHeader;
        Step::Event(ServerEvent::Ready { export: index })
    }

    fn on_request(&mut self, header: &RequestHeader) -> Step {
        let told =
            self.terms.headers.are_extended() && header.flags & command_flag::PAYLOAD_LEN != 0;
        let has_payload = header.command == command::WRITE || told;
        let payload_len = if has_payload { header.len } else { 0 };
        let most = PAYLOAD_SKIP_BYTES_MAX.max(self.terms.block_sizes.payload_max());
        let Some(payload_len) = u32::try_from(payload_len).ok().filter(|len| *len <= most) else {
            return self.close(CloseReason::PayloadTooLong { len: payload_len, most });
        };
        let verdict = match self.terms.judge(header) {
            Verdict::Nothing(_) | Verdict::Perform(_) if self.shutting_down => {
                Verdict::Refuse(NbdError::Shutdown)
            }
            verdict => verdict,
        };
        let cookie = header.cookie;
        let to = To { headers: self.terms.headers, cookie, offset: header.offset };
        match verdict {
            Verdict::Disconnect => {
                self.phase = Phase::Closed;
                Step::Event(ServerEvent::Disconnect)
            }
            Verdict::Nothing(reply) => {
                self.out.push(&reply_header(to, reply));
                Step::Again
            }
            Verdict::Perform(op) => {
                if let Op::Write { len, .. } = op {
                    assert!(len > 0);
                    self.phase = Phase::Payload { remaining: len };
                }
                Step::Event(ServerEvent::Request(NbdRequest { cookie, op }))
            }
            Verdict::Refuse(error) => {
                self.phase = Phase::RequestSkip { remaining: payload_len, to, error };
                Step::Again
            }
        }
    }

    fn close(&mut self, reason: CloseReason) -> Step {
        self.phase = Phase::Closed;
        Step::Event(ServerEvent::Close(reason))
    }

    fn find(&self, name: &str) -> Option<usize> {
        let found = self.exports.iter().position(|export| export.name() == name);
        if name.is_empty() { found.or(self.default_export) } else { found }
    }

    /// Flags that an export offers to this client, according to the negotiated replies.
    fn negotiated_flags(&self, index: usize) -> TransmissionFlags {
        let flags = self.exports[index].flags().without(TransmissionFlags::SEND_DF);
        if self.is_structured() { flags | TransmissionFlags::SEND_DF } else { flags }
    }
}

/// Event of a client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client violated the protocol. Send the output if possible, then disconnect.
    Close(CloseReason),
    /// The client ends the session. Answer the open requests, send the output, then disconnect.
    Disconnect,
    /// The client has chosen an export; requests follow.
    Ready {
        /// Index into the exports given to [`ServerConnection::new`].
        export: usize,
    },
    /// A request to carry out. After [`Op::Write`] the next bytes are payload.
    Request(NbdRequest),
    /// The client begins TLS once it has the output; see [`ServerConnection::tls_started`].
    StartTls,
}

/// Reasons why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Bytes in plain text followed the option that asks for TLS.
    #[error("found {len} bytes in plain text after NBD_OPT_STARTTLS, expected TLS")]
    BeforeTls {
        /// Number of bytes in plain text.
        len: usize,
    },
    /// The client answered the greeting with unknown flags, or without fixed newstyle.
    #[error("client flags: found {found:#x}, expected 0x1 or 0x3 (fixed newstyle)")]
    ClientFlags {
        /// The flags that were sent.
        found: u32,
    },
    /// An option does not start with its magic.
    #[error("option magic: found {found:#018x}, expected {:#018x}", wire::IHAVEOPT)]
    OptionMagic {
        /// Number found in place of the magic.
        found: u64,
    },
    /// An option is too long to be skipped.
    #[error("option {option}: found {len} bytes of data, expected at most {OPTION_SKIP_BYTES_MAX}")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// Length of the option's data in bytes.
        len: u32,
    },
    /// A write, or another request with payload, is too long to be skipped.
    #[error("request: found {len} bytes of payload, expected at most {most}")]
    PayloadTooLong {
        /// Length of the payload in bytes.
        len: u64,
        /// Length of the longest payload that is skipped, in bytes: 64 MiB, or more if the export
        /// permits longer writes.
        most: u32,
    },
    /// A request does not start with its magic.
    #[error("request magic: found {found:#010x}, expected {:#010x}", wire::REQUEST_MAGIC)]
    RequestMagic {
        /// Number found in place of the magic.
        found: u32,
    },
    /// While the server stops, the client chose an export with an option that has no error reply.
    #[error("server is shutting down")]
    Shutdown,
    /// The client chose an export before TLS, with an option that has no error reply.
    #[error("found NBD_OPT_EXPORT_NAME in plain text, expected NBD_OPT_STARTTLS")]
    TlsRequired,
    /// The client chose an unknown export with an option that has no error reply.
    #[error("export not found, and NBD_OPT_EXPORT_NAME has no error reply")]
    UnknownExport,
}

/// Phase of a session; the drawing at the top shows the transitions.
#[derive(Debug)]
enum Phase {
    ClientFlags,
    Closed,
    OptionData {
        header: OptionHeader,
        data: Vec<u8>,
    },
    OptionHeader,
    OptionSkip {
        option: u32,
        remaining: u32,
        answer: (u32, &'static str),
    },
    Payload {
        remaining: u32,
    },
    RequestHeader,
    RequestSkip {
        remaining: u32,
        to: To,
        error: NbdError,
    },
    /// Waits for the driver to start TLS.
    StartingTls,
}

/// State of TLS in a session.
#[derive(Clone, Copy, Debug)]
enum Tls {
    NotOffered,
    Required,
    Started,
}

/// Outcome of one transition.
type Step = Transition<ServerEvent>;

/// Largest number of extents in one reply: 8 KiB of data, or 16 KiB with extended headers.
pub const EXTENTS_MAX: usize = 1024;
/// Identifier of `base:allocation` in replies.
const ALLOCATION_CONTEXT: u32 = 1;
/// Number of bytes of output at which no more input is consumed: 64 KiB, some 2,000 replies or
/// more. The replies to one option or request may exceed the limit, at most by a list of all
/// exports.
pub const OUTPUT_BYTES_HIGH: usize = 64 << 10;
/// Largest number of bytes of an option's data that is collected: a name of 4096 bytes and 30,000
/// information requests.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Largest number of bytes of an option's data that is skipped. Longer data is taken for an attempt
/// at denial of service, and ends the session.
const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Largest number of payload bytes of a refused write that is skipped, unless the export permits
/// longer writes: 64 MiB, twice the size that the NBD protocol asks servers to tolerate.
///
/// Source   proto.md "Size constraints"
const PAYLOAD_SKIP_BYTES_MAX: u32 = 64 << 20;
