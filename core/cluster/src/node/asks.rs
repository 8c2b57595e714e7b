//! Questions of operators that other nodes answer. The node carries them and looks into none: the drivers of both ends agree on what they mean.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sedge_base::NodeId;
use sedge_broker::Tracer;
use sedge_mqtt::Utf8;

use crate::NodeOutput;
use crate::link::ControlTopic;
use crate::node::Node;
use crate::node::failures::FailureNotices;
use crate::wire::NodeMail;

/// Questions that may be open; the oldest gets no more answers for one more.
const OPEN_ASKS_MAX: usize = 64;
/// Most bytes of a question, and of an answer. A longer one is not sent.
pub const ASK_BYTES_MAX: usize = 32 * 1024;

/// The node's knowledge for those who operate the cluster.
#[derive(Debug, Default)]
pub(in crate::node) struct Operators {
    /// Questions to other nodes, and the nodes that have not answered.
    open: BTreeMap<u64, BTreeSet<NodeId>>,
    /// The names of other nodes.
    pub names: BTreeMap<NodeId, Utf8>,
    /// Which clients members had that have died.
    pub failures: FailureNotices,
    /// While a trace runs.
    pub tracer: Option<Box<Tracer>>,
}

impl Node {
    /// Puts a question to one other member, or to all of them.
    pub(in crate::node) fn ask(&mut self, to: Option<NodeId>, request: u64, question: &Bytes) {
        let mail = NodeMail::Ask { request, question: question.clone() }.encode();
        let wanted = |node: &NodeId| *node != self.config.node && to.is_none_or(|to| to == *node);
        let others: Vec<NodeId> = self.ring.iter().copied().filter(wanted).collect();
        let fits = question.len() <= ASK_BYTES_MAX;
        let mut asked = BTreeSet::new();
        for node in others.into_iter().filter(|_| fits) {
            if self.send_control(node, ControlTopic::Node, mail.clone()).is_some() {
                asked.insert(node);
            }
        }
        if asked.is_empty() {
            return self.answered(request, None, true);
        }
        self.operators.open.insert(request, asked);
        if self.operators.open.len() > OPEN_ASKS_MAX
            && let Some((oldest, _)) = self.operators.open.pop_first()
        {
            self.answered(oldest, None, true);
        }
    }

    /// The driver answers a question of another node; an empty answer is none.
    pub(in crate::node) fn answer(&mut self, to: NodeId, request: u64, answer: Bytes) {
        let answer = if answer.len() > ASK_BYTES_MAX { Bytes::new() } else { answer };
        self.send_control(to, ControlTopic::Node, NodeMail::Answer { request, answer }.encode());
    }

    /// Another node asks.
    pub(in crate::node) fn is_asked(&mut self, from: NodeId, request: u64, question: Bytes) {
        self.outputs.push_back(NodeOutput::Asked { from, request, question });
    }

    /// Another node has answered.
    pub(in crate::node) fn is_answered(&mut self, from: NodeId, request: u64, answer: Bytes) {
        let Some(asked) = self.operators.open.get_mut(&request) else { return };
        if !asked.remove(&from) {
            return;
        }
        let last = asked.is_empty();
        if last {
            self.operators.open.remove(&request);
        }
        self.answered(request, (!answer.is_empty()).then_some((from, answer)), last);
    }

    /// Nobody waits for the answers of a node that is gone.
    pub(in crate::node) fn asks_without(&mut self, node: NodeId) {
        for request in self.operators.open.keys().copied().collect::<Vec<_>>() {
            self.is_answered(node, request, Bytes::new());
        }
    }

    fn answered(&mut self, request: u64, answer: Option<(NodeId, Bytes)>, last: bool) {
        self.outputs.push_back(NodeOutput::Answered { request, answer, last });
    }
}
