//! The most frequent of very many names, in fixed memory: Space-Saving (Metwally, Agrawal, El Abbadi 2005).

use crate::{StableHash, mix};

/// A name, and how often it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heavy {
    /// The name.
    pub name: Box<str>,
    /// How often it came, at most.
    pub count: u64,
    /// By how much `count` may be too many: the count of the name whose place this one took.
    pub error: u64,
}

/// Counts names in so many places. Each name that came more often than one in that many has one of them.
#[derive(Clone, Debug)]
pub struct HeavyHitters {
    capacity: usize,
    /// Hash of each place's name, side by side so that a look through them is short.
    hashes: Vec<u64>,
    places: Vec<Heavy>,
    /// How many came in all.
    total: u64,
}

impl HeavyHitters {
    /// With `capacity` places, one at least.
    pub const fn new(capacity: usize) -> Self {
        Self { capacity: if capacity == 0 { 1 } else { capacity }, hashes: Vec::new(), places: Vec::new(), total: 0 }
    }

    /// `name` came `times`.
    pub fn add(&mut self, name: &str, times: u64) {
        self.total = self.total.saturating_add(times);
        let hash = mix(StableHash::of(name.as_bytes()));
        let known = |(at, known): (usize, &u64)| (*known == hash && &*self.places.get(at)?.name == name).then_some(at);
        if let Some(at) = self.hashes.iter().enumerate().find_map(known) {
            if let Some(place) = self.places.get_mut(at) {
                place.count = place.count.saturating_add(times);
            }
        } else if self.places.len() < self.capacity {
            self.hashes.push(hash);
            self.places.push(Heavy { name: name.into(), count: times, error: 0 });
        } else {
            self.replace_rarest(hash, name, times);
        }
    }

    fn replace_rarest(&mut self, hash: u64, name: &str, times: u64) {
        let rarest = self.places.iter_mut().zip(&mut self.hashes).min_by_key(|(place, _)| place.count);
        if let Some((place, known)) = rarest {
            let error = place.count;
            *place = Heavy { name: name.into(), count: error.saturating_add(times), error };
            *known = hash;
        }
    }

    /// The names that have places, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Heavy> {
        self.places.iter()
    }

    /// How many came in all.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Places that are taken.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let names: usize = self.places.iter().map(|place| place.name.len()).sum();
        names + self.places.capacity() * size_of::<Heavy>() + self.hashes.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn count(hitters: &HeavyHitters, name: &str) -> Option<(u64, u64)> {
        hitters.iter().find(|heavy| &*heavy.name == name).map(|heavy| (heavy.count, heavy.error))
    }

    #[test]
    fn few_names_are_counted_exactly() {
        let mut hitters = HeavyHitters::new(3);
        for (name, times) in [("a", 2), ("b", 1), ("a", 5), ("", 1)] {
            hitters.add(name, times);
        }
        assert_eq!(
            (count(&hitters, "a"), count(&hitters, "b"), count(&hitters, "")),
            (Some((7, 0)), Some((1, 0)), Some((1, 0)))
        );
        assert_eq!((hitters.len(), hitters.total(), hitters.is_empty()), (3, 9, false));
        hitters.add("c", 1);
        assert_eq!(hitters.len(), 3, "it never takes more places");
        assert_eq!(count(&hitters, "c"), Some((2, 1)), "it may have come as often as the one before it");
    }

    /// The paper promises that no count is too low, that none is too high by more than its error, and that each frequent name is there.
    #[test]
    fn among_many_names_the_frequent_ones_are_found() {
        let (mut rng, mut truth) = (Rng::new(11), std::collections::BTreeMap::<String, u64>::new());
        let mut hitters = HeavyHitters::new(64);
        for _ in 0..50_000 {
            // One in four is one of ten, the others are of 20,000.
            let name =
                if rng.chance(1, 4) { format!("hot/{}", rng.below(10)) } else { format!("x/{}", rng.below(20_000)) };
            *truth.entry(name.clone()).or_default() += 1;
            hitters.add(&name, 1);
        }
        assert_eq!((hitters.len(), hitters.total()), (64, 50_000));
        for heavy in hitters.iter() {
            let real = truth[&*heavy.name];
            assert!(heavy.count >= real && heavy.count - heavy.error <= real, "{heavy:?} came {real} times");
        }
        for (name, real) in truth.iter().filter(|(_, real)| **real > 50_000 / 64) {
            assert!(count(&hitters, name).is_some(), "{name} came {real} times");
        }
        assert!(hitters.bytes() < 64 * 100);
    }
}
