//! How many different values: exact for few, then an estimate from 2,048 registers, about two percent off (`HyperLogLog`).

use std::collections::BTreeSet;

use sedge_base::{StableHash, mix};

use crate::codec::{Reader, Writer};
use crate::value::{Value, from_u64, to_u64};

/// Most values that are counted one by one.
const EXACT_MAX: usize = 512;
/// Bits of a hash that choose the register.
const REGISTER_BITS: u32 = 11;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// The values of a window, by their hashes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Distinct {
    Exact(BTreeSet<u64>),
    /// The longest run of zeros of each register's hashes, and one.
    Registers(Vec<u8>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Exact(BTreeSet::new())
    }
}

impl Distinct {
    pub(super) fn add(&mut self, value: &Value<'_>) {
        self.add_hash(mix(StableHash::of(&super::plain(value))));
    }

    fn add_hash(&mut self, hash: u64) {
        if let Self::Exact(hashes) = self {
            hashes.insert(hash);
            if hashes.len() > EXACT_MAX {
                self.condense();
            }
        } else {
            self.register(hash);
        }
    }

    fn register(&mut self, hash: u64) {
        let Self::Registers(registers) = self else { return };
        let zeros = (hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1)).leading_zeros();
        let register = usize::try_from(hash >> (64 - REGISTER_BITS)).ok().and_then(|at| registers.get_mut(at));
        if let (Some(register), Ok(run)) = (register, u8::try_from(zeros + 1)) {
            *register = (*register).max(run);
        }
    }

    fn condense(&mut self) {
        let Self::Exact(hashes) = core::mem::replace(self, Self::Registers(vec![0; REGISTERS])) else { return };
        for hash in hashes {
            self.register(hash);
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        match other {
            Self::Exact(hashes) => hashes.iter().for_each(|&hash| self.add_hash(hash)),
            Self::Registers(others) => {
                if matches!(self, Self::Exact(_)) {
                    self.condense();
                }
                if let Self::Registers(registers) = self {
                    registers.iter_mut().zip(others).for_each(|(own, other)| *own = (*own).max(*other));
                }
            }
        }
    }

    pub(super) fn result(&self) -> u64 {
        let registers = match self {
            Self::Exact(hashes) => return u64::try_from(hashes.len()).unwrap_or(u64::MAX),
            Self::Registers(registers) => registers,
        };
        let count = from_u64(u64::try_from(REGISTERS).unwrap_or(u64::MAX));
        let sum: f64 = registers.iter().map(|&run| (-f64::from(run)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let zeros: f64 = registers.iter().map(|&run| if run == 0 { 1.0 } else { 0.0 }).sum();
        // Few values leave registers empty: how many is the better estimate then.
        let estimate = if estimate <= 2.5 * count && zeros > 0.0 { count * (count / zeros).ln() } else { estimate };
        to_u64(estimate.round()).unwrap_or(u64::MAX)
    }

    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Exact(hashes) => hashes.len() * 12,
            Self::Registers(registers) => registers.len(),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Exact(hashes) => {
                writer.u8(0);
                writer.len(hashes.len());
                for hash in hashes {
                    writer.u64(*hash);
                }
            }
            Self::Registers(registers) => {
                writer.u8(1);
                writer.bytes(registers);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.u8()? == 0 {
            let count = reader.len(8)?;
            return (0..count).map(|_| reader.u64()).collect::<Option<_>>().map(Self::Exact);
        }
        let registers = reader.bytes()?;
        let valid = registers.len() == REGISTERS && registers.iter().all(|run| *run <= 64);
        valid.then(|| Self::Registers(registers.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_counts_once_however_many_there_are() {
        for (values, tolerance) in [(10_u32, 0), (512, 0), (2_000, 120), (100_000, 6_000)] {
            let mut distinct = Distinct::default();
            for round in 0..2 {
                for value in 0..values {
                    distinct.add(&Value::Number(f64::from(value) + f64::from(round) * 0.0));
                }
            }
            assert!(distinct.result().abs_diff(u64::from(values)) <= tolerance, "{values}: {}", distinct.result());
            assert!(distinct.heap() <= 8_192);
        }
    }
}
