//! Hashing that every node, every version and every run computes alike. Not for tables that strangers fill: see
//! [`crate::LookupMap`].

/// FNV-1a, 64 bit, fed piece by piece. Its low bits are weak: finish with [`mix`] where they matter.
#[derive(Clone, Copy, Debug)]
pub struct StableHash(u64);

impl StableHash {
    /// The hash of nothing.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Appends `bytes`; how they are cut into pieces makes no difference.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        hash.add(bytes);
        hash.get()
    }
}

impl Default for StableHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Spreads every bit of `word` over all bits; no two words give the same (finaliser of `SplitMix64`).
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_for_ever() {
        assert_eq!(StableHash::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(StableHash::of(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
        let mut pieces = StableHash::new();
        pieces.add(b"foo");
        pieces.add(b"bar");
        assert_eq!(pieces.get(), StableHash::of(b"foobar"));
    }
}
