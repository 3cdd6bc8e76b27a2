//! TLS keys of a server: a folder with its certificate, its private key and the authority's
//! certificate.
//!
//! The files have the names that libnbd, nbdkit and QEMU expect: [`AUTHORITY`], [`CERTIFICATE`] and
//! [`KEY`]. The authority (CA) is the one that signs the certificates of clients: a client is
//! served if the authority has signed its certificate. The files are read again when they have
//! changed, for the next client, so that keys are renewed without a stop; new files that are not
//! usable are logged, and the former ones stay in use. No session is resumed: each client shows its
//! certificate.
//!
//! Source   the NBD URI specification, "tls-certificates"; reliability.md §8

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use x509_parser::extensions::GeneralName;

use crate::error::ServeError;

/// Name of the file with the certificate of the authority that signs clients' certificates.
pub const AUTHORITY: &str = "ca-cert.pem";
/// Name of the file with the certificate of a server.
pub const CERTIFICATE: &str = "server-cert.pem";
/// Name of the file with the private key of a server.
pub const KEY: &str = "server-key.pem";
/// Time before the expiry of a certificate from which on the log warns of the expiry: 30 days.
pub const TOLD_BEFORE_END: Duration = Duration::from_secs(30 * 24 * 3600);

/// Facts that a certificate states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Common name of the subject; empty if the certificate has none.
    pub holder: String,
    /// Names and addresses of servers for which the certificate is valid.
    pub names: Vec<String>,
    /// Time at which the certificate expires.
    pub ends: SystemTime,
}

impl Certificate {
    /// Reads the first certificate of a PEM file.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::parse(&certificates(path)?[0]).map_err(|what| format!("{}: {what}", path.display()))
    }

    fn parse(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der)
            .map_err(|error| format!("found no certificate of X.509 ({error})"))?;
        let holder = certificate.subject().iter_common_name().next();
        let holder = holder.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned();
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        Ok(Self {
            holder,
            names: names.filter_map(name_of).collect(),
            ends: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        })
    }

    /// Time from `now` until the certificate expires; zero if it has expired.
    #[must_use]
    pub fn left(&self, now: SystemTime) -> Duration {
        self.ends.duration_since(now).unwrap_or_default()
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            _ => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
        },
        _ => None,
    }
}

/// TLS keys of a server, loaded again when their files change.
#[derive(Debug)]
pub(crate) struct Keys {
    folder: PathBuf,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    certificate: Certificate,
    /// State of the files when they were last read.
    stamp: Vec<Stamp>,
    /// Time at which the log last said that the certificate is about to expire; `None` if it has
    /// not.
    told: Option<SystemTime>,
}

/// State of a file, by which a change is found: device, inode, size, and time of the change. `None`
/// if the file does not exist.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl Keys {
    /// Reads the keys of a folder; an error if they are not usable.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, ServeError> {
        let stamp = stamp_of(&folder);
        let (config, certificate) = load(&folder).map_err(ServeError::Refused)?;
        let keys = Loaded { config, certificate, stamp, told: None };
        let keys = Self { folder, loaded: Mutex::new(keys) };
        keys.config();
        Ok(keys)
    }

    /// TLS configuration for the next client. Keys that have changed on disk are loaded first; if
    /// they are not usable, the former ones stay in use.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp_of(&self.folder);
        if stamp != loaded.stamp {
            match load(&self.folder) {
                Ok((config, certificate)) => {
                    let folder = self.folder.display();
                    tracing::info!(%folder, "keys have changed, the next client gets the new ones");
                    *loaded = Loaded { config, certificate, stamp, told: None };
                }
                Err(error) => {
                    tracing::error!(error, "new keys are not usable, the former ones stay in use");
                    loaded.stamp = stamp;
                }
            }
        }
        self.tell_end(&mut loaded, SystemTime::now());
        Arc::clone(&loaded.config)
    }

    /// Logs, at most once a day, that the certificate expires within [`TOLD_BEFORE_END`].
    fn tell_end(&self, loaded: &mut Loaded, now: SystemTime) {
        let left = loaded.certificate.left(now);
        let is_due = loaded.told.is_none_or(|told| told + DAY <= now);
        if left < TOLD_BEFORE_END && is_due {
            loaded.told = Some(now);
            let (file, days) = (self.folder.join(CERTIFICATE), left.as_secs() / DAY.as_secs());
            tracing::warn!(file = %file.display(), days, "certificate ends: renew it (weft keys)");
        }
    }
}

fn stamp_of(folder: &Path) -> Vec<Stamp> {
    let stamp = |name: &str| {
        let found = std::fs::metadata(folder.join(name)).ok()?;
        Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
    };
    [AUTHORITY, CERTIFICATE, KEY].map(stamp).into()
}

fn load(folder: &Path) -> Result<(Arc<ServerConfig>, Certificate), String> {
    let named = |name: &str, what: &dyn std::fmt::Display| {
        format!("{}: {what}; weft keys makes keys", folder.join(name).display())
    };
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(&folder.join(AUTHORITY))? {
        authorities.add(certificate).map_err(|error| named(AUTHORITY, &error))?;
    }
    let chain = certificates(&folder.join(CERTIFICATE))?;
    let facts = Certificate::parse(&chain[0]).map_err(|error| named(CERTIFICATE, &error))?;
    let key = private_key(&folder.join(KEY))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(authorities.into(), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| named(AUTHORITY, &error))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| named(CERTIFICATE, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| named(KEY, &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), facts))
}

/// Reads the certificates of a PEM file: at least one. The error is a sentence that names the file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{}: found no CERTIFICATE section of PEM", path.display()));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(path)?;
    let mode = std::fs::metadata(path).map_or(0, |found| found.mode() & 0o777);
    if mode & 0o007 != 0 {
        return Err(format!(
            "{}: found mode {mode:04o}, expected a private key that others cannot use: chmod 600",
            path.display()
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a whole file with a certificate or a key.
///
/// # Errors
/// A sentence that names the file: it does not exist, is no file, or is too long.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let found = std::fs::metadata(path)
        .map_err(|error| format!("{}; weft keys makes keys", named(&error)))?;
    if !found.is_file() {
        return Err(named(&"expected a file with PEM, found none"));
    }
    let file = std::fs::File::open(path).map_err(|error| named(&error))?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| named(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(named(&format!("found more than {FILE_BYTES_MAX} bytes, expected PEM")));
    }
    Ok(text)
}

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Largest size in bytes of a file that is read: some hundred certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;
