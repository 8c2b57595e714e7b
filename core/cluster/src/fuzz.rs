//! Bodies of the fuzz targets: whatever another node, or a stranger at its port, may send. Stable tests run them too, over the
//! committed corpus and over mutations of it.

use core::fmt::Debug;
use core::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use sedge_base::{Incarnation, Instant, NodeId, Rng};

use crate::LinkId;
use crate::link::{ControlTopic, Frame, Hello, LinkConfig, Links, Output, Protocol};
use crate::wire::{
    CarryMail, DirectoryMail, NodeMail, Reader, RelayMail, ReplicaMail, RetainedMail, SessionMail, WireError, Writer,
    read_message, read_session, write_message, write_session,
};

/// Everything happens at one moment, so that only the bytes decide.
const NOW: Instant = Instant::from_millis(1_000);
/// Bytes that a link may write by itself, answers to bytes of the other side aside: a handshake, a frame, last words.
const OWN_BYTES: usize = 2 * 1024;

/// Feeds bytes to one end of a link. The first byte says which end they come to (bit 0: the dialler), whether the cluster has a
/// key (bit 1) and how many turns of a genuine neighbour they follow (bits 2 and 3; from two on the link is established); the
/// second says how the bytes are split.
///
/// Holds: no panic, also from what follows; the split does not matter; nobody can make a node say much more than they say
/// themselves; neighbours come and go in turn; every frame that was read reaches the next node as it is.
pub fn link(data: &[u8]) {
    let [mode, split, stream @ ..] = data else { return };
    let whole = hear(*mode, stream, stream.len().max(1));
    let parts = hear(*mode, stream, usize::from(*split).max(1));
    assert_eq!(whole, parts, "the split changes the outcome");
    let (outputs, written) = whole;
    assert!(written.len() <= OWN_BYTES + stream.len(), "{} bytes in answer to {}", written.len(), stream.len());
    let frames: Vec<Frame> = outputs.into_iter().filter_map(frame_of).collect();
    if !frames.is_empty() {
        assert_eq!(pass_on(&frames), frames);
    }
}

fn frame_of(output: Output) -> Option<Frame> {
    if let Output::Frame { frame, .. } = output { Some(frame) } else { None }
}

/// Two machines and the wire between them; the first dials.
struct Wire {
    ends: [Links; 2],
    links: [LinkId; 2],
}

impl Wire {
    /// The dialler has introduced itself, and nobody has heard it yet.
    fn dialled(is_keyed: bool) -> Self {
        // The proofs that were recorded cover what this node said then.
        let protocol = Protocol { version: 1, since: 1 };
        let config = LinkConfig { protocol, ..LinkConfig::new("fuzz", is_keyed.then(|| b"secret".to_vec())) };
        // The same seeds each time: a recorded handshake is as good as a new one.
        let mut ends = [1, 2].map(|seed| Links::new(config.clone(), hello(seed), Rng::new(seed)));
        let Hello { node, incarnation, link_addr, .. } = hello(2);
        let links = [LinkId(1), LinkId(LinkId::ACCEPTED)];
        ends[0].want(NOW, node, incarnation, link_addr);
        assert_eq!(ends[0].poll_output(), Some(Output::Dial { link: links[0], to: link_addr }));
        ends[1].opened(NOW, links[1], hello(1).link_addr);
        ends[0].dialled(NOW, links[0]);
        Self { ends, links }
    }

    /// Takes what one end has to write.
    fn take(&mut self, from: usize) -> Bytes {
        let (end, link) = (&mut self.ends[from], self.links[from]);
        let Some(outbox) = end.outbox(link) else { return Bytes::new() };
        let bytes = outbox.take().concat();
        end.written(NOW, link, bytes.len());
        bytes.into()
    }

    /// Carries to one end what the other has to write; says whether that was anything.
    fn carry(&mut self, to: usize) -> bool {
        let bytes = self.take(1 - to);
        let is_any = !bytes.is_empty();
        self.ends[to].received(NOW, self.links[to], bytes);
        is_any
    }
}

fn hello(number: u64) -> Hello {
    Hello {
        node: NodeId::new(number),
        incarnation: Incarnation::new(1),
        capacity: 1,
        link_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 7883)),
    }
}

fn outputs(links: &mut Links) -> Vec<Output> {
    core::iter::from_fn(|| links.poll_output()).collect()
}

/// The wire as it is before the bytes come, and which end they come to.
fn prepare(mode: u8) -> (Wire, usize) {
    let mut wire = Wire::dialled(mode & 2 != 0);
    let at = usize::from(mode & 1 == 0);
    if at == 0 {
        wire.carry(1);
    }
    for _ in 0..mode >> 2 & 3 {
        wire.carry(at);
        wire.carry(1 - at);
    }
    // Something that can be acknowledged. An end that has not been introduced to the other yet has nobody to send it to.
    let frame = Frame::Control { topic: ControlTopic::Node, payload: Bytes::from_static(b"x") };
    let other = hello(2 - at as u64).node;
    let _ = wire.ends[at].send(NOW, other, frame);
    wire.take(at);
    outputs(&mut wire.ends[at]);
    (wire, at)
}

