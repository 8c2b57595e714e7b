//! The load generator over TLS, with certificates of its own, and over WebSocket: every figure is what it is over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

use crate::common::{COUNTS, counts, figures, try_bench};
use crate::simulated::{Broker, Faults};

/// Time that a relay waits for one side before it looks at the other.
const TURN: Duration = Duration::from_millis(1);

/// Payload of the WebSocket pings.
const PING: &[u8] = b"still there?";

/// An authority, and certificates signed by it, as files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file");
        Self { issuer, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key` for whoever is called `host`.
    fn sign(&self, name: &str, host: &str) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file(&format!("{name}.pem")), certificate.pem()).expect("a file");
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).expect("a file");
    }

    /// A server with the certificate `name`, which asks clients for one of this authority if `mutual`.
    fn server(&self, name: &str, mutual: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let read = |path: &Path| CertificateDer::from_pem_file(path).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).expect("a key");
        let mut roots = RootCertStore::empty();
        roots.add(read(&self.file("ca.pem"))).expect("an authority");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions");
        let builder = if mutual {
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let certificate = read(&self.file(&format!("{name}.pem")));
        Arc::new(builder.with_single_cert(vec![certificate], key).expect("a server"))
    }
}

/// Bytes of MQTT in something else. Reading gives up after [`TURN`].
trait Carrier: Send {
    /// Appends what came to `bytes`; false at the end.
    fn take(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool>;
    fn give(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Whether a read without data found nothing yet; an error of the connection is passed on.
fn nothing_yet(error: io::Error) -> io::Result<bool> {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) { Ok(true) } else { Err(error) }
}

struct Plain<S>(S);

impl<S: Read + Write + Send> Carrier for Plain<S> {
    fn take(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 16_384];
        match self.0.read(&mut buffer) {
            Ok(length) => {
                bytes.extend_from_slice(buffer.get(..length).expect("what was read"));
                Ok(length > 0)
            }
            Err(error) => nothing_yet(error),
        }
    }

    fn give(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }
}

impl<S: Read + Write + Send> Carrier for WebSocket<S> {
    fn take(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        match self.read() {
            Ok(Message::Binary(more)) => bytes.extend_from_slice(&more),
            Ok(Message::Pong(answer)) => assert_eq!(&answer[..], PING),
            Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => return Ok(false),
            Ok(other) => panic!("MQTT comes in binary frames, not in {other:?}"),
            Err(tungstenite::Error::Io(error)) => return nothing_yet(error),
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }

    fn give(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Odd pieces and a ping between them: a packet may begin and end anywhere in a frame.
        for piece in bytes.chunks(1_000) {
            self.write(Message::Binary(piece.to_vec().into())).map_err(io::Error::other)?;
        }
        self.send(Message::Ping(PING.to_vec().into())).map_err(io::Error::other)
    }
}

fn relay(mut client: impl Carrier, broker: TcpStream) -> io::Result<()> {
    broker.set_read_timeout(Some(TURN))?;
    let mut broker = Plain(broker);
    let mut bytes = Vec::new();
    loop {
        let open = client.take(&mut bytes)?;
        if !bytes.is_empty() {
            broker.give(&bytes)?;
            bytes.clear();
        }
        if !open || !broker.take(&mut bytes)? {
            return Ok(());
        }
        if !bytes.is_empty() {
            client.give(&bytes)?;
            bytes.clear();
        }
    }
}

#[expect(clippy::result_large_err, clippy::unnecessary_wraps, reason = "what the library calls has this type")]
fn mqtt(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let header = "Sec-WebSocket-Protocol";
    assert_eq!(request.headers().get(header).map(HeaderValue::as_bytes), Some(b"mqtt".as_slice()));
    response.headers_mut().insert(header, HeaderValue::from_static("mqtt"));
    Ok(response)
}

/// Brings what comes to a port of its own to `broker`, out of TLS if there is a `config`, and out of WebSocket if asked.
fn front(broker: SocketAddr, config: Option<Arc<ServerConfig>>, websocket: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let inner = TcpStream::connect(broker)?;
                // Connections end as their clients want it; what is left is seen in the figures.
                match config {
                    None => frame(stream.try_clone()?, &stream, inner, websocket),
                    Some(config) => {
                        let session = ServerConnection::new(config).map_err(io::Error::other)?;
                        frame(StreamOwned::new(session, stream.try_clone()?), &stream, inner, websocket)
                    }
                }
            });
        }
    });
    port
}

fn frame<S: Read + Write + Send>(carried: S, socket: &TcpStream, inner: TcpStream, websocket: bool) -> io::Result<()> {
    if websocket {
        let framed = tungstenite::accept_hdr(carried, mqtt).map_err(|error| io::Error::other(error.to_string()))?;
        socket.set_read_timeout(Some(TURN))?;
        relay(framed, inner)
    } else {
        socket.set_read_timeout(Some(TURN))?;
        relay(Plain(carried), inner)
    }
}

/// BM-12
#[test]
fn every_carrier_gives_the_same_figures() {
    let authority = Authority::new("own");
    authority.sign("server", "localhost");
    authority.sign("client", "somebody");
    let ca = format!("--ca {}", authority.file("ca.pem").display());
    let own =
        format!("--cert {} --key {}", authority.file("client.pem").display(), authority.file("client.key").display());
    let (tls, mutual) = (Some(authority.server("server", false)), Some(authority.server("server", true)));
    for (scheme, config, websocket, flags) in [
        ("mqtts://localhost", tls.clone(), false, ca.clone()),
        ("mqtts://127.0.0.1", tls.clone(), false, "--insecure".to_owned()),
        ("mqtts://localhost", mutual, false, format!("{ca} {own}")),
        ("ws://127.0.0.1", None, true, String::new()),
        ("wss://localhost", tls, true, ca.clone()),
    ] {
        let faults = Faults { lose: Some(67), repeat: Some(10), swap: Some(31), ..Faults::default() };
        for words in ["--qos 0 --size 32", "--qos 2 --size uniform:24-5000"] {
            let broker = Broker::start(faults);
            let port = front(broker.address, config.clone(), websocket);
            let load = format!("run pairs --publishers 3 --messages 90 --rate 900 --drain 5 {words}");
            let all = figures(&format!("{load} --broker {scheme}:{port} {flags}"));
            let [lost, repeated, late] = [67, 10, 31].map(|every| 3 * (90 / every));
            assert_eq!(counts(&all, COUNTS), [270, 270, lost, repeated, late], "{scheme} {words}");
            assert_eq!(counts(&all, ["foreign", "disconnects"]), [0; 2], "{scheme} {words}");
            let latencies = all.pointer("/latency_us/count").and_then(Value::as_u64);
            assert_eq!(latencies, Some(270 - lost), "{scheme} {words}");
        }
    }
}

#[test]
fn who_is_not_trusted_is_told_why() {
    let (authority, stranger) = (Authority::new("own"), Authority::new("strange"));
    authority.sign("server", "localhost");
    stranger.sign("client", "somebody");
    let broker = Broker::start(Faults::default());
    let open = front(broker.address, Some(authority.server("server", false)), false);
    let strict = front(broker.address, Some(authority.server("server", true)), false);
    let (known, other) = (authority.file("ca.pem"), stranger.file("ca.pem"));
    let (known, other) = (known.display(), other.display());
    let foreign =
        format!("--cert {} --key {}", stranger.file("client.pem").display(), stranger.file("client.key").display());
    for (words, told) in [
        (format!("mqtts://localhost:{open}"), ["UnknownIssuer", "--ca"]),
        (format!("mqtts://localhost:{open} --ca {other}"), ["UnknownIssuer", "--insecure"]),
        (format!("mqtts://127.0.0.1:{open} --ca {known}"), ["not valid for name", "--insecure"]),
        (format!("mqtts://localhost:{strict} --ca {known}"), ["CertificateRequired", "--cert"]),
        (format!("mqtts://localhost:{strict} --ca {known} {foreign}"), ["UnknownCA", "--cert"]),
        (format!("mqtts://localhost:{open} --ca {known} --cert {known}"), ["--key", "--cert"]),
        (format!("mqtts://localhost:{open} --ca {known} --cert {known} --key {known}"), ["ca.pem", "key"]),
        (format!("mqtts://localhost:{open} --ca /nothing/there"), ["/nothing/there", "--ca"]),
    ] {
        let error = try_bench(&format!("run idle --publishers 1 --broker {words}")).expect_err(&words).to_string();
        assert!(told.iter().all(|part| error.contains(part)), "{words}: {error}");
    }
    assert_eq!(broker.connects(), 0);
}
