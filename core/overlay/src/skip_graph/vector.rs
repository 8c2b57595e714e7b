//! Membership vectors: which lists of the higher levels a node belongs to.

use sedge_base::Rng;

/// How many digits there are; smaller tables and longer paths the more (SG-21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Binary digits.
    #[default]
    Two,
    /// Digits from 0 to 3.
    Four,
    /// Digits from 0 to 15.
    Sixteen,
}

impl Base {
    /// Bits of one digit.
    const fn bits(self) -> u32 {
        match self {
            Self::Two => 1,
            Self::Four => 2,
            Self::Sixteen => 4,
        }
    }

    /// How many of their first digits two vectors share.
    pub const fn common(self, one: Vector, other: Vector) -> u32 {
        (one.0 ^ other.0).leading_zeros() / self.bits()
    }
}

/// A membership vector: 64 bits, the first digit in the highest ones. All virtual nodes of a physical node share it (SG-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector(u64);

impl Vector {
    /// The vector with these bits.
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// A random vector.
    pub fn random(rng: &mut Rng) -> Self {
        Self(rng.next_u64())
    }

    /// The vector that makes every list of a level evenly spaced, for the node at this position in key order: its
    /// lowest digit comes first.
    pub const fn ideal(position: u64, base: Base) -> Self {
        let bits = base.bits();
        let (mut left, mut vector, mut done) = (position, 0, 0);
        while done < u64::BITS {
            vector = (vector << bits) | (left & ((1 << bits) - 1));
            left >>= bits;
            done += bits;
        }
        Self(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ideal_vectors_space_every_level_evenly() {
        for (base, digits) in [(Base::Two, 2_u64), (Base::Four, 4), (Base::Sixteen, 16)] {
            for position in 0..300_u64 {
                let next = |level: u32| {
                    let mine = Vector::ideal(position, base);
                    (position + 1..position + 1_000)
                        .find(|other| base.common(mine, Vector::ideal(*other, base)) >= level)
                };
                for level in 0..=2 {
                    assert_eq!(next(level), Some(position + digits.pow(level)), "{base:?} {position} {level}");
                }
            }
        }
    }

    #[test]
    fn digits_are_counted_from_the_front() {
        let one = Vector::new(0xab00_0000_0000_0000);
        let other = Vector::new(0xaf00_0000_0000_0000);
        let shared = [Base::Two, Base::Four, Base::Sixteen].map(|base| base.common(one, other));
        assert_eq!(shared, [5, 2, 1]);
        assert_eq!(Base::Two.common(one, one), 64);
    }
}