/// Outcome of the bytes at one end: its outputs, and the bytes that it writes over the link.
fn hear(mode: u8, stream: &[u8], piece: usize) -> (Vec<Output>, Bytes) {
    let (mut wire, at) = prepare(mode);
    let mut is_up = wire.ends[at].linked().next().is_some();
    for piece in stream.chunks(piece) {
        wire.ends[at].received(NOW, wire.links[at], Bytes::copy_from_slice(piece));
    }
    wire.ends[at].flush(NOW);
    let written = wire.take(at);
    let mut said = outputs(&mut wire.ends[at]);
    // Whether there is something to write depends on the time of the look.
    said.retain(|output| !matches!(output, Output::Transmit { .. }));
    for output in &said {
        match output {
            Output::Up { .. } => assert!(!core::mem::replace(&mut is_up, true), "up twice: {said:?}"),
            Output::Down { .. } => assert!(core::mem::replace(&mut is_up, false), "down twice: {said:?}"),
            Output::Frame { .. } => assert!(is_up, "a frame from nobody: {said:?}"),
            Output::Dial { .. }
            | Output::Transmit { .. }
            | Output::Close { .. }
            | Output::Acked { .. }
            | Output::RoundTrip { .. }
            | Output::Refused { .. }
            | Output::Event(_) => {}
        }
    }
    assert_eq!(wire.ends[at].linked().next().is_some(), is_up);
    outlive(&mut wire.ends[at], wire.links[at]);
    (said, written)
}

/// The bytes that were heard do no harm later, either.
fn outlive(links: &mut Links, link: LinkId) {
    for _ in 0..8 {
        let Some(next) = links.poll_timeout() else { break };
        links.handle_timeout(next);
    }
    links.closed(NOW, link);
    links.shutdown(NOW);
    outputs(links);
}

/// Sends frames over a link of their own and returns what arrives.
fn pass_on(frames: &[Frame]) -> Vec<Frame> {
    let mut wire = Wire::dialled(false);
    for frame in frames {
        let sent = wire.ends[0].send(NOW, hello(2).node, frame.clone());
        assert!(sent.is_ok(), "{sent:?}: {frame:?}");
    }
    let mut arrived = Vec::new();
    while wire.carry(1) | wire.carry(0) {
        wire.ends[1].flush(NOW);
        arrived.extend(outputs(&mut wire.ends[1]).into_iter().filter_map(frame_of));
    }
    assert_eq!(wire.ends[0].unacknowledged(), 0);
    arrived
}

/// Reads mail of the control topics. The first byte says which.
///
/// Holds: no panic; no count or length is believed before the bytes are there; mail that was read is written so that it is read as
/// the same again, and byte for byte as it came where there is only one way to write it.
pub fn mail(data: &[u8]) {
    let [kind, mail @ ..] = data else { return };
    let mail = Bytes::copy_from_slice(mail);
    match *kind {
        255 => return canonical(&mail, NodeMail::decode, NodeMail::encode),
        253 => return canonical(&mail, RelayMail::decode, |mail: &RelayMail| mail.encode()),
        252 => return canonical(&mail, CarryMail::decode, CarryMail::encode),
        254 => return again(&mail, ReplicaMail::decode, ReplicaMail::encode),
        _ => {}
    }
    match kind % 5 {
        0 => canonical(&mail, DirectoryMail::decode, DirectoryMail::encode),
        1 => canonical(&mail, SessionMail::decode, SessionMail::encode),
        2 => again(&mail, RetainedMail::decode, RetainedMail::encode),
        3 => again(&mail, |mail| to_end(mail, read_session), |session| written(|out| write_session(out, session))),
        _ => again(
            &mail,
            |mail| to_end(mail, |from| from.list(read_message)),
            |messages| written(|out| out.list(messages, |out, message| write_message(out, message))),
        ),
    }
}

fn to_end<T>(mail: Bytes, read: impl FnOnce(&mut Reader) -> Result<T, WireError>) -> Result<T, WireError> {
    let mut from = Reader::new(mail);
    let found = read(&mut from)?;
    from.end()?;
    Ok(found)
}

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut out = Writer::default();
    write(&mut out);
    out.finish()
}

fn again<T: PartialEq + Debug>(
    mail: &Bytes,
    decode: impl Fn(Bytes) -> Result<T, WireError>,
    encode: impl Fn(&T) -> Bytes,
) {
    let Ok(read) = decode(mail.clone()) else { return };
    assert_eq!(decode(encode(&read)).as_ref(), Ok(&read));
}

fn canonical<T: PartialEq + Debug>(
    mail: &Bytes,
    decode: impl Fn(Bytes) -> Result<T, WireError>,
    encode: impl Fn(&T) -> Bytes,
) {
    let Ok(read) = decode(mail.clone()) else { return };
    assert_eq!(encode(&read), mail, "{read:?}");
}

#[cfg(test)]
mod tests {
    use super::replay::{corpus, replay};

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    /// FT-21
    #[test]
    fn the_link_corpus_and_mutations_of_it_pass() {
        replay(CRATE, "link", 3_000, super::link);
    }

    /// Recordings that are not believed any more would test strangers only.
    #[test]
    fn recorded_neighbours_are_believed() {
        let is_recorded = |name: &str| name.contains("/accepted-") || name.contains("/dialled-");
        let recorded: Vec<_> = corpus(CRATE, "link").into_iter().filter(|(name, _)| is_recorded(name)).collect();
        assert_eq!(recorded.len(), 12);
        for (name, data) in recorded {
            let (said, _) = super::hear(data[0], &data[2..], data.len());
            assert_eq!(said.into_iter().filter_map(super::frame_of).count(), 5, "{name}");
        }
    }

    /// FT-21
    #[test]
    fn the_mail_corpus_and_mutations_of_it_pass() {
        replay(CRATE, "mail", 5_000, super::mail);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
