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
    /// It has to be asked about all topics.
    New,
    /// It was asked, and the tables of the mesh are not exchanged yet: nothing is known of it for certain.
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
    asked: VecDeque<Arc<[TopicName]>>,
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

    /// Whether it has to be asked about all topics.
    pub(super) fn is_new(&self) -> bool {
        self.link == Link::New
    }

    /// Whether it may want anything.
    pub(super) fn is_syncing(&self) -> bool {
        matches!(self.link, Link::New | Link::Syncing)
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

    pub(super) fn note_question(&mut self, topics: Arc<[TopicName]>) {
        self.asked.push_back(topics);
    }

    /// What was asked for in the question that these are the answers to.
    pub(super) fn take_question(&mut self, answers: &[bool]) -> Result<Arc<[TopicName]>, SignalError> {
        let question = self.asked.pop_front().ok_or(SignalError::Value("order: answer without a question"))?;
        let (given, spare) = answers.split_at_checked(question.len()).ok_or(SignalError::Value("number of answers"))?;
        let is_whole = answers.len() == given.len().next_multiple_of(8);
        if is_whole && !spare.contains(&true) { Ok(question) } else { Err(SignalError::Value("number of answers")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_its_question() {
        let mut peer = Peer::default();
        assert!(peer.take_question(&[false; 8]).is_err(), "nothing was asked");
        let mut ask = |count: usize, answers: &[bool]| {
            let topics: Arc<[TopicName]> = vec![TopicName::new("a").expect("a topic"); count].into();
            peer.note_question(topics);
            peer.take_question(answers).map(|topics| topics.len())
        };
        assert_eq!(ask(8, &[true; 8]), Ok(8));
        assert_eq!(ask(3, &[true, true, true, false, false, false, false, false]), Ok(3));
        assert!(ask(3, &[true, true, true, true, false, false, false, false]).is_err(), "one more than was asked for");
        assert!(ask(8, &[false; 16]).is_err());
        assert!(ask(9, &[false; 8]).is_err());
    }
}
