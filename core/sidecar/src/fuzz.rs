//! Bodies of the fuzz targets: a broker that says anything, and packets captured on the wire. A stable test runs them, too, over the committed
//! corpus and over mutations of it.

mod broker;

pub use broker::broker;

use bytes::Bytes;
use sedge_base::Instant;

use crate::{SniffConfig, SniffOutput, Sniffer};

const NOW: Instant = Instant::from_millis(1_000);
/// Connections and filters that are followed: few, so that limits are met.
const FEW: usize = 3;

/// Feeds captured packets. Each takes a byte with flags (bit 0: as it is, not made into a segment; 1: from the broker; 2 to 4: SYN, FIN, RST;
/// 5: out of order; 6 and 7: which client), a byte with its length, and that many bytes.
///
/// Holds: no panic; no more is followed than the limits say; a filter is wanted and given up in turn; publications have topics.
pub fn capture(data: &[u8]) {
    let config = SniffConfig {
        addresses: ["10.0.0.1:1883".parse()].into_iter().flatten().collect(),
        own_prefix: "sedge-".to_owned(),
        connections: FEW,
        sessions: FEW,
        filters: FEW,
    };
    let mut sniffer = Sniffer::new(config);
    let (mut next, mut wanted) = ([[7_u32, 9]; 4], std::collections::BTreeSet::new());
    let mut rest = data;
    while let [flags, length, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(*length).min(more.len()));
        rest = behind;
        if flags & 1 > 0 {
            sniffer.handle(NOW, &Bytes::copy_from_slice(bytes));
        } else {
            let (client, way) = (usize::from(flags >> 6), usize::from(flags >> 1 & 1));
            let Some(place) = next.get_mut(client).and_then(|ways| ways.get_mut(way)) else { return };
            let seq = if flags & 32 > 0 { place.wrapping_sub(2) } else { *place };
            sniffer.handle(NOW, &packet(*flags, seq, bytes));
            let length = u32::try_from(bytes.len()).unwrap_or(0) + u32::from(flags & 4 > 0);
            *place = place.wrapping_add(length);
        }
        while let Some(output) = sniffer.poll_output() {
            match output {
                SniffOutput::Publish(publish) => assert!(publish.topic.is_some(), "{publish:?}"),
                SniffOutput::Want(filter, true) => {
                    assert!(wanted.insert(filter.as_str().to_owned()), "{filter:?} twice");
                }
                SniffOutput::Want(filter, false) => {
                    assert!(wanted.remove(filter.as_str()), "{filter:?} was not wanted");
                }
                SniffOutput::Encrypted(_) => {}
            }
        }
        assert!(sniffer.followed() <= FEW && wanted.len() <= FEW);
        assert!(sniffer.wanted().map(sedge_mqtt::TopicFilter::as_str).eq(wanted.iter().map(String::as_str)));
    }
    sniffer.handle_timeout(Instant::from_millis(1_000_000));
}

/// A segment between the broker and a client, by the flags of [`capture`].
fn packet(flags: u8, seq: u32, bytes: &[u8]) -> Bytes {
    let (client, broker) = ([10, 0, 0, 9, 15, 160 + (flags >> 6)], [10, 0, 0, 1, 7, 91]);
    let ([from, to], length) = (if flags & 2 > 0 { [broker, client] } else { [client, broker] }, 40 + bytes.len());
    let mut out = vec![0x45, 0];
    out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    out.extend(from.iter().take(4).chain(to.iter().take(4)));
    out.extend(from.iter().skip(4).chain(to.iter().skip(4)));
    out.extend(seq.to_be_bytes());
    let tcp = (flags >> 3 & 1) | (flags >> 1 & 2) | (flags >> 2 & 4);
    out.extend([0, 0, 0, 0, 0x50, tcp, 0, 0, 0, 0, 0, 0]);
    out.extend(bytes);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    /// FT-03
    #[test]
    fn the_corpus_of_captures_passes() {
        replay(CRATE, "capture", 5_000, super::capture);
    }

    /// IL-01
    #[test]
    fn the_corpus_of_brokers_passes() {
        replay(CRATE, "broker", 5_000, super::broker);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
