//! A hash map for the hot path whose hashing is repeatable in simulation and not guessable by an attacker.

use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash, Hasher};

use crate::Rng;

/// Seeds the hashing of a [`LookupMap`]. Drawn from the node's [`Rng`], so that simulations repeat and clients cannot
/// choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 2]);

impl Seed {
    /// A seed drawn from `rng`.
    pub fn from_rng(rng: &mut Rng) -> Self {
        Self([rng.next_u64(), rng.next_u64() | 1])
    }
}

impl BuildHasher for Seed {
    type Hasher = SeededHasher;

    #[inline]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { state: self.0[0], key: self.0[1] }
    }
}

/// Folded-multiply hashing of eight bytes a step, keyed by a [`Seed`].
#[derive(Clone, Debug)]
pub struct SeededHasher {
    state: u64,
    key: u64,
}

impl SeededHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word).wrapping_mul(u128::from(self.key ^ 0x9e37_79b9_7f4a_7c15));
        self.state = fold(wide) ^ self.key.rotate_left(23);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
const fn fold(wide: u128) -> u64 {
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// At most seven bytes as a number below 2^56, no two of one length as the same: the first and the last of them, which may overlap.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 24;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << 8;
    }
    bytes.first().copied().map_or(0, u64::from)
}

impl Hasher for SeededHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        // The length in the byte that the rest leaves free tells "a" from "a\0".
        self.mix(short_word(rest) | (bytes.len() as u64) << 56);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(u128::from(self.state).wrapping_mul(u128::from(self.key.rotate_left(32) | 1)))
    }
}

/// A hash map without iteration: looking up cannot leak an order into outputs.
#[derive(Clone, Debug)]
pub struct LookupMap<K, V>(hashbrown::HashMap<K, V, Seed>);

impl<K: Eq + Hash, V> LookupMap<K, V> {
    /// An empty map.
    pub const fn new(seed: Seed) -> Self {
        Self(hashbrown::HashMap::with_hasher(seed))
    }

    /// The value of `key`.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// The value of `key`, to be changed.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    /// Whether `key` has a value.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Sets the value of `key` and returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// The value of `key`, to be changed; `make` gives it one if it has none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Removes `key` if `is_done` says so of its value, which it may change; returns what was removed.
    pub fn remove_if(&mut self, key: K, is_done: impl FnOnce(&mut V) -> bool) -> Option<V> {
        match self.0.entry(key) {
            hashbrown::hash_map::Entry::Occupied(mut entry) => is_done(entry.get_mut()).then(|| entry.remove()),
            hashbrown::hash_map::Entry::Vacant(_) => None,
        }
    }

    /// Removes `key` and returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }

    /// How many keys have a value.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_again() {
        let mut map = LookupMap::new(Seed::from_rng(&mut Rng::new(5)));
        for i in 0..1_000_u32 {
            map.insert(format!("topic/{i}"), i);
        }
        assert!((0..1_000).all(|i| map.get(format!("topic/{i}").as_str()) == Some(&i)));
        assert_eq!(map.remove("topic/7"), Some(7));
        assert_eq!(map.get("topic/7"), None);
        assert_eq!(map.len(), 999);
        assert_eq!(map.remove_if("topic/7".to_owned(), |_| true), None);
        assert_eq!(map.remove_if("topic/8".to_owned(), |value| std::mem::replace(value, 80) != 8), None);
        assert_eq!(map.remove_if("topic/8".to_owned(), |value| *value == 80), Some(80));
        *map.get_or_insert_with("topic/8".to_owned(), || 1) += 1;
        *map.get_or_insert_with("topic/8".to_owned(), || 1) += 1;
        assert_eq!((map.get("topic/8"), map.len()), (Some(&3), 999));
    }

    #[test]
    fn short_texts_that_differ_in_one_byte_are_different_words() {
        for len in 1..8 {
            let plain = vec![0xa5; len];
            let mut words = vec![short_word(&plain)];
            for at in 0..len {
                for byte in (0..=255).filter(|byte| *byte != 0xa5) {
                    let mut text = plain.clone();
                    text[at] = byte;
                    words.push(short_word(&text));
                }
            }
            assert!(words.iter().all(|word| word >> 56 == 0));
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), 1 + 255 * len, "{len}");
        }
    }

    #[test]
    fn seeds_change_the_hash_and_bits_spread() {
        let a = Seed::from_rng(&mut Rng::new(1));
        let b = Seed::from_rng(&mut Rng::new(2));
        assert_ne!(a.hash_one("x"), b.hash_one("x"));
        let mut buckets = [0_u32; 64];
        for i in 0..6_400_u64 {
            let bucket = usize::try_from(a.hash_one(i) >> 58).unwrap();
            buckets[bucket] += 1;
        }
        assert!(buckets.iter().all(|&n| (40..200).contains(&n)), "{buckets:?}");
    }
}
