//! The HTTP request that opens a WebSocket (RFC 6455, section 4.2).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};
use sha1::{Digest as _, Sha1};

use super::Fault;

/// Largest request.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Most header fields of a request.
const HEADERS_MAX: usize = 64;
/// Constant that every server appends to the client's key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The subprotocol of MQTT [MQTT-6.0.0-3], and its name with clients of MQTT 3.1; the first one in this list that the client offers is chosen.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Requirements of a listener on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Paths such as `/mqtt`; empty: all.
    pub(crate) paths: Vec<String>,
    /// Origins whose pages may connect; empty: all.
    pub(crate) origins: Vec<String>,
}

/// A request as far as it has come.
#[derive(Debug)]
pub(super) struct Upgrade {
    settings: Arc<Settings>,
    request: BytesMut,
}

/// Parts of the answer to a request that may pass: the request's key, and the subprotocol if the request offers one.
type Judged<'a> = (&'a [u8], Option<&'static str>);

/// Why a request is refused: status line and what is wrong.
type Refusal = (&'static str, &'static str);

impl Upgrade {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, request: BytesMut::new() }
    }

    /// Takes more of the request. Once it is complete, the answer is in `replies` and what came behind it is returned.
    pub(super) fn feed(&mut self, bytes: &[u8], replies: &mut BytesMut) -> Result<Option<BytesMut>, Fault> {
        self.request.extend_from_slice(bytes);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let judged = match request.parse(&self.request) {
            Ok(httparse::Status::Partial) if self.request.len() <= REQUEST_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => Err(("431 Request Header Fields Too Large", "a request that is too long")),
            Ok(httparse::Status::Complete(length)) => {
                judge(&request, &self.settings).map(|(key, protocol)| (length, accept(key), protocol))
            }
            Err(_) => Err(("400 Bad Request", "not an HTTP request")),
        };
        match judged {
            Ok((length, accept, protocol)) => {
                let protocol = protocol.map(|name| format!("Sec-WebSocket-Protocol: {name}\r\n")).unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: {accept}\r\n{protocol}\r\n"
                );
                replies.extend_from_slice(answer.as_bytes());
                self.request.advance(length);
                Ok(Some(std::mem::take(&mut self.request)))
            }
            Err((status, what)) => {
                let answer = format!(
                    "HTTP/1.1 {status}\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                     Content-Length: {}\r\n\r\n{what}\n",
                    what.len() + 1
                );
                replies.extend_from_slice(answer.as_bytes());
                Err(Fault::Upgrade(what))
            }
        }
    }
}

/// Parts of the answer to a request that may pass.
fn judge<'a>(request: &httparse::Request<'_, 'a>, settings: &Settings) -> Result<Judged<'a>, Refusal> {
    let fields = |name: &'static str| {
        let named = move |header: &&httparse::Header<'a>| header.name.eq_ignore_ascii_case(name);
        request.headers.iter().filter(named).map(|header| header.value)
    };
    let has = |name, wanted: &str| {
        let mut words = fields(name).filter_map(|value| std::str::from_utf8(value).ok()).flat_map(|v| v.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    if request.method != Some("GET") {
        return Err(("405 Method Not Allowed", "a WebSocket is opened with GET"));
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    if !settings.paths.is_empty() && !settings.paths.iter().any(|known| known == path) {
        return Err(("404 Not Found", "there is no MQTT at this path (listener.NAME.path)"));
    }
    if !has("upgrade", "websocket") || !has("connection", "upgrade") || !has("sec-websocket-version", "13") {
        return Err(("426 Upgrade Required", "this is a WebSocket, version 13"));
    }
    let foreign = |origin: &[u8]| !settings.origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin));
    if !settings.origins.is_empty() && fields("origin").any(foreign) {
        return Err(("403 Forbidden", "pages of this origin may not connect (listener.NAME.allowed_origins)"));
    }
    let protocol = SUBPROTOCOLS.into_iter().find(|known| has("sec-websocket-protocol", known));
    // A client that offers no subprotocol is accepted, as by Mosquitto; one that offers only others does not want to speak MQTT.
    if protocol.is_none() && fields("sec-websocket-protocol").next().is_some() {
        return Err(("400 Bad Request", "the subprotocol mqtt is not offered"));
    }
    let key = fields("sec-websocket-key").next().unwrap_or_default();
    let sixteen = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    if sixteen { Ok((key, protocol)) } else { Err(("400 Bad Request", "the key of the WebSocket is wrong")) }
}

