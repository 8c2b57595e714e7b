//! The part of the session that is in Kafka: identities of publications, written in the transactions that bring them there.
//!
//! Each transaction of a bridge leaves one record in a topic of the bridge's own. Whoever runs the bridge next reads the last ones, and sends
//! nothing again that is among them: the session at this node may have forgotten less than the one at the node that died.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// Keys of the topic's records, which follow each other in a circle: a topic that is compacted keeps the last record of each.
pub(super) const SLOTS: u64 = 4096;
/// Identities that are kept in mind, the newest ones.
pub(super) const IDS_MAX: usize = 262_144;

/// The identities of one transaction, by the part before their last number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    numbers: BTreeMap<Box<str>, BTreeSet<u64>>,
    count: usize,
}

/// Splits an identity into the part before its last number, and that number.
fn split(id: &str) -> (&str, u64) {
    let parts = id.rsplit_once('/').and_then(|(front, number)| Some((front, number, number.parse::<u64>().ok()?)));
    match parts {
        Some((front, text, number)) if number.to_string() == text && number < u64::MAX => (front, number),
        // No node gives such an identity: it stands for itself.
        Some(_) | None => (id, u64::MAX),
    }
}

impl Ids {
    pub(super) fn insert(&mut self, id: &str) {
        let (front, number) = split(id);
        if let Some(numbers) = self.numbers.get_mut(front) {
            self.count += usize::from(numbers.insert(number));
        } else {
            self.numbers.insert(front.into(), BTreeSet::from([number]));
            self.count += 1;
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        let (front, number) = split(id);
        self.numbers.get(front).is_some_and(|numbers| numbers.contains(&number))
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn extend(&mut self, other: &Self) {
        for (front, numbers) in &other.numbers {
            let own = self.numbers.entry(front.clone()).or_default();
            self.count += numbers.iter().filter(|number| own.insert(**number)).count();
        }
    }

    /// JSON: for each front the numbers behind it; a pair stands for all from its first to its last.
    pub(super) fn encode(&self) -> Vec<u8> {
        let spans = |numbers: &BTreeSet<u64>| {
            let mut spans: Vec<(u64, u64)> = Vec::new();
            for &number in numbers {
                match spans.last_mut() {
                    Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
                    Some(_) | None => spans.push((number, number)),
                }
            }
            let span = |(first, last)| if first == last { json!(first) } else { json!([first, last]) };
            spans.into_iter().map(span).collect::<Vec<_>>()
        };
        let ids: serde_json::Map<_, _> =
            self.numbers.iter().map(|(front, numbers)| (front.to_string(), Value::Array(spans(numbers)))).collect();
        json!({ "ids": ids }).to_string().into_bytes()
    }

    /// `None`: nothing that a bridge has written.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let mut read = Self::default();
        for (front, spans) in value.get("ids")?.as_object()? {
            let mut numbers = BTreeSet::new();
            for span in spans.as_array()? {
                let bound = |place: usize| span.get(place).and_then(Value::as_u64);
                let (first, last) = span.as_u64().map(|one| (one, one)).or_else(|| bound(0).zip(bound(1)))?;
                if last.checked_sub(first)? >= IDS_MAX as u64 || read.count + numbers.len() > IDS_MAX {
                    return None;
                }
                numbers.extend(first..=last);
            }
            read.count += numbers.len();
            read.numbers.insert(front.as_str().into(), numbers);
        }
        Some(read)
    }
}

/// Identities of messages as the records of the topic give them, the oldest record first.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    last: VecDeque<Ids>,
    count: usize,
    slot: u64,
}

impl Cursor {
    /// Reads one record more. `false`: no bridge has written it.
    pub(super) fn read(&mut self, key: &[u8], value: &[u8]) -> bool {
        let slot = std::str::from_utf8(key).ok().and_then(|key| key.parse::<u64>().ok());
        let Some((slot, ids)) = slot.zip(Ids::decode(value)) else { return false };
        self.slot = (slot + 1) % SLOTS;
        self.count += ids.len();
        self.last.push_back(ids);
        while self.count > IDS_MAX {
            let Some(oldest) = self.last.pop_front() else { break };
            self.count -= oldest.len();
        }
        true
    }

    /// The identities of the messages in Kafka, and the key of the next record.
    pub(super) fn finish(self) -> (Ids, u64) {
        let mut all = Ids::default();
        for ids in &self.last {
            all.extend(ids);
        }
        (all, self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[&str]) -> Ids {
        let mut ids = Ids::default();
        for id in all {
            ids.insert(id);
        }
        ids
    }

    /// DP-03: what one node writes the next one reads, whatever identities look like.
    #[test]
    fn identities_survive_the_way() {
        let all = ["1/2/3/4", "1/2/3/5", "1/2/3/9", "7/1/0/1", "a b\n\"c\"", "1/2/3/04", "x/18446744073709551615", ""];
        let written = ids(&all);
        assert_eq!((written.len(), Ids::decode(&written.encode())), (all.len(), Some(written.clone())));
        assert!(all.iter().all(|id| written.contains(id)));
        for other in ["1/2/3/6", "1/2/3", "1/2/3/4/4", "7/1/0/01", "x/18446744073709551614"] {
            assert!(!written.contains(other), "{other}");
        }
        assert_eq!(ids(&["1/1", "1/2", "1/3"]).encode(), br#"{"ids":{"1":[[1,3]]}}"#);
    }

    /// A record that somebody else has written is no reason to take memory, or to stop.
    #[test]
    fn what_no_bridge_has_written_is_nothing() {
        for bad in
            ["", "{}", r#"{"ids":[]}"#, r#"{"ids":{"a":1}}"#, r#"{"ids":{"a":[[2,1]]}}"#, r#"{"ids":{"a":[[0,9e18]]}}"#]
        {
            assert_eq!(Ids::decode(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Ids::decode(br#"{"ids":{"a":[[0,18446744073709551615]]}}"#), None);
        assert!(!Cursor::default().read(b"x", br#"{"ids":{}}"#));
    }

    /// Memory has a bound: the oldest records go.
    #[test]
    fn the_newest_identities_are_kept() {
        let mut cursor = Cursor::default();
        let half = IDS_MAX as u64 / 2;
        for slot in 0..3 {
            let span = format!(r#"{{"ids":{{"a":[[{},{}]]}}}}"#, slot * half, slot * half + half - 1);
            assert!(cursor.read((SLOTS - 2 + slot).to_string().as_bytes(), span.as_bytes()));
        }
        let (all, next) = cursor.finish();
        assert_eq!((all.len(), next), (IDS_MAX, 1));
        assert!(!all.contains("a/0") && all.contains(&format!("a/{half}")));
    }
}
