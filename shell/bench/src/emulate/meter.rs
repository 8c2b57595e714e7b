//! Traffic that the packets of a link carry: publications, or signalling between nodes. Reads TCP streams of MQTT as they pass, each
//! byte once however often it is sent.

use std::collections::{BTreeMap, HashMap};

use super::status::{Carried, Passed};

/// Connections of a link that are read at once; the traffic of further connections is counted as not told apart.
const FLOWS: usize = 64;
/// Segments of a connection that wait for an earlier one.
const WAITING: usize = 1_024;
/// Topics of a direction of a link that are told apart; the others are counted under [`OTHERS`].
const TOPICS: usize = 1_024;
/// Where topics are counted that came after the table was full.
const OTHERS: &str = "(others)";
/// Beginning of the topics on which nodes of Sedge tell each other things.
const CONTROL: &str = "$sedge/";
/// Packets of MQTT that are no publications.
const PACKETS: &str = "packets";

/// Traffic over one direction of a link.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) carried: Carried,
    /// Connections by the ports of sender and receiver.
    flows: HashMap<(u16, u16), Flow>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Flow {
    /// Sequence number of the next byte.
    next: u32,
    /// Segments that came before an earlier one, with the numbers of their first bytes.
    waiting: Vec<(u32, Vec<u8>)>,
    reader: Reader,
    /// The stream is no MQTT, or a part of it was missed.
    lost: bool,
}

/// Tells packets of MQTT apart.
#[derive(Debug, Default)]
struct Reader {
    /// The beginning of a packet whose kind is not known yet.
    head: Vec<u8>,
    /// Bytes of the current packet that are still to come.
    left: usize,
}

/// The beginning of a packet, read.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// Too short to say.
    More,
    /// The stream is no MQTT.
    Bad,
    /// A packet of this length; with the topic if it is a publication.
    Packet(usize, Option<String>),
}

/// A TCP segment.
struct Segment<'a> {
    ports: (u16, u16),
    seq: u32,
    begins: bool,
    ends: bool,
    data: &'a [u8],
}

const UDP: u8 = 17;
const TCP: u8 = 6;

impl Meter {
    /// A packet is given to the link.
    pub(super) fn packet(&mut self, packet: &[u8]) {
        let Some((protocol, body)) = body(packet) else { return };
        if protocol == UDP {
            self.carried.datagram_bytes += packet.len() as u64;
        }
        let Some(segment) = (protocol == TCP).then(|| segment(body)).flatten() else { return };
        if segment.begins {
            if self.flows.len() >= FLOWS {
                self.flows.remove(&segment.ports);
            }
            if self.flows.len() < FLOWS {
                let next = segment.seq.wrapping_add(1);
                self.flows.insert(segment.ports, Flow { next, ..Flow::default() });
            }
            return;
        }
        match self.flows.get_mut(&segment.ports) {
            Some(flow) => flow.take(segment.seq, segment.data, &mut self.carried),
            None => self.carried.unread_bytes += segment.data.len() as u64,
        }
        if segment.ends {
            self.flows.remove(&segment.ports);
        }
    }
}

impl Flow {
    fn take(&mut self, seq: u32, data: &[u8], carried: &mut Carried) {
        if data.is_empty() {
            return;
        }
        if self.lost {
            carried.unread_bytes += data.len() as u64;
            return;
        }
        if self.read(seq, data, carried) {
            while let Some(at) = self.waiting.iter().position(|(seq, _)| !self.is_ahead(*seq)) {
                let (seq, data) = self.waiting.swap_remove(at);
                self.read(seq, &data, carried);
            }
        } else if self.waiting.iter().all(|(other, _)| *other != seq) {
            self.waiting.push((seq, data.to_vec()));
            if self.waiting.len() > WAITING {
                self.lost = true;
                carried.unread_bytes += self.waiting.drain(..).map(|(_, data)| data.len() as u64).sum::<u64>();
            }
        }
    }

    /// Whether bytes before this number have not come yet.
    const fn is_ahead(&self, seq: u32) -> bool {
        let ahead = seq.wrapping_sub(self.next);
        ahead != 0 && ahead < 1 << 31
    }

    /// Reads what is new of a segment; no if an earlier one is missing.
    fn read(&mut self, seq: u32, data: &[u8], carried: &mut Carried) -> bool {
        if self.is_ahead(seq) {
            return false;
        }
        let known = self.next.wrapping_sub(seq) as usize;
        let Some(new) = data.get(known..) else { return true };
        self.next = self.next.wrapping_add(u32::try_from(new.len()).unwrap_or(0));
        if !self.lost && !self.reader.read(new, carried) {
            self.lost = true;
            carried.unread_bytes += new.len() as u64;
        }
        true
    }
}

