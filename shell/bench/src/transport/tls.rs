//! MQTT over TLS.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::tcp::Tcp;
use super::{Pipe, Transport};
use crate::error::BenchError;

/// Whom encrypted connections trust, and who they say they are.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TlsFiles {
    /// Certificates of authorities that brokers are trusted by (PEM) [default: those of the system]
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// Take any certificate: the load is encrypted all the same
    #[arg(long)]
    pub insecure: bool,
    /// Certificate of the clients, with what leads to its authority (PEM)
    #[arg(long)]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long)]
    pub key: Option<PathBuf>,
    /// The only version of TLS to offer; `None`: 1.2 and 1.3.
    #[arg(skip)]
    pub version: Option<&'static rustls::SupportedProtocolVersion>,
}

/// Which brokers are trusted, and what they are shown.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Arc<ClientConfig>);

/// An error that names the flag and its file.
fn unusable(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Usage(format!("--{flag} {}: {error}", path.display()))
}

/// The certificates of the file `path`, or of all files of the directory `path`, of which there has to be one.
fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, BenchError> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| unusable(flag, path, &error))?;
        let mut files: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
        // Such directories also hold lists of revoked certificates and the like.
        let all: Vec<_> = files.iter().filter_map(|file| certificates(flag, file).ok()).flatten().collect();
        return if all.is_empty() { Err(unusable(flag, path, &"no certificate in this directory")) } else { Ok(all) };
    }
    let wrong = |error: &dyn std::fmt::Display| unusable(flag, path, error);
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    if all.is_empty() { Err(wrong(&"no certificate in this file")) } else { Ok(all) }
}

/// Authorities that this machine trusts.
fn system_roots() -> Result<RootCertStore, BenchError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(BenchError::Usage(format!(
            "TLS: this system has no certificates of authorities{why}; name those to trust with --ca FILE"
        )));
    }
    Ok(roots)
}

/// Configuration of a TLS client, from its files.
pub fn tls_client(files: &TlsFiles) -> Result<Arc<ClientConfig>, BenchError> {
    Trust::new(files, true).map(|trust| trust.0)
}

impl Trust {
    /// Trusts and shows the certificates in the files; without any, trusts the system's authorities, which are read if it `is_used`.
    pub(crate) fn new(files: &TlsFiles, is_used: bool) -> Result<Self, BenchError> {
        let unsupported = |error: &dyn std::fmt::Display| BenchError::Usage(format!("TLS: {error}"));
        let mut roots = RootCertStore::empty();
        if let Some(path) = &files.ca {
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(|error| unusable("ca", path, &error))?;
            }
        } else if is_used && !files.insecure {
            roots = system_roots()?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(files.version.as_ref().map_or(rustls::DEFAULT_VERSIONS, std::slice::from_ref))
            .map_err(|error| unsupported(&error))?;
        let builder = if files.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Everybody(provider)))
        } else {
            builder.with_root_certificates(roots)
        };
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("key", key, &error))?;
                let shown = certificates("cert", cert)?;
                builder.with_client_auth_cert(shown, secret).map_err(|error| unusable("cert", cert, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (None, Some(_)) => return Err(BenchError::Usage("--key belongs to a --cert, which is missing".to_owned())),
            (Some(_), None) => return Err(BenchError::Usage("--cert belongs to a --key, which is missing".to_owned())),
        };
        Ok(Self(Arc::new(config)))
    }
}

/// Error for a session that TLS refused, with its remedy. Another attempt would end the same way.
fn refused(error: &rustls::Error) -> io::Error {
    let wanted = [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnknownCA,
        AlertDescription::DecryptError,
    ];
    let advice = if matches!(error, rustls::Error::InvalidCertificate(_)) {
        "; --ca names whom to trust instead of the system, --insecure takes any certificate"
    } else if wanted.iter().any(|alert| *error == rustls::Error::AlertReceived(*alert)) {
        "; the broker wants a certificate it knows: --cert and --key"
    } else {
        ""
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}{advice}"))
}

/// Takes any certificate, but the broker still has to own it.
#[derive(Debug)]
struct Everybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Everybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A TLS connection.
pub(super) struct Tls {
    below: Tcp,
    session: ClientConnection,
}

/// The TCP connection as the TLS session reads and writes it.
struct Raw<'a>(&'a mut Tcp);

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    pub(super) fn new(below: Tcp, host: &str, trust: &Trust) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&trust.0), name).map_err(io::Error::other)?;
        Ok(Self { below, session })
    }

    /// Reads records that are there; how many bytes they are, 0 at the end of the stream, none if there are none now.
    fn fill(&mut self) -> io::Result<Option<usize>> {
        match self.session.read_tls(&mut Raw(&mut self.below)) {
            Ok(length) => {
                if let Err(error) = self.session.process_new_packets() {
                    // The alert that tells the broker why; whether it still hears it does not matter.
                    let _ = self.flush();
                    return Err(refused(&error));
                }
                Ok(Some(length))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Pipe for Tls {
    fn open(&mut self) -> io::Result<bool> {
        if !self.below.open()? {
            return Ok(false);
        }
        while self.session.is_handshaking() {
            if !self.flush()? {
                return Ok(false);
            }
            if self.session.is_handshaking() {
                match self.fill()? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(_) => {}
                    None => return Ok(false),
                }
            }
        }
        self.flush()?;
        Ok(true)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Many brokers close without the farewell of TLS; for a load generator that is an end like any other.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.fill()?.is_none() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(from)?;
        let empty = self.flush()?;
        if taken == 0 && !empty {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if taken == 0 { self.session.writer().write(from) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Raw(&mut self.below)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Transport for Tls {
    fn socket(&mut self) -> &mut TcpStream {
        self.below.socket()
    }

    fn short_read_is_last(&self) -> bool {
        false
    }
}
