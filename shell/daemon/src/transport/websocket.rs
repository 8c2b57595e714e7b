//! MQTT in WebSocket frames (RFC 6455, the server's side; MQTT 5.0 and 3.1.1, section 6): no extensions. Nothing of a frame is kept
//! until the rest of it comes, so that a long one costs no memory.

use bytes::{Bytes, BytesMut};

use super::upgrade::{self, Upgrade};
use super::{Fault, Flow};

/// Bytes of answers to pings that may wait; RFC 6455 lets a server answer the newest one only.
pub(super) const PONGS_BYTES_MAX: usize = 4 * 1024;
/// Longest payload of a control frame (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// Longest payload of a frame: the largest packet of MQTT, whatever `limits.maximum_packet_size` is, since a frame may hold several.
const FRAME_BYTES_MAX: u64 = 5 + 268_435_455;

const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// Status codes of RFC 6455, section 7.4.
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;
const UNACCEPTABLE: u16 = 1003;
const TOO_BIG: u16 = 1009;

/// One connection.
#[derive(Debug)]
pub(super) struct WebSocket {
    /// The request, until it is answered.
    upgrade: Option<Box<Upgrade>>,
    frames: Frames,
    /// A close frame was sent.
    closed: bool,
}

/// The frame that is being read.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; 14],
    have: u8,
    /// Bytes of payload to come.
    left: u64,
    mask: [u8; 4],
    /// Bytes of payload that have come, as far as the mask cares.
    turn: u8,
    /// A message has begun and not ended.
    within: bool,
    /// The payload of a control frame so far.
    control: Option<Vec<u8>>,
}

impl WebSocket {
    pub(super) fn new(settings: std::sync::Arc<upgrade::Settings>) -> Self {
        Self { upgrade: Some(Box::new(Upgrade::new(settings))), frames: Frames::default(), closed: false }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.upgrade.is_none()
    }

    /// Whether a close frame was sent: no other may follow (RFC 6455, section 5.5.1).
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes bytes from the client: payload goes to `into`, answers to `replies`.
    pub(super) fn receive(
        &mut self,
        bytes: BytesMut,
        replies: &mut BytesMut,
        into: &mut Vec<Bytes>,
    ) -> Result<Flow, Fault> {
        let bytes = match &mut self.upgrade {
            None => bytes,
            Some(upgrade) => match upgrade.feed(&bytes, replies)? {
                None => return Ok(Flow::Open),
                Some(rest) => {
                    self.upgrade = None;
                    rest
                }
            },
        };
        let outcome = self.frames.read(bytes, replies, into);
        match outcome {
            Ok(None) => Ok(Flow::Open),
            Ok(Some(code)) => {
                self.close(code, replies);
                Ok(Flow::End)
            }
            Err((code, what)) => {
                self.close(code, replies);
                Err(Fault::Frame(what))
            }
        }
    }

    /// The header of a frame with `length` bytes of payload.
    pub(super) fn frame(length: usize, out: &mut BytesMut) {
        header(BINARY, length, out);
    }

    /// Says good-bye, unless that was done.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        if self.is_open() {
            self.close(NORMAL, out);
        }
    }

    fn close(&mut self, code: u16, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.closed, true) {
            header(CLOSE, 2, out);
            out.extend_from_slice(&code.to_be_bytes());
        }
    }
}