impl Reader {
    /// Counts the packets of `bytes`, each with its whole length when its beginning has been read. No if this is no MQTT.
    fn read(&mut self, mut bytes: &[u8], carried: &mut Carried) -> bool {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let Some((first, rest)) = bytes.split_first() else { return true };
            self.head.push(*first);
            bytes = rest;
            match head(&self.head) {
                Head::More => {}
                Head::Bad => return false,
                Head::Packet(length, topic) => {
                    self.left = length.saturating_sub(self.head.len());
                    self.head.clear();
                    carried.count(topic.as_deref(), length as u64);
                }
            }
        }
        true
    }
}

impl Carried {
    fn count(&mut self, topic: Option<&str>, bytes: u64) {
        let told = topic.filter(|topic| !topic.starts_with(CONTROL));
        let (sum, table, name) = match told {
            Some(topic) => (&mut self.publications, &mut self.topics, topic),
            None => (&mut self.control, &mut self.mechanisms, topic.unwrap_or(PACKETS)),
        };
        let name = if table.contains_key(name) || table.len() < TOPICS { name } else { OTHERS };
        let line = table.entry(name.to_owned()).or_default();
        for passed in [sum, line] {
            passed.count += 1;
            passed.bytes += bytes;
        }
    }

    /// Traffic since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let table = |now: &BTreeMap<String, Passed>, before: &BTreeMap<String, Passed>| {
            let line = |(name, passed): (&String, &Passed)| {
                let passed = passed.since(before.get(name).copied().unwrap_or_default());
                (passed.count > 0).then(|| (name.clone(), passed))
            };
            now.iter().filter_map(line).collect()
        };
        Self {
            publications: self.publications.since(before.publications),
            control: self.control.since(before.control),
            datagram_bytes: self.datagram_bytes.saturating_sub(before.datagram_bytes),
            unread_bytes: self.unread_bytes.saturating_sub(before.unread_bytes),
            topics: table(&self.topics, &before.topics),
            mechanisms: table(&self.mechanisms, &before.mechanisms),
        }
    }
}

impl Passed {
    const fn since(self, before: Self) -> Self {
        Self { count: self.count.saturating_sub(before.count), bytes: self.bytes.saturating_sub(before.bytes) }
    }
}

/// Protocol and content of an IPv4 packet; none for the later parts of one that was divided.
fn body(packet: &[u8]) -> Option<(u8, &[u8])> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let offset = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff;
    (offset == 0).then_some((*packet.get(9)?, packet.get(header..length)?))
}

fn segment(body: &[u8]) -> Option<Segment<'_>> {
    let (from, to) = (body.first_chunk::<2>()?, body.get(2..)?.first_chunk::<2>()?);
    let seq = body.get(4..)?.first_chunk::<4>()?;
    let flags = *body.get(13)?;
    let header = usize::from(*body.get(12)? >> 4) * 4;
    Some(Segment {
        ports: (u16::from_be_bytes(*from), u16::from_be_bytes(*to)),
        seq: u32::from_be_bytes(*seq),
        begins: flags & 0x02 != 0,
        ends: flags & 0x05 != 0,
        data: body.get(header..)?,
    })
}

/// Reads the beginning of a packet of MQTT.
fn head(bytes: &[u8]) -> Head {
    let Some((first, rest)) = bytes.split_first() else { return Head::More };
    let kind = first >> 4;
    // Flags are set in publications alone, but that SUBSCRIBE, UNSUBSCRIBE and PUBREL bear a 2.
    if kind == 0 || (kind != 3 && first & 0x0f != if matches!(kind, 6 | 8 | 10) { 2 } else { 0 }) {
        return Head::Bad;
    }
    let mut length = 0;
    let mut digits = 0;
    for digit in rest.iter().take(4) {
        length |= usize::from(digit & 0x7f) << (7 * digits);
        digits += 1;
        if digit & 0x80 == 0 {
            let total = 1 + digits + length;
            return if kind == 3 {
                topic(rest.get(digits..).unwrap_or_default(), total)
            } else {
                Head::Packet(total, None)
            };
        }
    }
    if rest.len() < 4 { Head::More } else { Head::Bad }
}

