//! `weft keys`: certificates of TLS for servers and clients, signed by an authority that weft
//! makes.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use weft_export::keys::{self, AUTHORITY, CERTIFICATE, Certificate, KEY, TOLD_BEFORE_END};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Kind, Output, ResultFile};
use weft_terminal::terminal::{label, print_json, printable_stdout};

use crate::configuration::default_keys;
use crate::result_kinds;
use crate::when::hostname;

/// Makes and shows keys of TLS, for volumes at nbds:// and for their clients
///
/// The first use makes an authority. Its private key, ca-key.pem, is needed for further
/// certificates and never by a server or client: keep it where no server can read it. A server that
/// runs takes new files for the next client. Without --server, --client and --renew the
/// certificates of DIR are shown. Exit status: 1 when one of them has ended or ends within 30 days.
#[derive(Debug, Args)]
pub(crate) struct KeysOf {
    /// Make the keys of a server that clients know by this name or address; several times for
    /// several names
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Make the keys of a client, in DIR/clients/NAME: a folder that libnbd, nbdkit and QEMU read
    #[arg(long, value_name = "NAME", value_parser = client)]
    client: Vec<String>,
    /// Make the certificate of the server anew, with its names and its private key
    #[arg(long, conflicts_with_all = ["server", "client"])]
    renew: bool,
    /// Days after which certificates end
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=3650)
    )]
    days: u32,
    /// Overwrite keys and certificates of a server or client
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Folder of the keys [default: /etc/weft/keys for root, else ~/.config/weft/keys]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &KeysOf) -> Outcome {
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => default_keys()?,
    };
    let makes = !arguments.server.is_empty() || !arguments.client.is_empty();
    if makes || arguments.renew {
        let names = match arguments.renew {
            true => Certificate::read(&folder.join(CERTIFICATE)).map_err(Failure::Failed)?.names,
            false => arguments.server.clone(),
        };
        make(arguments, &folder, &names)?;
    }
    show(arguments, &folder)
}

/// Makes the keys of a server with these names, unless there are none, and those of each client
/// that the arguments name.
fn make(arguments: &KeysOf, folder: &Path, names: &[String]) -> Result<(), Failure> {
    make_folder(folder)?;
    let authority = Authority::of(folder)?;
    if let Some(holder) = names.first() {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let asked = CertificateRequest { holder, names, usage, renew: arguments.renew };
        authority.make(arguments, folder, (CERTIFICATE, KEY), &asked)?;
    }
    for holder in &arguments.client {
        let folder = folder.join("clients").join(holder);
        make_folder(&folder)?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let asked = CertificateRequest { holder, names: &[], usage, renew: false };
        authority.make(arguments, &folder, ("client-cert.pem", "client-key.pem"), &asked)?;
        let path = folder.join(AUTHORITY);
        file(&path, result_kinds::CERTIFICATE, true)?.write(&authority.certificate)?;
    }
    Ok(())
}

/// Description of a certificate that is to be made.
struct CertificateRequest<'a> {
    holder: &'a str,
    names: &'a [String],
    usage: ExtendedKeyUsagePurpose,
    /// Whether the certificate is replaced and its private key kept.
    renew: bool,
}

/// The certificate authority, which signs certificates.
struct Authority {
    /// Certificate of the authority, in PEM.
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the authority in a folder; makes one if the folder has neither its certificate nor its
    /// key.
    fn of(folder: &Path) -> Result<Self, Failure> {
        let (certificate, key) = (folder.join(AUTHORITY), folder.join(AUTHORITY_KEY));
        match (certificate.exists(), key.exists()) {
            (false, false) => Self::make_new(&certificate, &key)?,
            (true, false) => {
                return Err(Failure::refused(format!(
                    "{}: found an authority without its private key {AUTHORITY_KEY}, expected both: \
                     make certificates where that key is",
                    label(folder)
                )));
            }
            (_, true) => {}
        }
        let key = KeyPair::from_pem(&text(&key)?).map_err(|error| unusable(&key, &error))?;
        let pem = text(&certificate)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key);
        let issuer = issuer.map_err(|error| unusable(&certificate, &error))?;
        Ok(Self { certificate: pem, issuer })
    }

    fn make_new(certificate: &Path, key: &Path) -> Result<(), Failure> {
        let mut params = params(&format!("weft authority of {}", hostname()), &[], AUTHORITY_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pair = KeyPair::generate().map_err(|error| unusable(key, &error))?;
        let made = params.self_signed(&pair).map_err(|error| unusable(certificate, &error))?;
        let (certificate, key) = (
            file(certificate, result_kinds::CERTIFICATE, false)?,
            file(key, result_kinds::PRIVATE_KEY, false)?.private()?,
        );
        key.write(pair.serialize_pem())?;
        certificate.write(made.pem())
    }

    /// Makes a certificate and a private key, in files with these names in `folder`. For a renewal,
    /// the key in its file is used and stays.
    fn make(
        &self,
        arguments: &KeysOf,
        folder: &Path,
        (certificate, key): (&str, &str),
        asked: &CertificateRequest<'_>,
    ) -> Result<(), Failure> {
        let force = arguments.force || asked.renew;
        let (certificate, key) = (folder.join(certificate), folder.join(key));
        let certificate_file = file(&certificate, result_kinds::CERTIFICATE, force)?;
        let pair = if asked.renew { KeyPair::from_pem(&text(&key)?) } else { KeyPair::generate() };
        let pair = pair.map_err(|error| unusable(&key, &error))?;
        let mut params = params(asked.holder, asked.names, arguments.days)?;
        params.extended_key_usages = vec![asked.usage.clone()];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let made = params.signed_by(&pair, &self.issuer);
        let made = made.map_err(|error| unusable(&certificate, &error))?;
        if !asked.renew {
            let key_file = file(&key, result_kinds::PRIVATE_KEY, force)?.private()?;
            key_file.write(pair.serialize_pem())?;
        }
        certificate_file.write(made.pem())
    }
}