/// A whole message in one frame; a server does not mask.
fn header(opcode: u8, length: usize, out: &mut BytesMut) {
    out.extend_from_slice(&[FIN | opcode]);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => out.extend_from_slice(&[short]),
        (_, Ok(medium)) => {
            out.extend_from_slice(&[126]);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.extend_from_slice(&[127]);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// The code of a close frame, and what was wrong.
type Violation = (u16, &'static str);

impl Frames {
    /// Reads all of `bytes`; the status code if the client closes.
    fn read(
        &mut self,
        mut bytes: BytesMut,
        replies: &mut BytesMut,
        into: &mut Vec<Bytes>,
    ) -> Result<Option<u16>, Violation> {
        while !bytes.is_empty() {
            if self.left == 0 {
                if !self.read_header(&mut bytes)? {
                    return Ok(None);
                }
            } else {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                let mut part = bytes.split_to(length);
                self.unmask(&mut part);
                self.left -= length as u64;
                match &mut self.control {
                    Some(control) => control.extend_from_slice(&part),
                    None => into.push(part.freeze()),
                }
            }
            if self.left == 0
                && let Some(control) = self.control.take()
                && let Some(code) = Self::control_frame(&control, replies)
            {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// Reads a header as far as it is there; whether it is complete.
    fn read_header(&mut self, bytes: &mut BytesMut) -> Result<bool, Violation> {
        loop {
            let have = usize::from(self.have);
            if have >= 2 && have == self.header_length() {
                break;
            }
            let Some((&next, _)) = bytes.split_first() else { return Ok(false) };
            if let Some(slot) = self.header.get_mut(have) {
                *slot = next;
            }
            self.have += 1;
            // Cheap: moves the front of the view.
            drop(bytes.split_to(1));
        }
        self.begin()?;
        Ok(true)
    }

    /// Length of the header, once its first two bytes are there.
    fn header_length(&self) -> usize {
        match self.header[1] & 0x7f {
            126 => 8,
            127 => 14,
            _ => 6,
        }
    }

    /// Starts with the frame whose header is complete.
    fn begin(&mut self) -> Result<(), Violation> {
        let [first, second, rest @ ..] = self.header;
        let bytes = |at: usize| rest.get(at..).unwrap_or_default();
        let mask = |at| bytes(at).first_chunk().copied().unwrap_or_default();
        let (length, mask) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(bytes(0).first_chunk().copied().unwrap_or_default())), mask(2)),
            127 => (u64::from_be_bytes(bytes(0).first_chunk().copied().unwrap_or_default()), mask(8)),
            short => (u64::from(short), mask(0)),
        };
        (self.have, self.left, self.mask, self.turn) = (0, length, mask, 0);
        let (fin, opcode) = (first & FIN != 0, first & 0x0f);
        if second & 0x80 == 0 {
            return Err((PROTOCOL_ERROR, "a frame that is not masked"));
        }
        if first & 0x70 != 0 {
            return Err((PROTOCOL_ERROR, "a frame of an extension that was not agreed"));
        }
        if length > FRAME_BYTES_MAX {
            return Err((TOO_BIG, "a frame that is longer than any packet of MQTT"));
        }
        match opcode {
            CLOSE | PING | PONG => {
                if !fin || length > CONTROL_BYTES_MAX {
                    return Err((PROTOCOL_ERROR, "a control frame in pieces or too long"));
                }
                self.control = Some(vec![opcode]);
            }
            CONTINUATION if self.within => self.within = !fin,
            BINARY if !self.within => self.within = !fin,
            CONTINUATION | BINARY => return Err((PROTOCOL_ERROR, "a frame that does not continue the message")),
            // [MQTT-6.0.0-1]
            _ => return Err((UNACCEPTABLE, "a frame that is not binary")),
        }
        Ok(())
    }

    fn unmask(&mut self, part: &mut [u8]) {
        let mut mask = self.mask;
        mask.rotate_left(usize::from(self.turn));
        self.turn = u8::try_from((usize::from(self.turn) + part.len()) % 4).unwrap_or(0);
        let [a, b, c, d] = mask;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let mut eights = part.chunks_exact_mut(8);
        for eight in &mut eights {
            if let Ok(bytes) = <[u8; 8]>::try_from(&*eight) {
                eight.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
            }
        }
        for (byte, mask) in eights.into_remainder().iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
    }

    /// A whole control frame: answers a ping; the status code if it closes.
    fn control_frame(control: &[u8], replies: &mut BytesMut) -> Option<u16> {
        let (&opcode, payload) = control.split_first()?;
        match opcode {
            PING if replies.len() < PONGS_BYTES_MAX => {
                header(PONG, payload.len(), replies);
                replies.extend_from_slice(payload);
            }
            CLOSE => {
                let code = payload.first_chunk().map_or(NORMAL, |code| u16::from_be_bytes(*code));
                return Some(code);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> WebSocket {
        WebSocket { upgrade: None, frames: Frames::default(), closed: false }
    }

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0x11, 0x22, 0x33, 0x44];
        let mut frame = BytesMut::new();
        header(0, payload.len(), &mut frame);
        let mut frame = frame.to_vec();
        (frame[0], frame[1]) = (first, frame[1] | 0x80);
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// [MQTT-6.0.0-2]: packets need not begin and end with frames.
    #[test]
    fn frames_are_read_however_they_are_cut() {
        let long = vec![b'x'; 70_000];
        let stream = [
            masked(0x82, b"abc"),
            masked(0x89, b"hi"),
            masked(0x02, &[b'y'; 300]),
            masked(0x8a, b""),
            masked(0x80, b"z"),
            masked(0x82, &long),
            masked(0x82, b""),
            masked(0x88, &[3, 232]),
        ]
        .concat();
        let expected = [b"abc".as_slice(), &[b'y'; 300], b"z", &long].concat();
        for piece in [1, 2, 7, 1000, stream.len()] {
            let (mut socket, mut replies, mut into) = (open(), BytesMut::new(), Vec::new());
            let mut flow = Flow::Open;
            for part in stream.chunks(piece) {
                assert!(matches!(flow, Flow::Open));
                flow = socket.receive(BytesMut::from(part), &mut replies, &mut into).unwrap();
            }
            assert!(matches!(flow, Flow::End));
            assert_eq!(into.concat(), expected, "pieces of {piece}");
            assert_eq!(replies[..], [0x8a, 2, b'h', b'i', 0x88, 2, 3, 232], "a ping and a close are answered");
        }
    }

    /// [MQTT-6.0.0-1]
    #[test]
    fn what_breaks_the_rules_is_answered_with_a_close_frame() {
        let unmasked = [0x82, 1, b'x', 0, 0, 0].to_vec();
        for (stream, code) in [
            (masked(0x81, b"text"), UNACCEPTABLE),
            (masked(0xc2, b"x"), PROTOCOL_ERROR),
            (masked(0x80, b"x"), PROTOCOL_ERROR),
            ([masked(0x02, b"x"), masked(0x82, b"y")].concat(), PROTOCOL_ERROR),
            (masked(0x09, b"x"), PROTOCOL_ERROR),
            (masked(0x89, &[0; 126]), PROTOCOL_ERROR),
            (unmasked, PROTOCOL_ERROR),
        ] {
            let (mut socket, mut replies) = (open(), BytesMut::new());
            assert!(socket.receive(BytesMut::from(&stream[..]), &mut replies, &mut Vec::new()).is_err());
            let code = code.to_be_bytes();
            assert_eq!(replies[..], [0x88, 2, code[0], code[1]]);
            socket.finish(&mut replies);
            assert_eq!(replies.len(), 4, "one close frame is enough");
        }
    }

    /// The header alone decides: no byte of the payload has come.
    #[test]
    fn a_frame_longer_than_any_packet_is_refused_at_once() {
        for (length, fits) in
            [(FRAME_BYTES_MAX, true), (FRAME_BYTES_MAX + 1, false), (1 << 40, false), (u64::MAX, false)]
        {
            let stream = [&[0x82, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
            let (mut socket, mut replies) = (open(), BytesMut::new());
            assert_eq!(socket.receive(BytesMut::from(&stream[..]), &mut replies, &mut Vec::new()).is_ok(), fits);
            let close = [&[0x88, 2][..], &TOO_BIG.to_be_bytes()].concat();
            assert_eq!(replies[..], if fits { Vec::new() } else { close });
        }
    }

    #[test]
    fn a_flood_of_pings_does_not_pile_up_answers() {
        let stream = masked(0x89, &[7; 100]).repeat(500);
        let mut replies = BytesMut::new();
        open().receive(BytesMut::from(&stream[..]), &mut replies, &mut Vec::new()).unwrap();
        assert!(replies.len() < PONGS_BYTES_MAX + 200);
    }
}
