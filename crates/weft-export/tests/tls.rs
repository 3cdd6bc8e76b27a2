//! NBD by TLS: data, keys that change, and clients that must not be served.

#![allow(clippy::cast_possible_truncation, reason = "drawn numbers are cut to any width")]

mod common;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{Client, Server, bare, pattern, raid5};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use weft_export::keys::{AUTHORITY, CERTIFICATE, KEY};
use weft_export::{Listen, NbdAddress, NbdListen, Protection, Source, TimeLimits};
use weft_nbd::wire::{OptionHeader, client_flag, option};
use weft_nbd::{ClientHandshake, Goal, Op};
use weft_runtime::Backend;
use weft_testing::fuzz;
use weft_units::rng::{Rng, mix};

/// An authority, with its certificate.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn signs(&self, usage: ExtendedKeyUsagePurpose, holder: &str, ends: SystemTime) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, holder);
        params.extended_key_usages = vec![usage];
        params.not_before = (SystemTime::now() - 3 * DAY).into();
        params.not_after = ends.into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn server(&self, holder: &str) -> Pair {
        let ends = SystemTime::now() + 90 * DAY;
        self.signs(ExtendedKeyUsagePurpose::ServerAuth, holder, ends)
    }

    fn client(&self) -> Pair {
        let ends = SystemTime::now() + 90 * DAY;
        self.signs(ExtendedKeyUsagePurpose::ClientAuth, "client", ends)
    }
}

/// Keys of a server, and an authority that its clients trust.
struct Keys {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Keys {
    fn new() -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let keys = Self { authority, folder };
        keys.put(&keys.authority.server("first"));
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the files of a server, each as a new file.
    fn put(&self, pair: &Pair) {
        for (name, text) in
            [(AUTHORITY, &self.authority.pem), (CERTIFICATE, &pair.certificate), (KEY, &pair.key)]
        {
            let beside = self.path("beside");
            std::fs::write(&beside, text).unwrap();
            std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o600)).unwrap();
            std::fs::rename(&beside, self.path(name)).unwrap();
        }
    }

    fn serve(&self, source: impl FnOnce(&Path) -> Source + Send + 'static) -> Server {
        let protection = Protection::Tls(self.folder.path().to_owned());
        let listen = move |path: &Path| {
            let address = NbdAddress::Unix(path.join("nbd"));
            vec![
                Listen::Nbd(NbdListen { address, protection }),
                Listen::Nbd(NbdListen::unix(path.join("plain"))),
            ]
        };
        Server::start_on(source, Backend::Threads, false, TimeLimits::default(), listen)
    }

    fn config(
        &self,
        pair: Option<&Pair>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(certificate(&self.authority.pem)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        match pair {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate(&pair.certificate)], key).unwrap()
            }
        }
    }

    fn connect(&self, server: &Server, pair: Option<&Pair>) -> Result<Client<Tls>, String> {
        self.connect_by(server, pair, &TLS13)
    }

    fn connect_by(
        &self,
        server: &Server,
        pair: Option<&Pair>,
        version: &'static SupportedProtocolVersion,
    ) -> Result<Client<Tls>, String> {
        let tls = Tls::new(server, self.config(pair, version));
        Client::over(tls, ClientHandshake::new(Goal::Open("v".into())).unwrap())
    }
}

/// Connects and asks for TLS, with `more` behind the option. Returns the reply too.
fn start_tls(server: &Server, more: &[u8]) -> (UnixStream, [u8; 20]) {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    let flags = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
    let header = OptionHeader { option: option::STARTTLS, len: 0 };
    stream.write_all(&[&flags.to_be_bytes()[..], &header.encode(), more].concat()).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    (stream, reply)
}

/// A stream within TLS. It begins with a made-up greeting, because the client half of `weft-nbd`
/// knows no TLS.
struct Tls {
    stream: StreamOwned<ClientConnection, UnixStream>,
    greeting: io::Cursor<Vec<u8>>,
    /// Number of bytes of client flags that are still dropped.
    flags: usize,
}

impl Tls {
    fn new(server: &Server, config: ClientConfig) -> Self {
        let (stream, _) = start_tls(server, &[]);
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.into(), name).unwrap();
        let greeting = io::Cursor::new(b"NBDMAGICIHAVEOPT\0\x03".to_vec());
        Self { stream: StreamOwned::new(connection, stream), greeting, flags: 4 }
    }

    /// Replaces a broken pipe by the reason that the server gave. A server that refuses the client
    /// may close before the client has sent all of its handshake; the reason is then still in the
    /// socket.
    fn or_its_reason<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            let StreamOwned { conn, sock } = &mut self.stream;
            while conn.read_tls(sock)? > 0 {
                conn.process_new_packets().map_err(io::Error::other)?;
            }
        }
        result
    }
}

