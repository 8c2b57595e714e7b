//! How links between nodes are encrypted: TLS 1.3, with a key that the node makes at its start, or with certificates of the cluster's
//! own authority, read from files and exchanged while links live on.
//!
//! A key made at the start proves nothing, and need not: both sides prove `cluster.key` over the exporter value of the connection
//! (`docs/protocol/link.md`, "Encryption").

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use ::ring::rand::SystemRandom;
use ::ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use super::certificates::{certificates, private_key, roots};
use super::{Secured, Unusable};

/// Where the certificates of a node are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// The authority of the cluster: whoever has a certificate of it may be a node.
    pub(crate) ca: PathBuf,
}

/// TLS configuration of new links.
#[derive(Debug)]
pub(crate) struct ClusterTls {
    /// `None`: a key of this process.
    files: Option<NodeFiles>,
    current: RwLock<Sides>,
}

#[derive(Clone, Debug)]
struct Sides {
    dialler: Arc<ClientConfig>,
    acceptor: Arc<ServerConfig>,
}

impl ClusterTls {
    pub(crate) fn load(files: Option<NodeFiles>) -> Result<Self, Unusable> {
        let current = RwLock::new(sides(files.as_ref())?);
        Ok(Self { files, current })
    }

    /// Whether there are files to read again.
    pub(crate) const fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Reads the files again; the former content stays in use if they cannot be used. Links keep the configuration with which they began.
    pub(crate) fn reload(&self) -> Result<(), Unusable> {
        let fresh = sides(self.files.as_ref())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The session of a link that this node dials.
    pub(crate) fn dial(&self, peer: SocketAddr) -> Result<Secured, Error> {
        let config = self.current().dialler;
        let name = ServerName::IpAddress(peer.ip().into());
        Ok(Secured::new(rustls::ClientConnection::new(config, name)?.into()))
    }

    /// The session of a link that this node accepts.
    pub(crate) fn accept(&self) -> Result<Secured, Error> {
        Ok(Secured::new(rustls::ServerConnection::new(self.current().acceptor)?.into()))
    }

    fn current(&self) -> Sides {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn sides(files: Option<&NodeFiles>) -> Result<Sides, Unusable> {
    let provider = Arc::new(ring::default_provider());
    let (mut dialler, mut acceptor) = match files {
        Some(files) => with_certificates(files, &provider)?,
        None => with_own_key(&provider).map_err(|error| ("key", format!("cannot encrypt links: {error}")))?,
    };
    // Links are few and live long: nothing is kept to shorten a later handshake.
    acceptor.send_tls13_tickets = 0;
    dialler.resumption = Resumption::disabled();
    dialler.enable_sni = false;
    Ok(Sides { dialler: Arc::new(dialler), acceptor: Arc::new(acceptor) })
}

fn with_own_key(provider: &Arc<CryptoProvider>) -> Result<(ClientConfig, ServerConfig), Error> {
    let fault = |what: &str| Error::General(what.to_owned());
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
        .map_err(|error| fault(&format!("no key could be made: {error}")))?;
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(pair.as_ref().to_vec()).into())?;
    let public = key.public_key().ok_or_else(|| fault("the key has no public half"))?;
    let own = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
    let acceptor = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(own))));
    let dialler = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey(Arc::clone(provider))))
        .with_no_client_auth();
    Ok((dialler, acceptor))
}

fn with_certificates(
    files: &NodeFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<(ClientConfig, ServerConfig), Unusable> {
    let unusable = |key: &'static str| move |what: String| (key, what);
    let chain = certificates(&files.cert).map_err(unusable("cert_file"))?;
    let key = || private_key(&files.key).map_err(unusable("cert_key_file"));
    let roots = Arc::new(roots(&files.ca).map_err(unusable("ca_file"))?);
    let authority = Authority { roots: Arc::clone(&roots), provider: Arc::clone(provider) };
    check_own(&authority, &chain).map_err(|error| {
        let (cert, ca) = (files.cert.display(), files.ca.display());
        ("cert_file", format!("other nodes with the authority {ca} would not accept {cert}: {error}"))
    })?;
    let pair = |error: Error| {
        ("cert_file", format!("{} and {} do not go together: {error}", files.cert.display(), files.key.display()))
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| ("ca_file", format!("{}: {error}", files.ca.display())))?;
    let acceptor = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key()?)
        .map_err(pair)?;
    let dialler = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(pair)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(authority))
        .with_client_auth_cert(chain, key()?)
        .map_err(pair)?;
    Ok((dialler, acceptor))
}

/// Whether other nodes would accept the certificate, but for its dates: the clock of a machine may be set after its start.
fn check_own(authority: &Authority, chain: &[CertificateDer<'static>]) -> Result<(), Error> {
    let Some((own, between)) = chain.split_first() else { return Ok(()) };
    match authority.verify(own, between, UnixTime::now()) {
        Err(Error::InvalidCertificate(
            error @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => {
            tracing::warn!(%error, "cluster.cert_file: other nodes refuse this certificate at this time");
            Ok(())
        }
        other => other,
    }
}

/// The error for a signature of TLS 1.2.
fn former_tls() -> Error {
    Error::General("links are encrypted with TLS 1.3 only".to_owned())
}

/// Takes every key: the connection itself proves who owns the key.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(former_tls())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Takes certificates that the cluster's authority has signed, whatever names they bear: addresses of nodes change, and none of
/// them is more than another.
#[derive(Debug)]
struct Authority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Authority {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, between, now, algorithms)
    }
}

impl ServerCertVerifier for Authority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(certificate, between, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(former_tls())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
