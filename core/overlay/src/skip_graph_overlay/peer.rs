//! One other node as this one knows it.

use std::collections::VecDeque;
use std::sync::Arc;

use sedge_base::Incarnation;
use sedge_mqtt::TopicName;

use super::signal::SignalError;

/// How far the link to a node has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Down,
    /// The node has to be asked about all topics.
    New,
    /// The node was asked, and the tables of the mesh are not exchanged yet: nothing is known of the node for certain.
    Syncing,
    Synced,
}

/// A node that was linked to at some time, and is not gone.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) incarnation: Incarnation,
    /// Membership has lost the node although a link stands: it is forgotten with the link.
    pub(super) lost: bool,
    link: Link,
    /// Questions without an answer yet, oldest first.
    asked: VecDeque<(u64, Arc<[TopicName]>)>,
}

impl Peer {
    pub(super) fn link_up(&mut self, incarnation: Incarnation) {
        *self = Self { incarnation, link: Link::New, ..Self::default() };
    }

    pub(super) fn link_down(&mut self) {
        self.link = Link::Down;
        self.asked.clear();
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link != Link::Down
    }

    /// Whether the peer has to be asked about all topics.
    pub(super) fn is_new(&self) -> bool {
        self.link == Link::New
    }

    /// Whether the peer may want anything.
    pub(super) fn is_syncing(&self) -> bool {
        matches!(self.link, Link::New | Link::Syncing)
    }

    /// Whether the peer is in step and has only not answered questions about new topics.
    pub(super) fn is_synced(&self) -> bool {
        self.link == Link::Synced && !self.lost
    }

    pub(super) fn note_all_asked(&mut self) {
        if self.link == Link::New {
            self.link = Link::Syncing;
        }
    }

    pub(super) fn note_synced(&mut self) {
        if self.link == Link::Syncing {
            self.link = Link::Synced;
        }
    }

    /// Another question. Numbers grow for ever, since answers may come as late as over another link.
    pub(super) fn ask(&mut self, number: u64, topics: Arc<[TopicName]>) {
        self.asked.push_back((number, topics));
    }

    /// Topics of the question that `answers` belong to; none if the question was asked anew over another link since. `last`: the number of
    /// the last question to any neighbour.
    pub(super) fn take_question(
        &mut self,
        number: u64,
        last: u64,
        answers: &[bool],
    ) -> Result<Option<Arc<[TopicName]>>, SignalError> {
        let next = self.asked.front().map_or_else(|| last.saturating_add(1), |(next, _)| *next);
        if number < next {
            return Ok(None);
        }
        let question = self.asked.pop_front().filter(|_| number == next);
        let (_, question) = question.ok_or(SignalError::Value("number of a question"))?;
        let (given, spare) = answers.split_at_checked(question.len()).ok_or(SignalError::Value("number of answers"))?;
        let is_whole = answers.len() == given.len().next_multiple_of(8);
        if is_whole && !spare.contains(&true) {
            Ok(Some(question))
        } else {
            Err(SignalError::Value("number of answers"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(count: usize) -> Arc<[TopicName]> {
        vec![TopicName::new("a").expect("a topic"); count].into()
    }

    #[test]
    fn an_answer_fits_its_question() {
        let mut peer = Peer::default();
        assert!(peer.take_question(1, 0, &[false; 8]).is_err(), "nothing was asked");
        let mut number = 0;
        let mut ask = |count: usize, answers: &[bool]| {
            number += 2;
            peer.ask(number, topics(count));
            peer.take_question(number, number, answers).map(|topics| topics.map(|topics| topics.len()))
        };
        assert_eq!(ask(8, &[true; 8]), Ok(Some(8)));
        assert_eq!(ask(3, &[true, true, true, false, false, false, false, false]), Ok(Some(3)));
        assert!(ask(3, &[true, true, true, true, false, false, false, false]).is_err(), "one more than was asked for");
        assert!(ask(8, &[false; 16]).is_err());
        assert!(ask(9, &[false; 8]).is_err());
        assert!(peer.take_question(11, 10, &[false; 8]).is_err(), "a question that was not asked yet");
    }

    #[test]
    fn answers_from_an_earlier_link_say_nothing() {
        let mut peer = Peer::default();
        peer.link_up(Incarnation::new(1));
        peer.ask(1, topics(1));
        peer.ask(2, topics(1));
        peer.link_up(Incarnation::new(1));
        assert_eq!(peer.take_question(1, 2, &[false; 8]), Ok(None), "before it was asked anew");
        peer.ask(3, topics(2));
        peer.ask(4, topics(2));
        assert_eq!(peer.take_question(2, 4, &[false; 8]), Ok(None));
        assert!(peer.take_question(3, 4, &[false; 8]).is_ok_and(|topics| topics.is_some()));
        assert_eq!(peer.take_question(3, 4, &[false; 8]), Ok(None), "again");
        assert!(peer.take_question(5, 5, &[false; 8]).is_err(), "one that was left out");
    }
}