/// Value that proves to the client that the server understood its request.
fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn request(line: &str, protocol: &str, more: &str) -> String {
        format!(
            "{line}\r\nHost: h\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {protocol}\r\n{more}\r\n"
        )
    }

    fn feed(text: &str, piece: usize) -> (Result<Option<BytesMut>, Fault>, String) {
        let settings = Settings {
            paths: vec!["/mqtt".to_owned(), "/ws".to_owned()],
            origins: vec!["https://app.site".to_owned()],
        };
        let mut upgrade = Upgrade::new(Arc::new(settings));
        let mut replies = BytesMut::new();
        let mut last = Ok(None);
        for part in text.as_bytes().chunks(piece) {
            last = upgrade.feed(part, &mut replies);
            if last.is_err() {
                break;
            }
        }
        (last, String::from_utf8(replies.to_vec()).unwrap())
    }

    /// MQ-19, [MQTT-6.0.0-3], [MQTT-6.0.0-4]: with the example of RFC 6455.
    #[test]
    fn a_right_request_is_answered_with_the_subprotocol() {
        let text = request("GET /mqtt?x=1 HTTP/1.1", "foo, mqtt", "Origin: https://APP.site\r\n");
        let (rest, answer) = feed(&(text.clone() + "\u{2}frames"), text.len() + 7);
        assert_eq!(rest.unwrap().unwrap()[..], *b"\x02frames");
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{answer}");
        assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        assert!(feed(&text, 1).0.unwrap().is_some());
    }

    /// MQ-19: old clients, and those that know no subprotocols.
    #[test]
    fn the_subprotocol_may_be_that_of_mqtt_3_1_or_none() {
        let old = request("GET /ws HTTP/1.1", "mqttv3.1", "");
        let both = request("GET /ws HTTP/1.1", "mqttv3.1, mqtt", "");
        let none = old.replace("Sec-WebSocket-Protocol: mqttv3.1\r\n", "");
        for (text, told) in [(old, "mqttv3.1"), (both, "mqtt"), (none, "")] {
            let (result, answer) = feed(&text, 4096);
            assert!(result.unwrap().is_some() && answer.starts_with("HTTP/1.1 101 "), "{answer}");
            let named = answer.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
            assert_eq!(named.unwrap_or_default(), told);
        }
    }

    #[test]
    fn a_listener_without_paths_takes_all() {
        let mut upgrade = Upgrade::new(Arc::new(Settings { paths: Vec::new(), origins: Vec::new() }));
        let text = request("GET /any/path HTTP/1.1", "mqtt", "");
        assert!(upgrade.feed(text.as_bytes(), &mut BytesMut::new()).unwrap().is_some());
    }

    #[test]
    fn wrong_requests_are_told_why() {
        for (text, status) in [
            (request("POST /mqtt HTTP/1.1", "mqtt", ""), "405"),
            (request("GET / HTTP/1.1", "mqtt", ""), "404"),
            (request("GET /mqtt HTTP/1.1", "chat", ""), "400"),
            (request("GET /mqtt HTTP/1.1", "mqtt", "Origin: https://evil.site\r\n"), "403"),
            (request("GET /mqtt HTTP/1.1", "mqtt", "").replace(KEY, "short"), "400"),
            (request("GET /mqtt HTTP/1.1", "mqtt", "").replace("Version: 13", "Version: 8"), "426"),
            ("GET /mqtt HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "426"),
            (format!("GET /mqtt HTTP/1.1\r\nX: {}", "x".repeat(9000)), "431"),
            ("\u{10}\u{20}MQTT garbage\r\n\r\n".to_owned(), "400"),
        ] {
            let (result, answer) = feed(&text, 4096);
            assert!(result.is_err(), "{text}");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }
}
