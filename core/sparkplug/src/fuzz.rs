//! Body of the fuzz target. A stable test runs it, too, over the committed corpus and mutations of it.

use sedge_base::Timestamp;

use crate::{Decoder, Payload};

/// Decodes a payload as birth and as data.
///
/// Holds: no panic; the output is JSON within the limit; a payload that is read is written and read the same again.
pub fn payload(data: &[u8]) {
    let mut decoder = Decoder::default();
    let topics = ["spBv1.0/g/NDATA/e", "spBv1.0/g/NBIRTH/e", "spBv1.0/g/DBIRTH/e/d", "spBv1.0/g/DDATA/e/d"];
    for topic in topics {
        if let Ok(Some(decoded)) = decoder.decode(Timestamp::from_millis(1), topic, data) {
            let read = serde_json::from_slice::<serde::de::IgnoredAny>(&decoded.json);
            assert!(read.is_ok(), "{read:?} {:?}", decoded.json);
        }
    }
    if let Ok(read) = Payload::read(data) {
        let written = prost::Message::encode_to_vec(&read);
        let again = Payload::read(&written).map(|again| prost::Message::encode_to_vec(&again));
        assert_eq!(again, Ok(written));
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_corpus_of_payloads_passes() {
        replay(env!("CARGO_MANIFEST_DIR"), "payload", 20_000, super::payload);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
