//! Deliveries that are expected of the broker in one conversation.
//!
//! A broker gives publications no names. A delivery is matched with the publication that caused it by topic and payload: the publication
//! that came first is delivered first (MQTT 5.0 section 4.6).

use core::hash::Hasher;
use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{Duration, Instant, Seed, SeededHasher};
use sedge_mqtt::{Message, QoS};
use smallvec::SmallVec;

/// A keyed hash of topic and payload.
pub(crate) fn print_of(seed: Seed, topic: &[u8], payload: &[u8]) -> u64 {
    use core::hash::BuildHasher;
    let mut hasher: SeededHasher = seed.build_hasher();
    hasher.write(topic);
    hasher.write_u8(0);
    hasher.write(payload);
    hasher.finish()
}

/// Bytes that a message counts against the byte limit.
pub(crate) fn weight(message: &Message) -> usize {
    message.payload.len() + message.topic.as_bytes().len() + 64
}

/// Meaning of a delivery of the broker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The delivery of this publication, under its number.
    Due(u64, Arc<Message>),
    /// A publication that the session has had.
    Repeated,
    /// A publication that this node has not given to the broker.
    Foreign,
}

/// See [`Expected::pop_overdue`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// The broker has answered this publication and does not deliver it.
    Withheld(u64),
    /// The same, but an equal delivery was ignored meanwhile, which may have been this one: the session gets the copy here.
    Mistaken(u64, Arc<Message>),
    /// The broker has not answered the publication either.
    Unanswered,
}

#[derive(Debug)]
struct Entry {
    /// Number of the publication.
    number: u64,
    /// Time at which the entry ends, with a number: no two entries end at the same place.
    place: Place,
    /// The broker had not answered the publication when this was to end. An ignored entry gets more time once in any case: the broker's answer
    /// may come just when the entry ends, and the delivery after that.
    was_open: bool,
    /// The QoS of the delivery, if the broker grants the requested QoS.
    qos: QoS,
    /// `None`: the session has had the message, and a delivery that still comes is one too many.
    message: Option<Arc<Message>>,
    /// Further deliveries of it that may come: one for each other subscription that matches.
    spare: u16,
    /// Several subscriptions match, each of which may have its own QoS.
    overlaps: bool,
}

impl Entry {
    /// The session gets the copy here: a delivery that still comes is ignored.
    fn cover(&mut self) -> Option<Arc<Message>> {
        let message = self.message.take()?;
        self.was_open = true;
        Some(message)
    }

    /// Whether a delivery with this QoS may be this one.
    fn may_be(&self, qos: QoS) -> bool {
        self.overlaps || (self.qos > QoS::AtMostOnce) == (qos > QoS::AtMostOnce)
    }
}

/// Entries of equal deliveries.
#[derive(Debug, Default)]
struct Slot {
    entries: SmallVec<[Entry; 1]>,
    /// Deliveries that were ignored, each of which may have been one that was expected.
    ignored: u32,
}

impl Slot {
    /// Whether a delivery that has not come may have been ignored; each that was ignored counts once.
    const fn is_mistaken(&mut self) -> bool {
        let mistaken = self.ignored > 0;
        self.ignored = self.ignored.saturating_sub(1);
        mistaken
    }
}

/// Time at which an entry ends, and the number of the entry.
type Place = (Instant, u64);

/// All expectations of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    slots: BTreeMap<u64, Slot>,
    /// The entries, by the time when they end, with their prints.
    order: BTreeMap<Place, u64>,
    last: u64,
    due: usize,
    bytes: usize,
}

impl Expected {
    /// Deliveries that are expected.
    pub(crate) const fn len(&self) -> usize {
        self.due
    }

    /// Bytes of them.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Deliveries that are expected, and those that are recognised as repeated.
    pub(crate) fn entries(&self) -> usize {
        self.order.len()
    }

    /// Repeated deliveries are recognised until `until` at least.
    pub(crate) fn recognise_until(&mut self, until: Instant) {
        let entries = self.slots.values().flat_map(|slot| &slot.entries);
        let had = entries.filter(|entry| entry.message.is_none() && entry.place.0 < until);
        for place in had.map(|entry| entry.place).collect::<Vec<_>>() {
            self.move_to(place, until);
        }
    }

