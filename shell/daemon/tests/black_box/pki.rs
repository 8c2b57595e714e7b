//! Certificates of one test: an authority, a node, clients; and TLS clients that use them.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sedge_daemon::config::ListenerConfig;

use crate::common::PATIENCE;

/// An authority with a directory for what it signs.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    ca_file: PathBuf,
}

/// Files of a certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca_file = dir.join(format!("{name}.crt"));
        fs::write(&ca_file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { dir: dir.to_owned(), issuer: Issuer::new(params, key), ca_file }
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.ca_file.clone()
    }

    /// Signs a certificate for `name`, also as a host.
    pub(crate) fn sign(&self, name: &str) -> Identity {
        self.sign_as(name, CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// The same, and it counts no longer.
    pub(crate) fn sign_expired(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        self.sign_as(name, params)
    }

    fn sign_as(&self, name: &str, mut params: CertificateParams) -> Identity {
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let files = Identity { cert: self.dir.join(format!("{name}.crt")), key: self.dir.join(format!("{name}.key")) };
        fs::write(&files.cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// A listener on a free port of loopback with a certificate for `localhost`.
    pub(crate) fn listener(&self) -> ListenerConfig {
        let node = self.sign("localhost");
        ListenerConfig { cert_file: Some(node.cert), key_file: Some(node.key), ..loopback() }
    }

    /// How a client trusts this authority, and which certificate it shows.
    pub(crate) fn client(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca_file).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        })
    }
}

/// A listener on a free port of loopback.
pub(crate) fn loopback() -> ListenerConfig {
    ListenerConfig { bind: [127, 0, 0, 1].into(), port: Some(0), ..ListenerConfig::default() }
}

/// A TLS connection after its handshake, or why there is none.
pub(crate) fn dial(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let mut session = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap()).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}
