//! Bodies of the fuzz targets. Stable tests run them too: over the committed corpus, and over random inputs.

use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Decoder, Packet, SubscriptionTrie, TopicFilter, TopicName, TopicTree, Version};

const LIMIT: u32 = 4_096;

/// Decodes a stream. The first byte says which side sends (bit 0) and the version (bit 1), the second how the stream is split.
///
/// Holds: no panic; the split does not matter; no more than the limit is held back; a decoded packet encodes to the length
/// foretold and decodes to itself.
pub fn decode(data: &[u8]) {
    let [mode, split, stream @ ..] = data else { return };
    let version = if mode & 2 == 0 { Version::V311 } else { Version::V5 };
    let decoder = || {
        let mut decoder = if mode & 1 == 0 { Decoder::server(LIMIT) } else { Decoder::client(LIMIT) };
        decoder.set_version(version);
        decoder
    };
    let whole = run(decoder(), stream, stream.len().max(1));
    let parts = run(decoder(), stream, usize::from(*split).max(1));
    assert_eq!(whole, parts, "the split changes the outcome");
    for (packet, version) in &whole.0 {
        let mut bytes = BytesMut::new();
        crate::encode(packet, *version, &mut bytes);
        assert_eq!(bytes.len(), crate::encoded_len(packet, *version), "{packet:?}");
        let mut again = decoder();
        again.set_max_packet_bytes(u32::MAX);
        again.set_version(*version);
        again.feed(bytes.freeze());
        assert_eq!(again.next().as_ref(), Ok(&Some(packet.clone())), "{packet:?}");
    }
}

type Outcome = (Vec<(Packet, Version)>, Option<DecodeError>);

fn run(mut decoder: Decoder, stream: &[u8], piece: usize) -> Outcome {
    let mut packets = Vec::new();
    for piece in stream.chunks(piece) {
        decoder.feed(Bytes::copy_from_slice(piece));
        loop {
            match decoder.next() {
                Ok(Some(packet)) => packets.push((packet, decoder.version())),
                Ok(None) => break,
                Err(error) => return (packets, Some(error)),
            }
        }
        assert!(decoder.buffered() <= LIMIT as usize, "more held back than a packet may have");
    }
    (packets, None)
}

/// Runs operations on both indexes and compares with the reference matcher. Lines of text: `+filter` inserts, `-filter`
/// removes, `=topic` matches, `@topic` retains, `?filter` looks retained topics up.
pub fn index(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    let mut trie = SubscriptionTrie::new();
    let mut filters: Vec<TopicFilter> = Vec::new();
    let mut tree = TopicTree::new();
    let mut topics: Vec<TopicName> = Vec::new();
    for line in text.lines() {
        let mut rest = line.chars();
        match (rest.next(), TopicFilter::new(rest.as_str()), TopicName::new(rest.as_str())) {
            (Some('+'), Ok(filter), _) => {
                let known = filters.contains(&filter);
                assert_eq!(trie.insert(&filter, filter.clone(), ()).is_some(), known, "{filter}");
                if !known {
                    filters.push(filter);
                }
            }
            (Some('-'), Ok(filter), _) => {
                let known = filters.contains(&filter);
                assert_eq!(trie.remove(&filter, &filter).is_some(), known, "{filter}");
                filters.retain(|other| *other != filter);
            }
            (Some('='), _, Ok(topic)) => {
                let mut found = Vec::new();
                trie.matches(&topic, |filter, ()| found.push(filter.clone()));
                let mut expected: Vec<_> = filters.iter().filter(|filter| filter.matches(&topic)).cloned().collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{topic}");
            }
            (Some('@'), _, Ok(topic)) => {
                let known = topics.contains(&topic);
                assert_eq!(tree.insert(&topic, ()).is_some(), known, "{topic}");
                topics.extend(Some(topic).filter(|_| !known));
            }
            (Some('?'), Ok(filter), _) => {
                let mut found = Vec::new();
                tree.matching(&filter, |topic, ()| found.push(topic.clone()));
                let mut expected: Vec<_> = topics.iter().filter(|topic| filter.matches(topic)).cloned().collect();
                expected.sort();
                assert_eq!(found, expected, "{filter}");
            }
            _ => {}
        }
        assert_eq!((trie.len(), tree.len()), (filters.len(), topics.len()), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    /// MQ-12
    #[test]
    fn the_decode_corpus_passes() {
        for (path, data) in corpus("decode") {
            println!("{}", path.display());
            for mode in [None, Some(0), Some(1), Some(2), Some(3)] {
                for split in [1, 2, 3, 7, 255] {
                    let mut data = data.clone();
                    data[0] = mode.unwrap_or(data[0]);
                    data[1] = split;
                    super::decode(&data);
                }
            }
        }
    }

    /// MQ-03, FT-11
    #[test]
    fn the_index_corpus_passes() {
        for (path, data) in corpus("index") {
            println!("{}", path.display());
            super::index(&data);
        }
    }
}
