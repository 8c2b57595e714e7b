//! The members of one shared subscription (MQTT 5.0 section 4.8.2), counted by place.

use std::collections::BTreeMap;

/// How many members are at which place, and whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Members<K> {
    /// (connected, not connected) by place.
    places: BTreeMap<K, (u32, u32)>,
    turn: u64,
}

impl<K: Ord + Copy> Members<K> {
    /// No members. `turn` says who begins: at random, so that not all begin with the same.
    pub(crate) const fn new(turn: u64) -> Self {
        Self { places: BTreeMap::new(), turn }
    }

    /// Sets how many members are at a place.
    pub(crate) fn set(&mut self, place: K, online: u32, offline: u32) {
        if (online, offline) == (0, 0) {
            self.places.remove(&place);
        } else {
            self.places.insert(place, (online, offline));
        }
    }

    /// How many members are at a place, (connected, not connected).
    pub(crate) fn get(&self, place: K) -> (u32, u32) {
        self.places.get(&place).copied().unwrap_or_default()
    }

    /// How many members are at other places, (connected, not connected).
    pub(crate) fn elsewhere(&self, here: K) -> (u32, u32) {
        let others = self.places.iter().filter(|(place, _)| **place != here);
        others.fold((0_u32, 0_u32), |sum, (_, (online, offline))| {
            (sum.0.saturating_add(*online), sum.1.saturating_add(*offline))
        })
    }

    /// Whether there are no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Chooses the place whose turn it is among those not in `except`: in proportion to its connected members, or if nobody is
    /// connected anywhere, to its other members.
    pub(crate) fn choose(&mut self, except: &[K]) -> Option<K> {
        let left = || self.places.iter().filter(|(place, _)| !except.contains(place));
        let online: u64 = left().map(|(_, (online, _))| u64::from(*online)).sum();
        let offline: u64 = left().map(|(_, (_, offline))| u64::from(*offline)).sum();
        let mut turn = self.turn.checked_rem(if online > 0 { online } else { offline })?;
        let mut chosen = None;
        for (place, counts) in left() {
            let weight = u64::from(if online > 0 { counts.0 } else { counts.1 });
            if turn < weight {
                chosen = Some(*place);
                break;
            }
            turn -= weight;
        }
        self.turn = self.turn.wrapping_add(1);
        chosen
    }
}