impl Read for Tls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.greeting.read(bytes)? {
            0 => {
                let result = self.stream.read(bytes);
                self.or_its_reason(result)
            }
            count => Ok(count),
        }
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let dropped = self.flags.min(bytes.len());
        self.flags -= dropped;
        let result = self.stream.write(&bytes[dropped..]);
        Ok(dropped + self.or_its_reason(result)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.stream.flush();
        self.or_its_reason(result)
    }
}

#[test]
fn bytes_of_any_length_come_back() {
    let keys = Keys::new();
    let server = keys.serve(raid5(4096, 8 << 20));
    let pair = keys.authority.client();
    for version in [&TLS13, &TLS12] {
        let mut client = keys.connect_by(&server, Some(&pair), version).unwrap();
        for (seed, len) in (0..).zip([1, 511, 4096, 16_384, 16_385, 70_001, 1 << 20, 5 << 20]) {
            let bytes = pattern(seed, len);
            client.write(seed, &bytes).unwrap();
            let found = client.read(seed, u32::try_from(len).unwrap()).unwrap();
            assert!(found == bytes, "{version:?}: {len} bytes");
        }
        client.flush().unwrap();
    }
    // The plain listener beside it has the same volume.
    let plain = server.dir.path().join("plain");
    assert!(Client::connect(&plain).read(7, 5 << 20).unwrap() == pattern(7, 5 << 20));
    assert!(server.ready.uris[0].starts_with("nbds+unix:///v?socket="), "{:?}", server.ready);
    server.settled();
}

/// Ciphertext that the socket does not take waits in the server, and no other client does.
#[test]
fn a_client_that_does_not_read_gets_everything_later() {
    let keys = Keys::new();
    let server = keys.serve(bare("64M"));
    let pair = keys.authority.client();
    let mut client = keys.connect(&server, Some(&pair)).unwrap();
    let bytes = pattern(1, 32 << 20);
    client.write(0, &bytes).unwrap();
    for start in 0..32 {
        client.send(Op::Read { offset: start << 20, len: 1 << 20, df: false }, &[]);
    }
    let mut other = keys.connect(&server, Some(&pair)).unwrap();
    assert!(other.read(5 << 20, 4096).unwrap() == bytes[5 << 20..][..4096]);
    let mut found = std::collections::BTreeMap::new();
    for _ in 0..32 {
        let (cookie, data) = client.receive();
        found.insert(cookie, data.unwrap());
    }
    let found: Vec<u8> = found.into_values().flatten().collect();
    assert!(found == bytes);
}

/// Only a certificate of the authority opens the volume.
#[test]
fn clients_without_a_good_certificate_are_not_served() {
    let keys = Keys::new();
    let server = keys.serve(bare("1M"));
    let ended = SystemTime::now() - DAY;
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    let pairs = [
        ("without one", None),
        ("of another authority", Some(Authority::new().client())),
        ("that has ended", Some(keys.authority.signs(usage, "late", ended))),
        ("of a server", Some(keys.authority.server("server"))),
    ];
    for (what, pair) in &pairs {
        for version in [&TLS13, &TLS12] {
            let refused = keys.connect_by(&server, pair.as_ref(), version).err();
            let error = refused.unwrap_or_else(|| panic!("{what}: served"));
            assert!(error.contains("alert"), "{what}: {error}");
        }
    }
    keys.connect(&server, Some(&keys.authority.client())).unwrap().read(0, 512).unwrap();
    server.settled();
}

#[test]
fn plain_text_behind_the_option_is_not_taken_for_tls() {
    let keys = Keys::new();
    let server = keys.serve(bare("1M"));
    let list = OptionHeader { option: option::LIST, len: 0 }.encode();
    let (mut stream, reply) = start_tls(&server, &list);
    assert_eq!(reply[12..16], 1_u32.to_be_bytes(), "the option itself is acknowledged");
    let mut more = Vec::new();
    assert_eq!(stream.read_to_end(&mut more).unwrap(), 0, "{more:?}");
    server.settled();
}

/// Holder of the certificate that the server shows.
fn holder(keys: &Keys, server: &Server) -> String {
    let client = keys.connect(server, Some(&keys.authority.client())).unwrap();
    let shown = client.stream.stream.conn.peer_certificates().unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&shown[0]).unwrap();
    let name = certificate.subject().iter_common_name().last().unwrap();
    name.as_str().unwrap().to_owned()
}

