//! MQTT over TLS.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Transport;
use super::tcp::Tcp;
use crate::error::BenchError;

/// Which brokers are trusted.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Trusts what the authorities in the file `ca` have signed, or everybody.
    pub(crate) fn new(ca: Option<&Path>, insecure: bool) -> Result<Self, BenchError> {
        let unusable = |error: &dyn std::fmt::Display| BenchError::Usage(format!("TLS: {error}"));
        let mut roots = RootCertStore::empty();
        if let Some(path) = ca {
            let wrong = |error: &dyn std::fmt::Display| BenchError::Usage(format!("{}: {error}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            }
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let config = if insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Everybody(provider))).with_no_client_auth()
        } else {
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        Ok(Self(Arc::new(config)))
    }
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
                self.session.process_new_packets().map_err(io::Error::other)?;
                Ok(Some(length))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Transport for Tls {
    fn socket(&mut self) -> &mut TcpStream {
        self.below.socket()
    }

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

    fn short_read_is_last(&self) -> bool {
        false
    }
}
