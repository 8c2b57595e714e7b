//! QoS 1 and 2 publications of one client until they are answered (MQTT 5.0 section 4.3).

use std::collections::VecDeque;

use sedge_mqtt::{PacketId, ReasonCode};

/// A PUBACK or PUBREC that is owed, in the order of the PUBLISH packets (MQTT 5.0 section 4.6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) packet_id: PacketId,
    /// PUBREC instead of PUBACK.
    pub(crate) exactly_once: bool,
    /// Known once the publication is accepted.
    pub(crate) reason: Option<ReasonCode>,
}

/// Number of no ticket.
const NO_TICKET: u32 = u32::MAX;

/// A QoS 2 publication between PUBLISH and PUBREL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub(crate) packet_id: PacketId,
    /// Number of the ticket that was handed out for it, or [`NO_TICKET`].
    number: u32,
    /// Reason code that PUBREC carried or will carry; `None` while the publication is on its way.
    pub(crate) reason: Option<ReasonCode>,
    /// Whether it came on the present connection and counts against the receive maximum.
    pub(crate) counted: bool,
}

/// The fate of a QoS 2 PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is new: route it with this ticket number.
    New(u32),
    /// It was seen before; the answer is owed again.
    Again {
        /// Whether it counts against the receive maximum from now on.
        count: bool,
    },
}

/// All of one session.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Ticket number of the first answer.
    first: u32,
    answers: VecDeque<Answer>,
    /// By packet identifier.
    exact: VecDeque<Exact>,
}

impl Inbound {
    /// Answers that are owed.
    pub(crate) fn owed(&self) -> usize {
        self.answers.len()
    }

    pub(crate) fn exact(&self) -> impl Iterator<Item = &Exact> {
        self.exact.iter()
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty() && self.exact.is_empty()
    }

    /// Whether `id` is that of a QoS 2 publication in progress.
    pub(crate) fn is_exact(&self, id: PacketId) -> bool {
        !self.exact.is_empty() && self.find(id).is_ok()
    }

    /// A QoS 1 PUBLISH has come; returns its ticket number.
    pub(crate) fn at_least_once(&mut self, packet_id: PacketId) -> u32 {
        self.owe(Answer { packet_id, exactly_once: false, reason: None })
    }

    /// A QoS 2 PUBLISH has come.
    pub(crate) fn exactly_once(&mut self, packet_id: PacketId) -> Arrival {
        match self.find(packet_id) {
            Ok(index) => {
                let exact = &mut self.exact[index];
                let count = !core::mem::replace(&mut exact.counted, true);
                let reason = exact.reason;
                let is_owed = |answer: &Answer| answer.exactly_once && answer.packet_id == packet_id;
                if !self.answers.iter().any(is_owed) {
                    self.owe(Answer { packet_id, exactly_once: true, reason });
                }
                Arrival::Again { count }
            }
            Err(index) => {
                let number = self.owe(Answer { packet_id, exactly_once: true, reason: None });
                self.exact.insert(index, Exact { packet_id, number, reason: None, counted: true });
                Arrival::New(number)
            }
        }
    }

    /// An answer that needs no acceptance, in its turn.
    pub(crate) fn answer(&mut self, packet_id: PacketId, exactly_once: bool, reason: ReasonCode) {
        if exactly_once
            && !reason.is_error()
            && let Err(index) = self.find(packet_id)
        {
            self.exact.insert(index, Exact { packet_id, number: NO_TICKET, reason: Some(reason), counted: true });
        }
        self.owe(Answer { packet_id, exactly_once, reason: Some(reason) });
    }

    /// The publication with this ticket number was accepted, or not. It may be one of an earlier connection.
    /// Returns the identifier of a QoS 2 publication whose answer is known by this.
    pub(crate) fn accepted(&mut self, number: u32, reason: ReasonCode) -> Option<PacketId> {
        let index = usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(answer) = self.answers.get_mut(index) {
            if answer.reason.is_some() {
                return None;
            }
            answer.reason = Some(reason);
            if !answer.exactly_once {
                return None;
            }
            let id = answer.packet_id;
            self.settle(id, reason);
            return Some(id);
        }
        let waiting = |exact: &&Exact| exact.number == number && exact.reason.is_none();
        let id = self.exact.iter().find(waiting).map(|exact| exact.packet_id)?;
        self.settle(id, reason);
        for answer in &mut self.answers {
            if answer.exactly_once && answer.packet_id == id && answer.reason.is_none() {
                answer.reason = Some(reason);
            }
        }
        Some(id)
    }

    /// The next answer to send, if it is known.
    pub(crate) fn pop_answer(&mut self) -> Option<(Answer, ReasonCode)> {
        let answer = *self.answers.front()?;
        let reason = answer.reason?;
        self.answers.pop_front();
        self.first = self.first.wrapping_add(1);
        Some((answer, reason))
    }

    /// A QoS 2 publication was refused with PUBREC: its identifier is free. Says whether it counted.
    pub(crate) fn refuse(&mut self, id: PacketId) -> bool {
        self.complete(id).is_none_or(|counted| counted)
    }

    /// PUBREL has come: forgets the identifier. `None` if it is not known; else whether it counted.
    pub(crate) fn complete(&mut self, id: PacketId) -> Option<bool> {
        let index = self.find(id).ok()?;
        self.exact.remove(index).map(|exact| exact.counted)
    }

    /// The connection is lost, and the QoS 2 publication with this ticket number counts as not read. Returns its identifier.
    pub(crate) fn unread(&mut self, number: u32) -> Option<PacketId> {
        let index = self.exact.iter().position(|exact| exact.number == number)?;
        self.exact.remove(index).map(|exact| exact.packet_id)
    }