    /// Time at which the first entry ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first_key_value().map(|(&(until, _), _)| until)
    }

    /// The broker will deliver this, at most `matches` times.
    pub(crate) fn expect(
        &mut self,
        until: Instant,
        print: u64,
        number: u64,
        (message, qos): (Arc<Message>, QoS),
        matches: u16,
    ) {
        self.due += 1;
        self.bytes += weight(&message);
        self.add(until, print, (number, qos), Some(message), matches);
    }

    /// The broker may deliver this although the session has had it, or is not to get it.
    pub(crate) fn ignore(&mut self, until: Instant, print: u64, (number, qos): (u64, QoS), matches: u16) {
        self.add(until, print, (number, qos), None, matches);
    }

    fn add(
        &mut self,
        until: Instant,
        print: u64,
        (number, qos): (u64, QoS),
        message: Option<Arc<Message>>,
        matches: u16,
    ) {
        self.last += 1;
        let place = (until, self.last);
        self.order.insert(place, print);
        let was_open = message.is_none();
        let (spare, overlaps) = (matches.saturating_sub(1), matches > 1);
        let entry = Entry { number, place, was_open, qos, message, spare, overlaps };
        self.slots.entry(print).or_default().entries.push(entry);
    }

    /// The broker has delivered something with this QoS.
    pub(crate) fn arrived(&mut self, print: u64, qos: QoS) -> Found {
        let Some(Slot { entries, ignored }) = self.slots.get_mut(&print) else { return Found::Foreign };
        // Publications of different QoS may pass each other; of one QoS, the one sent first comes first (MQTT 5.0 section 4.6).
        let find = |wanted: &dyn Fn(&Entry) -> bool| entries.iter().position(wanted);
        let found = find(&|entry| entry.qos == qos)
            .or_else(|| find(&|entry| entry.message.is_some() && entry.may_be(qos)))
            .or_else(|| find(&|entry| entry.may_be(qos)));
        let Some(at) = found else { return Found::Foreign };
        let Some(entry) = entries.get_mut(at) else { return Found::Foreign };
        let (number, place, message) = (entry.number, entry.place, entry.message.take());
        if message.is_none() {
            *ignored += 1;
        }
        match entries.get_mut(at) {
            Some(entry) if entry.spare > 0 => entry.spare -= 1,
            _ => drop(self.remove(place)),
        }
        let Some(message) = message else { return Found::Repeated };
        self.due -= 1;
        self.bytes -= weight(&message);
        Found::Due(number, message)
    }

    /// Takes an entry out.
    fn remove(&mut self, place: Place) -> Option<Entry> {
        let print = self.order.remove(&place)?;
        let entries = &mut self.slots.get_mut(&print)?.entries;
        let at = entries.iter().position(|entry| entry.place == place)?;
        let entry = entries.remove(at);
        if entries.is_empty() {
            self.slots.remove(&print);
        }
        Some(entry)
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Entry> {
        let print = self.order.get(&place)?;
        self.slots.get_mut(print)?.entries.iter_mut().find(|entry| entry.place == place)
    }

    /// Has an entry end at another time.
    fn move_to(&mut self, place: Place, until: Instant) {
        let to = (until, place.1);
        if let Some(entry) = self.get_mut(place) {
            entry.place = to;
        }
        if let Some(print) = self.order.remove(&place) {
            self.order.insert(to, print);
        }
    }

    /// Whether this publication is still expected.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        let mut entries = self.slots.values().flat_map(|slot| &slot.entries);
        self.due > 0 && entries.any(|entry| entry.number == number && entry.message.is_some())
    }

    /// An expectation whose time is over; `None`: no further. The entry of a publication that the broker has not answered goes on until
    /// `later`, and from the answer on, which may have come just now, as long again.
    pub(crate) fn pop_overdue(
        &mut self,
        now: Instant,
        later: Instant,
        is_open: impl Fn(u64) -> bool,
    ) -> Option<Overdue> {
        while let Some((&place, _)) = self.order.first_key_value() {
            if place.0 > now {
                return None;
            }
            let entry = self.get_mut(place)?;
            let (open, is_due) = (is_open(entry.number), entry.message.is_some());
            let was_open = core::mem::replace(&mut entry.was_open, open);
            if open || was_open {
                self.move_to(place, later);
                if is_due && open {
                    return Some(Overdue::Unanswered);
                }
                continue;
            }
            let slot = self.order.get(&place).and_then(|print| self.slots.get_mut(print));
            let mistaken = is_due && slot.is_some_and(Slot::is_mistaken);
            let Some(Entry { number, message: Some(message), .. }) = self.remove(place) else { continue };
            self.due -= 1;
            self.bytes -= weight(&message);
            return Some(if mistaken { Overdue::Mistaken(number, message) } else { Overdue::Withheld(number) });
        }
        None
    }

    /// Takes out the oldest expectation, to be delivered without the broker; deliveries of it that still come are ignored until `until`.
    pub(crate) fn cover_oldest(&mut self, until: Instant) -> Option<(u64, Arc<Message>)> {
        let is_due = |place: &Place, print: &u64| {
            let mut entries = self.slots.get(print).into_iter().flat_map(|slot| &slot.entries);
            entries.any(|entry| entry.place == *place && entry.message.is_some())
        };
        let place = self.order.iter().find(|(place, print)| is_due(place, print)).map(|(&place, _)| place)?;
        let entry = self.get_mut(place)?;
        let (number, message) = (entry.number, entry.cover()?);
        self.due -= 1;
        self.bytes -= weight(&message);
        self.move_to(place, until);
        Some((number, message))
    }

    /// Returns the expected publications in their order, to be delivered without the broker; deliveries of them that still come are
    /// ignored until `until`.
    pub(crate) fn take(&mut self, until: Instant) -> Vec<(u64, Arc<Message>)> {
        let (mut due, mut places) = (Vec::new(), Vec::new());
        for entry in self.slots.values_mut().flat_map(|slot| &mut slot.entries) {
            if let Some(message) = entry.cover() {
                due.push((entry.number, message));
                places.push(entry.place);
            }
        }
        for place in places {
            self.move_to(place, until);
        }
        due.sort_by_key(|&(number, _)| number);
        (self.due, self.bytes) = (0, 0);
        due
    }
}

