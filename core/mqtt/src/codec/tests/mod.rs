//! The codec from outside.

mod arbitrary;
mod properties;
mod refusals;
mod stream;
mod vectors;

use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Decoder, Packet, Utf8, Version};

const LIMIT: u32 = 1 << 20;

/// Which side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

fn decoder(side: Side, version: Version) -> Decoder {
    let mut decoder = match side {
        Side::Client => Decoder::server(LIMIT),
        Side::Server => Decoder::client(LIMIT),
    };
    decoder.set_version(version);
    decoder
}

/// The one packet that `bytes` are.
fn decode(side: Side, version: Version, bytes: &[u8]) -> Result<Packet, DecodeError> {
    let mut decoder = decoder(side, version);
    decoder.feed(Bytes::copy_from_slice(bytes));
    let packet = decoder.next()?.expect("a whole packet");
    assert_eq!(decoder.buffered(), 0, "bytes left over");
    Ok(packet)
}

fn encode(packet: &Packet, version: Version) -> BytesMut {
    let mut out = BytesMut::new();
    crate::encode(packet, version, &mut out);
    assert_eq!(out.len(), crate::encoded_len(packet, version), "{packet:?}");
    out
}

fn text(text: &str) -> Utf8 {
    Utf8::new(text).unwrap()
}
