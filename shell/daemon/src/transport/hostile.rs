//! Bytes of strangers below MQTT: body of a fuzz target, and a test with genuine beginnings, damaged here and there.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::proxy::Preface;
use super::upgrade::Settings;
use super::websocket::{PONGS_BYTES_MAX, WebSocket};
use super::{Flow, Layers};

/// Bytes that a listener may write of its own accord: the answer to a request for a WebSocket, and last words.
const OWN_BYTES: usize = 512;

/// Feeds a stream to the layers of a connection. The first byte says which there are: bit 0 the PROXY protocol, bit 1 of a balancer that is
/// not trusted, bit 2 WebSocket; the second, how the stream is split.
///
/// Holds: no panic; the split does not matter; a stranger makes a node write little more than the stranger has sent.
pub(crate) fn layers(data: &[u8]) {
    let [shape, split, stream @ ..] = data else { return };
    compare(*shape, stream, usize::from(*split).max(1));
}

/// Feeds a stream whole and in pieces.
fn compare(shape: u8, stream: &[u8], piece: usize) -> Outcome {
    let whole = hear(shape, stream, stream.len().max(1));
    let mut parts = hear(shape, stream, piece);
    if whole.written.len() >= PONGS_BYTES_MAX {
        // Of many pings at once only the first are answered.
        parts.written.clone_from(&whole.written);
    }
    assert_eq!(whole, parts, "shape {shape}: the split of {} changes the outcome", stream.escape_ascii());
    assert!(whole.written.len() <= stream.len() + OWN_BYTES, "{} bytes in answer", whole.written.len());
    assert!(whole.mqtt.len() <= stream.len());
    whole
}

/// Result of a stream: MQTT, the written bytes, the client that the balancer named, and the end.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    mqtt: Vec<u8>,
    written: Vec<u8>,
    source: Option<SocketAddr>,
    end: Result<Flow, String>,
}

fn hear(shape: u8, stream: &[u8], piece: usize) -> Outcome {
    let proxy = (shape & 1 != 0).then(|| Preface::new(shape & 2 != 0));
    let settings = Settings { paths: vec!["/mqtt".to_owned()], origins: Vec::new() };
    let websocket = (shape & 4 != 0).then(|| WebSocket::new(Arc::new(settings)));
    let mut layers = Layers::new(proxy, None, websocket);
    let (mut pieces, mut written, mut source, mut end) = (Vec::<Bytes>::new(), Vec::new(), None, Ok(Flow::Open));
    for part in stream.chunks(piece) {
        end = layers.receive(BytesMut::from(part), &mut pieces).map_err(|fault| fault.to_string());
        source = layers.take_source().or(source);
        layers.write(&mut written, None, usize::MAX);
        if end != Ok(Flow::Open) {
            break;
        }
    }
    layers.finish();
    layers.write(&mut written, None, usize::MAX);
    assert!(!layers.has_output());
    Outcome { mqtt: pieces.concat(), written, source, end }
}

#[cfg(test)]
mod tests {
    use sedge_base::Rng;

    use super::*;

    /// How many damaged beginnings are tried.
    const ROUNDS: u32 = 20_000;

    const PROXIES: [&[u8]; 4] = [
        b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n",
        b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n",
        b"PROXY UNKNOWN\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x07\xc0\0\x02\x01\x9c\x40\x07\x5b\x03\0\x04\x01\x02\x03\x04",
    ];
    const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    /// A message in two frames with a ping between them, one with a longer length, a pong and a close.
    const FRAMES: &[u8] = b"\x02\x83\x01\x02\x03\x04abc\x89\x82\x01\x02\x03\x04hi\x80\x85\x01\x02\x03\x04defgh\
        \x82\xfe\0\x03\x01\x02\x03\x04ijk\x8a\x80\x01\x02\x03\x04\x88\x82\x01\x02\x03\x04\x02\xea";

    fn damage(rng: &mut Rng, stream: &mut Vec<u8>) {
        for _ in 0..rng.index(4) {
            if stream.is_empty() {
                return;
            }
            let at = rng.index(stream.len());
            let byte = rng.next_u64().to_le_bytes()[0];
            match rng.index(5) {
                0 => stream[at] = byte,
                1 => stream[at] ^= 1 << (byte & 7),
                2 => stream.insert(at, byte),
                3 => stream.truncate(at),
                _ => {
                    let end = (at + rng.index(16)).min(stream.len());
                    stream.drain(at..end);
                }
            }
        }
    }

    /// MQ-12
    #[test]
    fn damaged_beginnings_do_no_harm_however_they_are_split() {
        let mut rng = Rng::new(1);
        let (mut through, mut refused) = (0, 0);
        for _ in 0..ROUNDS {
            let [.., random] = rng.next_u64().to_be_bytes();
            let shape = random & 7;
            let mut stream = Vec::new();
            if shape & 1 != 0 {
                stream.extend_from_slice(PROXIES[rng.index(PROXIES.len())]);
            }
            if shape & 4 != 0 {
                stream.extend_from_slice(REQUEST);
            }
            stream.extend_from_slice(FRAMES);
            damage(&mut rng, &mut stream);
            let whole = compare(shape, &stream, rng.index(40) + 1);
            through += u32::from(!whole.mqtt.is_empty());
            refused += u32::from(whole.end.is_err());
        }
        assert!(through > ROUNDS / 10 && refused > ROUNDS / 10, "{through} came through, {refused} were refused");
    }
}
