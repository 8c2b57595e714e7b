//! The PROXY protocol, versions 1 and 2: a load balancer in front says for whom it connects.

use std::net::SocketAddr;

use bytes::{Buf as _, BytesMut};
use proxy_header::{Error, ParseConfig, ProxyHeader};

use super::Fault;

/// Largest header, extensions included.
const HEADER_BYTES_MAX: usize = 4 * 1024;
/// Largest header of version 1, its end included.
const LINE_BYTES_MAX: usize = 107;
/// First bytes of the two versions.
const BEGINNINGS: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];

/// A header as far as it has come.
#[derive(Debug)]
pub(super) struct Preface {
    /// Whether a connection may come without.
    optional: bool,
    header: BytesMut,
}

/// A complete header.
#[derive(Debug)]
pub(super) struct Complete {
    /// The client's address; `None` if the balancer speaks for itself or does not know.
    pub(super) source: Option<SocketAddr>,
    /// Bytes behind the header.
    pub(super) rest: BytesMut,
}

impl Preface {
    pub(super) fn new(optional: bool) -> Self {
        Self { optional, header: BytesMut::new() }
    }

    /// Takes more of the header.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<Complete>, Fault> {
        self.header.extend_from_slice(bytes);
        let begins = |start: &&[u8]| start.iter().zip(&self.header).all(|(wanted, found)| wanted == found);
        if !BEGINNINGS.iter().any(begins) {
            if self.optional {
                return Ok(Some(Complete { source: None, rest: std::mem::take(&mut self.header) }));
            }
            return Err(Fault::Proxy("there is no PROXY header"));
        }
        if self.is_endless() {
            return Err(Fault::Proxy("the PROXY header is wrong"));
        }
        let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
        match ProxyHeader::parse(&self.header, config) {
            Ok((header, length)) => {
                let source = header.proxied_address().map(|address| address.source);
                self.header.advance(length);
                Ok(Some(Complete { source, rest: std::mem::take(&mut self.header) }))
            }
            Err(Error::BufferTooShort) if self.header.len() <= HEADER_BYTES_MAX => Ok(None),
            Err(_) => Err(Fault::Proxy("the PROXY header is wrong")),
        }
    }

    /// Whether it is of version 1 and longer than that may be, however much of it has come.
    fn is_endless(&self) -> bool {
        let line = self.header.get(..LINE_BYTES_MAX).unwrap_or_default();
        line.starts_with(BEGINNINGS[0]) && !line.windows(2).any(|two| two == b"\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n";
    const V1_UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";
    const V2: &[u8] = &[
        13, 10, 13, 10, 0, 13, 10, b'Q', b'U', b'I', b'T', 10, 0x21, 0x11, 0, 12, 192, 0, 2, 7, 192, 0, 2, 1, 0x9c,
        0x40, 7, 0x5b,
    ];
    const V2_LOCAL: &[u8] = &[13, 10, 13, 10, 0, 13, 10, b'Q', b'U', b'I', b'T', 10, 0x20, 0, 0, 0];

    fn feed(preface: &mut Preface, text: &[u8], piece: usize) -> Result<Option<Complete>, Fault> {
        let mut last = Ok(None);
        for part in text.chunks(piece) {
            last = preface.feed(part);
            if !matches!(last, Ok(None)) {
                break;
            }
        }
        last
    }

    /// FT-35
    #[test]
    fn both_versions_name_the_client() {
        for (header, source) in
            [(V1, Some("192.0.2.7:40000")), (V2, Some("192.0.2.7:40000")), (V1_UNKNOWN, None), (V2_LOCAL, None)]
        {
            let text = [header, b"\x10rest"].concat();
            let complete = feed(&mut Preface::new(false), &text, text.len()).unwrap().unwrap();
            assert_eq!(complete.source, source.map(|text| text.parse().unwrap()));
            assert_eq!(complete.rest[..], *b"\x10rest");
            assert!(feed(&mut Preface::new(true), header, 1).unwrap().is_some(), "byte by byte");
        }
    }

    #[test]
    fn a_line_is_no_longer_than_it_may_be_however_it_comes() {
        for (padding, is_valid) in
            [(LINE_BYTES_MAX - V1_UNKNOWN.len(), true), (LINE_BYTES_MAX - V1_UNKNOWN.len() + 1, false)]
        {
            let line = [b"PROXY UNKNOWN".as_slice(), &vec![b' '; padding], b"\r\n"].concat();
            for piece in [1, 50, line.len()] {
                assert_eq!(feed(&mut Preface::new(false), &line, piece).is_ok(), is_valid, "{piece} bytes at once");
            }
        }
    }

    #[test]
    fn what_is_no_header_passes_only_where_it_may() {
        let packet = b"\x10\x0c\0\x04MQTT";
        assert!(feed(&mut Preface::new(false), packet, 1).is_err());
        assert_eq!(feed(&mut Preface::new(true), packet, 100).unwrap().unwrap().rest[..], *packet);
        assert!(feed(&mut Preface::new(true), b"PROXY nonsense\r\n", 100).is_err());
        let endless = [b"PROXY TCP4 ".as_slice(), &[b'1'; HEADER_BYTES_MAX]].concat();
        assert!(feed(&mut Preface::new(false), &endless, 100).is_err());
    }
}