/// Reads the topic of a publication of `total` bytes.
fn topic(body: &[u8], total: usize) -> Head {
    let Some((length, body)) = body.split_first_chunk::<2>() else { return Head::More };
    let length = usize::from(u16::from_be_bytes(*length));
    if length + 4 > total {
        return Head::Bad;
    }
    match body.get(..length) {
        Some(topic) => Head::Packet(total, Some(String::from_utf8_lossy(topic).into_owned())),
        None => Head::More,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;

    /// An IPv4 packet with a TCP segment from port 1000 to port 2000.
    fn tcp(flags: u8, seq: u32, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&u16::try_from(40 + data.len()).expect("short").to_be_bytes());
        packet[9] = TCP;
        packet[20..24].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0]);
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        packet[32] = 0x50;
        packet[33] = flags;
        packet.extend_from_slice(data);
        packet
    }

    /// A PUBLISH with quality of service 0.
    fn publish(topic: &str, payload: usize) -> Vec<u8> {
        let mut body = u16::try_from(topic.len()).expect("short").to_be_bytes().to_vec();
        body.extend_from_slice(topic.as_bytes());
        body.push(0);
        body.resize(body.len() + payload, 7);
        let [low, high] = [body.len() % 128, body.len() / 128].map(|digit| u8::try_from(digit).expect("small"));
        [&[0x30, low | 0x80, high], &body[..]].concat()
    }

    fn passed(count: u64, bytes: usize) -> Passed {
        Passed { count, bytes: bytes as u64 }
    }

    #[test]
    fn publications_and_control_are_told_apart_whatever_the_segments() {
        let stream = [publish("a/b", 300), vec![0xc0, 0], publish("$sedge/overlay", 200), publish("a/b", 400)].concat();
        // Sequence numbers pass zero on the way.
        let first = u32::MAX - 100;
        for size in [1, 2, 7, 100, stream.len()] {
            let mut meter = Meter::default();
            meter.packet(&tcp(SYN, first.wrapping_sub(1), b""));
            for (number, part) in stream.chunks(size).enumerate() {
                let seq = first.wrapping_add(u32::try_from(number * size).expect("short"));
                meter.packet(&tcp(ACK, seq, part));
            }
            let carried = &meter.carried;
            assert_eq!(carried.publications, passed(2, 309 + 409), "segments of {size}");
            assert_eq!(carried.control, passed(2, 2 + 220));
            assert_eq!(carried.topics, [("a/b".to_owned(), passed(2, 718))].into());
            let mechanisms = [("$sedge/overlay".to_owned(), passed(1, 220)), (PACKETS.to_owned(), passed(1, 2))];
            assert_eq!((&carried.mechanisms, carried.unread_bytes), (&mechanisms.into(), 0));
        }
    }

    #[test]
    fn bytes_count_once_in_whatever_order_they_come() {
        let stream = [publish("t", 500), publish("t", 500), publish("u", 500)].concat();
        let mut meter = Meter::default();
        meter.packet(&tcp(SYN, 9, b""));
        for (from, to) in [(900, 1_200), (0, 300), (0, 300), (600, 900), (600, 900), (200, 700), (1_200, stream.len())]
        {
            meter.packet(&tcp(ACK, 10 + u32::try_from(from).expect("short"), &stream[from..to]));
        }
        assert_eq!(meter.carried.publications, passed(3, stream.len()));
        assert_eq!(meter.carried.unread_bytes, 0);
    }

    #[test]
    fn what_is_no_mqtt_is_not_guessed_at() {
        let mut meter = Meter::default();
        meter.packet(&tcp(ACK, 1, b"begun before"));
        assert_eq!(meter.carried.unread_bytes, 12);
        meter.packet(&tcp(SYN, 9, b""));
        meter.packet(&tcp(ACK, 10, b"\x16\x03\x01 a handshake of TLS"));
        meter.packet(&tcp(ACK, 32, b"more"));
        assert_eq!((meter.carried.unread_bytes, meter.carried.control.count), (12 + 22 + 4, 0));
        meter.packet(&tcp(RST, 36, b""));
        assert!(meter.flows.is_empty());
        let mut datagram = tcp(0, 0, b"x");
        datagram[9] = UDP;
        meter.packet(&datagram);
        for broken in [&[][..], &[0x45; 10], &[0x45; 30]] {
            meter.packet(broken);
        }
        assert_eq!(meter.carried.datagram_bytes, 41);
    }

    #[test]
    fn a_segment_that_never_comes_ends_the_reading_of_its_connection() {
        let mut meter = Meter::default();
        meter.packet(&tcp(SYN, 9, b""));
        for number in 0..2_000_u32 {
            meter.packet(&tcp(ACK, 11 + number, b"x"));
        }
        assert_eq!((meter.carried.unread_bytes, meter.carried.publications), (2_000, Passed::default()));
    }

    #[test]
    fn tables_end_and_their_lines_are_compared() {
        let mut carried = Carried::default();
        for number in 0..TOPICS + 5 {
            carried.count(Some(&format!("t/{number}")), 10);
        }
        assert_eq!(carried.topics.get(OTHERS), Some(&passed(5, 50)));
        let before = carried.clone();
        carried.count(Some("t/3"), 11);
        carried.count(None, 2);
        let since = carried.since(&before);
        assert_eq!(since.topics, [("t/3".to_owned(), passed(1, 11))].into());
        assert_eq!((since.publications, since.control), (passed(1, 11), passed(1, 2)));
    }
}
