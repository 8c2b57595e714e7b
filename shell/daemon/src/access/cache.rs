//! Answers that were given before, by a keyed hash of what was asked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sedge_mqtt::ReasonCode;
use sha2::Sha256;

/// Stands for one question; tells nobody without the process's random key what it was.
pub(super) type Fingerprint = [u8; 32];

/// The hash of `parts`, whose lengths count, under `key`.
pub(super) fn fingerprint(key: &[u8; 32], parts: &[&[u8]]) -> Fingerprint {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Whether the user name and password of a question were right.
pub(super) type Outcome = Result<(), ReasonCode>;

/// A bounded number of answers, each for a bounded time.
pub(super) struct Cache {
    entries: HashMap<Fingerprint, (Instant, Outcome)>,
    max: usize,
    time: Duration,
}

impl Cache {
    pub(super) fn new(max: usize, time: Duration) -> Self {
        Self { entries: HashMap::new(), max, time }
    }

    pub(super) fn get(&self, key: &Fingerprint, now: Instant) -> Option<Outcome> {
        self.entries.get(key).filter(|(until, _)| *until > now).map(|&(_, outcome)| outcome)
    }

    /// Remembers an answer; a full cache first forgets what is too old, then everything.
    pub(super) fn put(&mut self, key: Fingerprint, outcome: Outcome, now: Instant) {
        if self.entries.len() >= self.max {
            self.entries.retain(|_, (until, _)| *until > now);
        }
        if self.entries.len() >= self.max {
            self.entries.clear();
        }
        if self.max > 0 {
            self.entries.insert(key, (now + self.time, outcome));
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bounded_in_number_and_time() {
        let mut cache = Cache::new(2, Duration::from_secs(10));
        let now = Instant::now();
        let keys = [1_u8, 2, 3].map(|number| fingerprint(&[7; 32], &[&[number]]));
        cache.put(keys[0], Ok(()), now);
        cache.put(keys[1], Err(ReasonCode::BadUserNameOrPassword), now);
        assert_eq!(cache.get(&keys[1], now), Some(Err(ReasonCode::BadUserNameOrPassword)));
        assert_eq!(cache.get(&keys[0], now + Duration::from_secs(10)), None);
        cache.put(keys[2], Ok(()), now);
        assert!(cache.entries.len() <= 2);
        assert_eq!(cache.get(&keys[2], now), Some(Ok(())));
    }

    #[test]
    fn where_a_part_ends_counts() {
        assert_ne!(fingerprint(&[7; 32], &[b"ab", b"c"]), fingerprint(&[7; 32], &[b"a", b"bc"]));
    }
}
