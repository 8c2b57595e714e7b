//! A node's notes about publications that a trace follows; see [`sedge_broker::Tracer`].

use std::sync::Arc;

use sedge_base::NodeId;
use sedge_broker::{TraceParent, TraceSpec, TraceStep, Tracer};
use sedge_mqtt::Message;

use crate::node::Node;
use crate::node::delivery::copied::Source;

impl Node {
    /// These traces run from now on.
    pub(in crate::node) fn set_traces(&mut self, specs: &[Arc<TraceSpec>]) {
        if specs.is_empty() {
            self.operators.tracer = None;
        } else {
            self.operators.tracer.get_or_insert_default().set(specs);
        }
    }

    /// The notes, if a trace runs.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.operators.tracer.as_deref()
    }

    /// A publication of a client of this node goes to these nodes.
    pub(in crate::node) fn trace_routed(&mut self, message: &Message, mut nodes: Vec<NodeId>, groups: usize) {
        let Some(tracer) = &mut self.operators.tracer else { return };
        nodes.sort_unstable();
        nodes.dedup();
        let traces = tracer.chosen(message);
        tracer.note(self.now, traces, message, TraceStep::Routed { nodes, groups });
    }

    /// A publication has come from another node.
    pub(in crate::node) fn trace_came(&mut self, from: Source, message: &Message, again: bool) {
        let Some(tracer) = &mut self.operators.tracer else { return };
        let (Source::Link(from) | Source::Stream(from)) = from;
        let traces = tracer.chosen(message);
        if !traces.is_empty() {
            let parent = TraceParent::of(message);
            tracer.note(self.now, traces, message, TraceStep::Came { from, again, parent });
        }
    }
}