fn params(holder: &str, names: &[String], days: u32) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(names).map_err(|error| {
        let names = names.join(", ");
        Failure::usage(format!("--server {names}: {error}; expected a host name or an address"))
    })?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, holder);
    let now = SystemTime::now();
    // Clocks of other machines may be behind.
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
    let mut serial = [0; 16];
    getrandom(&mut serial, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    // A positive number without leading zeroes.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// Prints the certificates in a folder, those of its clients too. Fails if one of them has ended or
/// ends soon.
fn show(arguments: &KeysOf, folder: &Path) -> Outcome {
    let mut paths = vec![folder.join(AUTHORITY), folder.join(CERTIFICATE)];
    let clients = std::fs::read_dir(folder.join("clients"));
    let mut clients: Vec<PathBuf> =
        clients.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    clients.sort();
    paths.extend(clients.into_iter().map(|client| client.join("client-cert.pem")));
    let present = paths.into_iter().filter(|path| path.exists());
    let mut found = Vec::new();
    for path in present {
        let certificate = Certificate::read(&path).map_err(Failure::Failed)?;
        found.push((path, certificate));
    }
    if found.is_empty() {
        return Err(Failure::failed(format!(
            "{}: found no certificate; weft keys --server NAME makes those of a server",
            label(folder)
        )));
    }
    let now = SystemTime::now();
    if arguments.json {
        let certificates: Vec<Value> =
            found.iter().map(|(path, certificate)| to_json(path, certificate, now)).collect();
        print_json(&json!({"schema": "weft.keys/1", "certificates": certificates}))?;
    } else {
        let mut out = printable_stdout();
        for (path, certificate) in &found {
            let holder = &certificate.holder;
            let (left, names) = (end(certificate, now), certificate.names.join(", "));
            let names = if names.is_empty() { names } else { format!(" for {names}") };
            writeln!(out, "{}: {holder}{names}, {left}", label(path))?;
        }
    }
    let ending: Vec<String> = found
        .iter()
        .filter(|(_, certificate)| certificate.left(now) < TOLD_BEFORE_END)
        .map(|(path, certificate)| format!("{}: {}", label(path), end(certificate, now)))
        .collect();
    match ending.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Failure::failed(format!(
            "{}; weft keys --renew makes a server's anew, --client NAME --force a client's",
            ending.join("; ")
        ))),
    }
}

fn to_json(path: &Path, certificate: &Certificate, now: SystemTime) -> Value {
    let Certificate { holder, names, ends } = certificate;
    json!({
        "file": label(path),
        "holder": holder,
        "names": names,
        "ends": ends.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        "days": days(certificate.left(now)),
    })
}

/// Text about the time that is left until a certificate ends: `ends in 30 days`.
fn end(certificate: &Certificate, now: SystemTime) -> String {
    match certificate.left(now) {
        Duration::ZERO => "has ended".to_owned(),
        left => format!("ends in {} days", days(left)),
    }
}

fn days(span: Duration) -> u64 {
    span.as_secs().div_ceil(DAY.as_secs())
}

fn file(path: &Path, kind: Kind, force: bool) -> Result<ResultFile, Failure> {
    ResultFile::at(&Output { option: "keys", path, kind, force, members: &[] })
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| Failure::failed(format!("{}: {error}", label(folder))))
}

fn text(path: &Path) -> Result<String, Failure> {
    let bytes = keys::read(path).map_err(Failure::Failed)?;
    String::from_utf8(bytes).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn Display) -> Failure {
    Failure::failed(format!("{}: {error}", label(path)))
}

/// Checks the name of a client, which becomes the name of a folder, and returns it. The error
/// states the expected form.
fn client(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.chars().all(is_plain)
    {
        true => Ok(name.to_owned()),
        false => {
            Err("expected letters, digits, '-', '_' and '.', at most 64, not '.' first".into())
        }
    }
}

/// Name of the file with the private key of the authority.
const AUTHORITY_KEY: &str = "ca-key.pem";
/// Number of days after which the certificate of an authority ends.
const AUTHORITY_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(24 * 3600);