/// Time for which a delivery of the broker is recognised as one that the session has had already.
pub(crate) const RECOGNISED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::testing::message;

    const UNTIL: Instant = Instant::from_nanos(1_000);

    fn number(found: &Found) -> Option<u64> {
        match found {
            Found::Due(number, _) => Some(*number),
            Found::Repeated | Found::Foreign => None,
        }
    }

    /// IL-01
    #[test]
    fn equal_publications_are_matched_in_their_order() {
        let mut expected = Expected::default();
        for number in [1, 2] {
            expected.expect(UNTIL, 7, number, (message("t", "x"), QoS::AtLeastOnce), 1);
        }
        assert_eq!(number(&expected.arrived(7, QoS::AtLeastOnce)), Some(1));
        assert_eq!(number(&expected.arrived(7, QoS::AtLeastOnce)), Some(2));
        assert_eq!(expected.arrived(7, QoS::AtLeastOnce), Found::Foreign);
        assert_eq!((expected.len(), expected.bytes()), (0, 0));
    }

    /// IL-01
    #[test]
    fn a_copy_for_each_matching_subscription_counts_as_one_delivery() {
        let mut expected = Expected::default();
        expected.expect(UNTIL, 7, 1, (message("t", "x"), QoS::AtLeastOnce), 2);
        assert_eq!(number(&expected.arrived(7, QoS::AtLeastOnce)), Some(1));
        assert_eq!(expected.arrived(7, QoS::AtLeastOnce), Found::Repeated);
        assert_eq!(expected.arrived(7, QoS::AtLeastOnce), Found::Foreign);
    }

    #[test]
    fn what_is_covered_is_not_delivered_again() {
        let mut expected = Expected::default();
        expected.expect(UNTIL, 7, 1, (message("t", "x"), QoS::AtLeastOnce), 1);
        expected.expect(UNTIL, 8, 2, (message("t", "y"), QoS::AtLeastOnce), 1);
        assert_eq!(expected.cover_oldest(UNTIL).map(|(number, _)| number), Some(1));
        assert_eq!(expected.arrived(7, QoS::AtLeastOnce), Found::Repeated);
        assert!(expected.awaits(2) && !expected.awaits(1));
        assert_eq!(expected.take(UNTIL).len(), 1);
        assert_eq!(
            expected.arrived(8, QoS::AtLeastOnce),
            Found::Repeated,
            "the broker had it when the connection ended"
        );
        assert_eq!(expected.arrived(8, QoS::AtLeastOnce), Found::Foreign);
    }

    /// IL-01: the broker hangs, answers just when the entries of covered publications end, and delivers them after that.
    #[test]
    fn what_is_covered_is_recognised_after_a_late_answer() {
        let mut expected = Expected::default();
        for (number, print) in [(1, 7), (2, 8)] {
            expected.expect(UNTIL, print, number, (message("t", "x"), QoS::AtLeastOnce), 1);
        }
        let (end, later) = (Instant::from_nanos(2_000), Instant::from_nanos(3_000));
        assert!(expected.cover_oldest(end).is_some());
        assert_eq!(expected.take(end).len(), 1);
        assert_eq!(expected.pop_overdue(end, later, |_| false), None);
        assert_eq!(expected.arrived(7, QoS::AtLeastOnce), Found::Repeated);
        assert_eq!(expected.entries(), 1);
        assert_eq!(expected.pop_overdue(later, later, |_| false), None);
        assert_eq!((expected.entries(), expected.next()), (0, None), "it has had more time once");
    }

    #[test]
    fn expectations_end() {
        let mut expected = Expected::default();
        expected.expect(UNTIL, 7, 1, (message("t", "x"), QoS::AtLeastOnce), 1);
        let later = Instant::from_nanos(2_000);
        assert_eq!(expected.pop_overdue(Instant::ZERO, later, |_| false), None);
        assert_eq!(expected.pop_overdue(UNTIL, later, |_| true), Some(Overdue::Unanswered));
        assert_eq!(expected.pop_overdue(UNTIL, later, |_| false), None, "it has more time");
        let last = Instant::from_nanos(3_000);
        assert_eq!(expected.pop_overdue(later, last, |_| false), None, "the answer has come just now");
        assert_eq!(expected.pop_overdue(last, last, |_| false), Some(Overdue::Withheld(1)));
        assert_eq!((expected.pop_overdue(last, last, |_| false), expected.len(), expected.next()), (None, 0, None));
    }
}
