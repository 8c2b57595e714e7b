//! Connections to the remote broker.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::{Poll, Token};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sedge_mqtt::{ConnAck, Connect, ConnectProperties, QoS, TopicName, Utf8, Version, Will, WillProperties};
use socket2::SockRef;

use crate::config::{BridgeConfig, Direction, Tls};
use crate::error::BridgeError;
use crate::wire::{PATIENCE, Stream, Wire, greet};

/// How errors call it.
const END: &str = "the remote broker";
const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;

/// Host and port of an address; the port that is usual if there is none.
fn split(address: &str, tls: bool) -> (String, u16) {
    let default = if tls { TLS_PORT } else { PORT };
    if let Some((host, rest)) = address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
        return (host.to_owned(), port.unwrap_or(default));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host.to_owned(), port.parse().unwrap_or(default)),
        Some(_) | None => (address.to_owned(), default),
    }
}

/// Connects to the broker at `address` and says CONNECT.
pub(crate) fn dial(
    poll: &mut Poll,
    token: Token,
    (config, address): (&BridgeConfig, &str),
    connect: Connect,
    goes_on: impl Fn() -> bool,
) -> Result<(Wire, ConnAck), BridgeError> {
    let (host, port) = split(address, config.tls.enabled);
    let unreachable = |source| BridgeError::Unreachable { address: address.to_owned(), source };
    let socket = open(&host, port).map_err(unreachable)?;
    socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).map_err(unreachable)?;
    if config.keep_alive > 0 {
        // A path that is dead takes no bytes, however many wait; a slow one takes some.
        let silence = Duration::from_secs(2 * u64::from(config.keep_alive));
        SockRef::from(&socket).set_tcp_user_timeout(Some(silence)).map_err(unreachable)?;
    }
    let tls = if config.tls.enabled { Some(Box::new(encrypt(&config.tls, &host)?)) } else { None };
    let stream = Stream::Tcp(mio::net::TcpStream::from_std(socket));
    let mut wire = Wire::new(poll, token, stream, tls, (config.version, END))?;
    let ack = greet(&mut wire, poll, connect, goes_on)?;
    Ok((wire, ack))
}

/// Tries all addresses behind the name.
fn open(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE / 2) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// CONNECT of the bridge `name` of `cluster`, which takes `window` QoS 1 and 2 messages at once.
pub(crate) fn connect(config: &BridgeConfig, cluster: &str, name: &str, window: u16) -> Result<Connect, BridgeError> {
    let client_id =
        if config.client_id.is_empty() { format!("sedge-{cluster}-{name}") } else { config.client_id.clone() };
    let v5 = config.version == Version::V5;
    let properties = ConnectProperties {
        session_expiry: v5.then_some(u32::MAX),
        receive_maximum: v5.then_some(window.max(1)),
        ..ConnectProperties::default()
    };
    let password = config.read_password().map_err(BridgeError::File)?;
    Ok(Connect {
        version: config.version,
        // Without it a broker of 3.1.1 sends back what came from here: No Local is 5.0's.
        bridge: !v5 && config.direction == Direction::Both,
        // The session at the other end lives as long as the bridge: QoS 2 handshakes go on in it.
        clean_start: false,
        keep_alive: config.keep_alive,
        client_id: Utf8::new(&client_id).unwrap_or_default(),
        will: notification(config, "0").map(Box::new),
        username: Utf8::new(&config.username).ok().filter(|name| !name.is_empty()),
        password: password.map(Bytes::from),
        properties,
    })
}

/// The message at the notifications topic.
fn notification(config: &BridgeConfig, payload: &'static str) -> Option<Will> {
    let topic = TopicName::new(&config.notifications).ok()?;
    Some(Will {
        topic,
        payload: Bytes::from_static(payload.as_bytes()),
        qos: QoS::AtMostOnce,
        retain: true,
        properties: WillProperties::default(),
    })
}

fn encrypt(tls: &Tls, host: &str) -> Result<ClientConnection, BridgeError> {
    let failed = |error: &dyn std::fmt::Display| BridgeError::Tls(error.to_string());
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let config = client_config(tls)?;
    ClientConnection::new(Arc::new(config), name).map_err(|error| failed(&error))
}

/// Read anew at each connection: certificates are replaced while a node runs.
fn client_config(tls: &Tls) -> Result<ClientConfig, BridgeError> {
    let failed = |error: &dyn std::fmt::Display| BridgeError::Tls(error.to_string());
    let file = |key: &str, path: &Path, error: &dyn std::fmt::Display| {
        BridgeError::Tls(format!("{key} {}: {error}", path.display()))
    };
    let read = |key: &str, path: &Path| {
        let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        all.map_err(|error| file(key, path, &error))
    };
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
        Some(path) => {
            for certificate in read("ca_file", path)? {
                roots.add(certificate).map_err(|error| file("ca_file", path, &error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(BridgeError::Tls("there is no authority to trust: write ca_file".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots);
    match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file("key_file", key, &error))?;
            builder
                .with_client_auth_cert(read("cert_file", cert)?, secret)
                .map_err(|error| file("cert_file", cert, &error))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_usual_port() {
        let split = |address, tls| {
            let (host, port) = split(address, tls);
            format!("{host} {port}")
        };
        assert_eq!(split("cloud", false), "cloud 1883");
        assert_eq!(split("cloud", true), "cloud 8883");
        assert_eq!(split("cloud:99", true), "cloud 99");
        assert_eq!(split("[::1]:99", false), "::1 99");
        assert_eq!(split("::1", false), "::1 1883");
    }
}