#[test]
fn new_keys_are_for_the_next_client_and_unusable_ones_for_none() {
    let keys = Keys::new();
    let server = keys.serve(bare("1M"));
    let mut first = keys.connect(&server, Some(&keys.authority.client())).unwrap();
    assert_eq!(holder(&keys, &server), "first");
    keys.put(&keys.authority.server("second"));
    assert_eq!(holder(&keys, &server), "second");
    std::fs::write(keys.path(CERTIFICATE), "no certificate").unwrap();
    assert_eq!(holder(&keys, &server), "second");
    // A certificate that belongs to another private key.
    std::fs::write(keys.path(CERTIFICATE), keys.authority.server("third").certificate).unwrap();
    assert_eq!(holder(&keys, &server), "second");
    keys.put(&keys.authority.server("fourth"));
    assert_eq!(holder(&keys, &server), "fourth");
    first.read(0, 512).unwrap();
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let refused = |change: &dyn Fn(&Keys)| {
        let keys = Keys::new();
        change(&keys);
        let protection = Protection::Tls(keys.folder.path().to_owned());
        common::refused(bare("1M"), move |path| {
            let address = NbdAddress::Unix(path.join("nbd"));
            vec![Listen::Nbd(NbdListen { address, protection })]
        })
    };
    let write =
        |keys: &Keys, name: &str, text: &str| std::fs::write(keys.path(name), text).unwrap();
    let gone = refused(&|keys| std::fs::remove_file(keys.path(KEY)).unwrap());
    assert!(gone.contains("server-key.pem: No such file") && gone.contains("weft keys"), "{gone}");
    let open = refused(&|keys| {
        std::fs::set_permissions(keys.path(KEY), PermissionsExt::from_mode(0o644)).unwrap();
    });
    assert!(open.contains("server-key.pem: found mode 0644"), "{open}");
    for (name, text) in [
        (AUTHORITY, ""),
        (AUTHORITY, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        (CERTIFICATE, "-----BEGIN CERTIFICATE-----\n"),
        (CERTIFICATE, "text"),
        (KEY, "text"),
        (KEY, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    ] {
        let error = refused(&|keys| write(keys, name, text));
        assert!(error.contains(&format!("/{name}: ")), "{name} {text:?}: {error}");
    }
    let long = refused(&|keys| write(keys, AUTHORITY, &"x".repeat((1 << 20) + 1)));
    assert!(long.contains("ca-cert.pem: found more than 1048576 bytes"), "{long}");
}

/// Bytes of any content in place of a handshake, and behind one. `WEFT_FUZZ_SEED=n` sets another
/// seed, as `cargo xtask long fuzz` does.
#[test]
fn damaged_records_harm_only_themselves() {
    let cases = fuzz::cases(2000) as u64;
    let keys = Keys::new();
    let server = keys.serve(bare("1M"));
    let pair = keys.authority.client();
    let config = Arc::new(keys.config(Some(&pair), &TLS13));
    let (mut alerts, mut silent, mut good) = (0, 0, 0);
    for case in 0..cases {
        let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(case));
        if case % 16 == 0 {
            // Damage within an open session ends it.
            let mut client = keys.connect(&server, Some(&pair)).unwrap();
            client.send(Op::Read { offset: 0, len: 512, df: false }, &[]);
            let mut record = vec![0; 5 + rng.below(600) as usize];
            record.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
            let len = u16::try_from(record.len() - 5).unwrap();
            record[..3].copy_from_slice(&[23, 3, 3]);
            record[3..5].copy_from_slice(&len.to_be_bytes());
            client.stream.stream.sock.write_all(&record).unwrap();
            client.stream.stream.sock.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            let _ = client.stream.stream.sock.read_to_end(&mut rest);
            good += 1;
            continue;
        }
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        for _ in 0..=rng.below(4) {
            let at = rng.below(hello.len() as u64) as usize;
            match rng.below(4) {
                0 => hello[at] = rng.next_u64() as u8,
                1 => hello[at] ^= 1 << rng.below(8),
                2 => hello.truncate(at.max(1)),
                _ => hello.insert(at, rng.next_u64() as u8),
            }
        }
        let (mut stream, _) = start_tls(&server, &[]);
        stream.write_all(&hello).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        match answer.first() {
            Some(21) => alerts += 1,
            _ => silent += 1,
        }
    }
    assert!(alerts > cases / 4 && silent > 0 && good > 0, "{alerts} {silent} {good}");
    keys.connect(&server, Some(&pair)).unwrap().read(0, 512).unwrap();
    server.settled();
}