    /// The connection is lost: no answer is owed until the client repeats its PUBLISH.
    pub(crate) fn disconnect(&mut self) {
        let owed = u32::try_from(self.answers.len()).unwrap_or(u32::MAX);
        self.first = self.first.wrapping_add(owed);
        self.answers = VecDeque::new();
        // A publication that was refused without the client knowing is new when it comes again.
        self.exact.retain(|exact| exact.reason.is_none_or(|reason| !reason.is_error()));
        for exact in &mut self.exact {
            exact.counted = false;
        }
    }

    /// Enters a QoS 2 publication of another node. One whose answer was not known there was on its way: it counts as accepted,
    /// since routing it again might deliver it twice. False if there is one with this identifier.
    pub(crate) fn restore(&mut self, packet_id: PacketId, answer: Option<ReasonCode>) -> bool {
        let reason = Some(answer.unwrap_or(ReasonCode::Success));
        let Err(index) = self.find(packet_id) else { return false };
        self.exact.insert(index, Exact { packet_id, number: NO_TICKET, reason, counted: false });
        true
    }

    /// Enters a QoS 2 publication whose answer is awaited again, although none is owed yet; returns its ticket number.
    pub(crate) fn resume(&mut self, packet_id: PacketId) -> u32 {
        let number = self.first;
        self.first = self.first.wrapping_add(1);
        if let Err(index) = self.find(packet_id) {
            self.exact.insert(index, Exact { packet_id, number, reason: None, counted: false });
        }
        number
    }

    fn settle(&mut self, id: PacketId, reason: ReasonCode) {
        if let Ok(index) = self.find(id) {
            self.exact[index].reason = Some(reason);
        }
    }

    fn owe(&mut self, answer: Answer) -> u32 {
        let offset = u32::try_from(self.answers.len()).unwrap_or(u32::MAX);
        self.answers.push_back(answer);
        self.first.wrapping_add(offset)
    }

    fn find(&self, id: PacketId) -> Result<usize, usize> {
        // Identifiers mostly ascend: a new one goes to the end.
        if self.exact.back().is_none_or(|last| last.packet_id < id) {
            return Err(self.exact.len());
        }
        self.exact.binary_search_by_key(&id, |exact| exact.packet_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u16) -> PacketId {
        PacketId::new(number).unwrap()
    }

    fn answers(inbound: &mut Inbound) -> Vec<(u16, ReasonCode)> {
        core::iter::from_fn(|| inbound.pop_answer()).map(|(answer, reason)| (answer.packet_id.get(), reason)).collect()
    }

    /// MQ-05
    #[test]
    fn answers_keep_the_order_of_arrival() {
        let mut inbound = Inbound::default();
        let tickets = [3, 1, 2].map(|number| inbound.at_least_once(id(number)));
        inbound.accepted(tickets[2], ReasonCode::Success);
        assert_eq!(answers(&mut inbound), []);
        inbound.accepted(tickets[0], ReasonCode::NoMatchingSubscribers);
        assert_eq!(answers(&mut inbound), [(3, ReasonCode::NoMatchingSubscribers)]);
        inbound.accepted(tickets[1], ReasonCode::Success);
        assert_eq!(answers(&mut inbound), [(1, ReasonCode::Success), (2, ReasonCode::Success)]);
    }

    /// MQ-06
    #[test]
    fn a_late_acceptance_answers_the_repetition() {
        let mut inbound = Inbound::default();
        let Arrival::New(ticket) = inbound.exactly_once(id(5)) else { panic!() };
        let stale = inbound.at_least_once(id(6));
        inbound.disconnect();
        assert_eq!(inbound.exactly_once(id(5)), Arrival::Again { count: true });
        assert_eq!(inbound.exactly_once(id(5)), Arrival::Again { count: false });
        inbound.accepted(stale, ReasonCode::Success);
        assert_eq!(answers(&mut inbound), []);
        inbound.accepted(ticket, ReasonCode::Success);
        assert_eq!(answers(&mut inbound), [(5, ReasonCode::Success)]);
        assert_eq!(inbound.complete(id(5)), Some(true));
        assert_eq!(inbound.complete(id(5)), None);
        assert!(inbound.is_idle());
    }

    /// MQ-06
    #[test]
    fn what_counts_as_not_read_is_new_when_it_comes_again() {
        let mut inbound = Inbound::default();
        inbound.restore(id(4), None);
        let [Arrival::New(first), Arrival::New(second)] = [5, 6].map(|number| inbound.exactly_once(id(number))) else {
            panic!()
        };
        inbound.disconnect();
        assert_eq!(inbound.unread(first), Some(id(5)));
        assert_eq!(inbound.unread(first), None);
        assert!(matches!(inbound.exactly_once(id(5)), Arrival::New(_)));
        assert!(matches!(inbound.exactly_once(id(6)), Arrival::Again { .. }));
        assert!(matches!(inbound.exactly_once(id(4)), Arrival::Again { .. }));
        inbound.accepted(second, ReasonCode::Success);
        assert_eq!(answers(&mut inbound), []);
    }

    /// MQ-06
    #[test]
    fn identifiers_are_found_in_any_order() {
        let mut inbound = Inbound::default();
        for number in [7, 3, 9, 1] {
            assert!(matches!(inbound.exactly_once(id(number)), Arrival::New(_)));
        }
        assert!(inbound.exact().map(|exact| exact.packet_id.get()).eq([1, 3, 7, 9]));
        assert!(inbound.is_exact(id(3)) && !inbound.is_exact(id(4)));
        inbound.restore(id(4), None);
        assert!(inbound.is_exact(id(4)));
    }
}
