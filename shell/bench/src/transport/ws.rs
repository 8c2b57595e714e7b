//! MQTT over WebSocket (RFC 6455), the client's side: binary frames, no extensions.

use std::io;

use mio::net::TcpStream;

use super::{Pipe, Transport};

/// Largest answer to the upgrade request.
const MAX_ANSWER: usize = 16_384;
/// Most bytes kept for a broker that does not read.
const MAX_OUT: usize = 1 << 20;

/// A WebSocket connection.
pub(super) struct WebSocket<T> {
    below: T,
    /// Frames not yet written.
    out: Vec<u8>,
    written: usize,
    /// Bytes read and not yet taken apart.
    input: Vec<u8>,
    taken: usize,
    /// Bytes of payload left in the frame that is being read.
    left: u64,
    open: bool,
    ended: bool,
}

impl<T> WebSocket<T> {
    /// `host`: host and port as the request names them.
    pub(super) fn new(below: T, host: &str, path: &str) -> Self {
        // The key proves to a client that the server speaks WebSocket at all; the CONNACK that follows proves more.
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: c2VkZ2UtYmVuY2gtd3MtMQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\
             Sec-WebSocket-Version: 13\r\n\r\n"
        );
        Self {
            below,
            out: request.into_bytes(),
            written: 0,
            input: Vec::new(),
            taken: 0,
            left: 0,
            open: false,
            ended: false,
        }
    }
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl<T: Pipe> WebSocket<T> {
    /// Reads more from below; false if there is nothing now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        let before = self.input.len();
        self.input.resize(before + 65_536, 0);
        let result = self.below.read(self.input.get_mut(before..).unwrap_or_default());
        self.input.truncate(before + result.as_ref().map_or(0, |read| *read));
        match result {
            Ok(0) => {
                self.ended = true;
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the answer to the upgrade request; true once it is whole.
    fn answer(&mut self) -> io::Result<bool> {
        loop {
            if let Some(end) = self.input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                if !self.input.starts_with(b"HTTP/1.1 101") {
                    let line = self.input.split(|byte| *byte == b'\r').next().unwrap_or_default();
                    let line: String =
                        String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(80).collect();
                    return Err(broken(format!("the broker refused the WebSocket: {line}")));
                }
                self.taken = end + 4;
                return Ok(true);
            }
            if self.input.len() > MAX_ANSWER || self.ended {
                return Err(broken("no answer to the WebSocket upgrade"));
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// Reads the next frame header that is there; false if more bytes are needed.
    fn header(&mut self) -> io::Result<bool> {
        let bytes = self.input.get(self.taken..).unwrap_or_default();
        let [first, second, rest @ ..] = bytes else { return Ok(false) };
        if second & 0x80 != 0 {
            return Err(broken("the broker masks its WebSocket frames"));
        }
        let (length, header) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                Some((length, _)) => (u64::from(u16::from_be_bytes(*length)), 4),
                None => return Ok(false),
            },
            127 => match rest.split_first_chunk() {
                Some((length, _)) => (u64::from_be_bytes(*length), 10),
                None => return Ok(false),
            },
            length => (u64::from(length), 2),
        };
        match first & 0x0f {
            0..=2 => {
                self.taken += header;
                self.left = length;
                Ok(true)
            }
            8 => {
                self.ended = true;
                Ok(true)
            }
            _ => self.control(first & 0x0f, header, length),
        }
    }

    /// Answers a ping, skips what else may come in between.
    fn control(&mut self, code: u8, header: usize, length: u64) -> io::Result<bool> {
        let length = usize::try_from(length).ok().filter(|length| *length < 126);
        let length = length.ok_or_else(|| broken("a WebSocket control frame that is too long"))?;
        let start = self.taken + header;
        let Some(payload) = self.input.get(start..start + length) else { return Ok(false) };
        if code == 9 {
            let mut frame = vec![0x8a, 0x80 | u8::try_from(length).unwrap_or(0), 0, 0, 0, 0];
            frame.extend_from_slice(payload);
            self.out.extend_from_slice(&frame);
        }
        self.taken = start + length;
        Ok(true)
    }
}

impl<T> WebSocket<T> {
    /// Stream below the WebSocket.
    pub(super) const fn below(&self) -> &T {
        &self.below
    }
}

impl<T: Pipe> Pipe for WebSocket<T> {
    fn open(&mut self) -> io::Result<bool> {
        if !self.open && self.below.open()? {
            self.flush()?;
            self.open = self.answer()?;
        }
        Ok(self.open)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.left > 0 {
                let ready = self.input.get(self.taken..).unwrap_or_default();
                let length = ready.len().min(into.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                if length > 0
                    && let (Some(to), Some(from)) = (into.get_mut(..length), ready.get(..length))
                {
                    to.copy_from_slice(from);
                    self.taken += length;
                    self.left -= crate::num::count(length);
                    return Ok(length);
                }
            } else if !self.ended && self.header()? {
                continue;
            }
            if self.ended {
                return Ok(0);
            }
            if !self.fill()? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if !self.flush()? && self.out.len() > MAX_OUT {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.out.push(0x82);
        match from.len() {
            length @ 0..=125 => self.out.push(0x80 | u8::try_from(length).unwrap_or(0)),
            length @ 126..=65_535 => {
                self.out.push(0x80 | 0x7e);
                self.out.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_be_bytes());
            }
            length => {
                self.out.push(0x80 | 0x7f);
                self.out.extend_from_slice(&crate::num::count(length).to_be_bytes());
            }
        }
        // Masking protects proxies from scripts in browsers. A mask of zeros is a mask, and costs nothing.
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(from);
        self.flush()?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match self.below.write(self.out.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        self.below.flush()
    }
}

impl<T: Transport> Transport for WebSocket<T> {
    fn socket(&mut self) -> &mut TcpStream {
        self.below.socket()
    }

    fn short_read_is_last(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A server's side of a stream: the pieces that it sends, and the bytes that it got.
    #[derive(Default)]
    struct Wire {
        pieces: VecDeque<Vec<u8>>,
        got: Vec<u8>,
        /// Bytes that are taken before the next refusal.
        room: usize,
    }

    impl Pipe for Wire {
        fn open(&mut self) -> io::Result<bool> {
            Ok(true)
        }

        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let piece = self.pieces.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            into.get_mut(..piece.len()).expect("room").copy_from_slice(&piece);
            Ok(piece.len())
        }

        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                self.room = 7;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let length = from.len().min(self.room);
            self.room -= length;
            self.got.extend_from_slice(from.get(..length).expect("a part"));
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<bool> {
            Ok(true)
        }
    }

    const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

    fn opened(stream: &[u8], piece: usize) -> WebSocket<Wire> {
        let pieces = [ANSWER, stream].concat().chunks(piece).map(<[u8]>::to_vec).collect();
        let mut socket = WebSocket::new(Wire { pieces, ..Wire::default() }, "host:99", "/path");
        while !socket.open().expect("an upgrade") {}
        while !socket.flush().expect("no error") {}
        let request = String::from_utf8(std::mem::take(&mut socket.below.got)).expect("text");
        assert!(request.starts_with("GET /path HTTP/1.1\r\nHost: host:99\r\n") && request.ends_with("\r\n\r\n"));
        socket
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let long = vec![b'x'; 300];
        let mut stream = vec![0x82, 3, b'a', b'b', b'c', 0x89, 2, b'h', b'i', 0x02, 126, 1, 44];
        stream.extend_from_slice(&long);
        stream.extend_from_slice(&[0x80, 1, b'z', 0x88, 0]);
        for piece in [1, 2, 5, 64, 1_000] {
            let mut socket = opened(&stream, piece);
            let mut all = Vec::new();
            let mut buffer = [0; 50];
            while let Ok(length @ 1..) = socket.read(&mut buffer) {
                all.extend_from_slice(buffer.get(..length).expect("what was read"));
            }
            assert_eq!(all, [b"abc".as_slice(), &long, b"z"].concat(), "pieces of {piece}");
            assert_eq!(socket.read(&mut buffer).expect("an end"), 0);
            while !socket.flush().expect("no error") {}
            assert_eq!(socket.below.got, [0x8a, 0x82, 0, 0, 0, 0, b'h', b'i'], "a ping is answered");
        }
    }

    #[test]
    fn what_is_written_goes_out_in_masked_frames() {
        let mut socket = opened(&[], 100);
        for length in [5, 200, 70_000] {
            let bytes = vec![b'm'; length];
            assert_eq!(socket.write(&bytes).expect("room"), length);
            while !socket.flush().expect("no error") {}
            let got = std::mem::take(&mut socket.below.got);
            let header = match length {
                5 => vec![0x82, 0x85],
                200 => vec![0x82, 0xfe, 0, 200],
                _ => vec![0x82, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70],
            };
            assert_eq!(got, [header, vec![0; 4], bytes].concat());
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let pieces = VecDeque::from([b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec()]);
        let mut socket = WebSocket::new(Wire { pieces, ..Wire::default() }, "host:99", "/path");
        assert!(socket.open().is_err());
    }
}
