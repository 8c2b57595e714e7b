//! Layers below MQTT on a connection to a broker behind this node: TLS, and a PROXY header.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use proxy_header::{ProxiedAddress, ProxyHeader, SslInfo, Tlv};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use sedge_sidecar::Origin;

use super::Secured;
use super::certificates::roots;

/// How the broker is reached by TLS.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl UpstreamTls {
    /// For a broker of this name, whose certificate comes from this authority, or from one that the system trusts.
    pub(crate) fn load(host: &str, ca: Option<&Path>) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        let roots = match ca {
            Some(path) => roots(path)?,
            None => system_roots()?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name })
    }

    /// The session of one connection.
    pub(crate) fn dial(&self) -> Result<Secured, rustls::Error> {
        Ok(Secured::new(rustls::ClientConnection::new(Arc::clone(&self.config), self.name.clone())?.into()))
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        return Err("is missing, and the system trusts no authority".to_owned());
    }
    Ok(store)
}

/// A header of version 2 for a client. Without one, or where the broker has another kind of address, the node speaks for itself. A broker at a
/// Unix socket (`None`) has no address: the header names the unspecified one. A certificate's common name goes along as `PP2_SUBTYPE_SSL_CN`.
pub(crate) fn proxy_header(client: Option<&Origin>, broker: Option<SocketAddr>) -> Vec<u8> {
    let of_one_kind = client.and_then(|client| {
        let address = client.address.parse::<SocketAddr>().ok()?;
        let broker = broker.unwrap_or_else(|| unspecified(address));
        (address.is_ipv4() == broker.is_ipv4()).then_some(ProxiedAddress::stream(address, broker))
    });
    let mut header = of_one_kind.map_or_else(ProxyHeader::with_local, ProxyHeader::with_address);
    if let Some(name) = client.and_then(|client| client.certificate.as_deref()) {
        // Over TLS, with a certificate in this connection and this session, which was verified.
        let mut tls = SslInfo::new(true, true, true, 0);
        tls.append_tlv(Tlv::SslCn(name.into()));
        header.append_tlv(Tlv::Ssl(tls));
    }
    let mut bytes = Vec::new();
    // Only headers longer than 64 KiB cannot be written.
    if header.encode_v2(&mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

fn unspecified(like: SocketAddr) -> SocketAddr {
    let ip = if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}
