//! Inputs and outputs of the machine.

use core::fmt;

use sedge_base::Timestamp;

use crate::alarm::AlarmState;
use crate::site::Metric;

/// An action's number, once and for all: a driver that sees it again does it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionId(pub u64);

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleInput {
    /// A node that runs already, from an earlier controller.
    Adopt {
        /// Group it was made for.
        group: String,
        /// Name of the node.
        node: String,
    },
    /// A measurement at a node.
    Sample {
        /// Name of the node.
        node: String,
        /// Metric that was measured.
        metric: Metric,
        /// The value.
        value: f64,
    },
    /// An action is done. Said again, it means nothing.
    Done(ActionId),
    /// An action could not be done.
    Failed {
        /// The action that failed.
        action: ActionId,
        /// Reason of the failure.
        why: String,
    },
    /// A node is gone though nobody removed it.
    Gone {
        /// Name of the node.
        node: String,
        /// Evidence that the node is gone.
        why: String,
    },
    /// The kill switch: while it is true, no action begins.
    Pause(bool),
    /// Another process has evaluated an alarm.
    Alarm {
        /// Name of the alarm.
        alarm: String,
        /// State of the alarm.
        state: AlarmState,
        /// Measurement of the last period, if there is one.
        value: Option<f64>,
    },
    /// The size of a group's nodes, from an earlier controller.
    Size {
        /// The group.
        group: String,
        /// Thousandths of a processor that each node may use.
        millicpus: u32,
    },
}

/// Something for the owner to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleOutput {
    /// Carry out this action and report its outcome. An action without an answer is asked for again under the same number.
    Act(Action),
    /// From now on a load balancer sends new connections to these nodes only.
    Balance {
        /// Name of the load balancer.
        balancer: String,
        /// Names of the nodes, ascending.
        nodes: Vec<String>,
    },
    /// An alarm has changed its state: one notice for each change (EL-14).
    Notice(Notice),
    /// From now on nodes of a group are made with another size: to be kept for the next controller.
    Size {
        /// The group.
        group: String,
        /// Thousandths of a processor that each node may use.
        millicpus: u32,
    },
    /// For the event store and the log.
    Event(Event),
}

/// An action for the owner to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Number of the action.
    pub id: ActionId,
    /// Kind of the action.
    pub kind: ActionKind,
}

/// Kind of an action, with the resource or node that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Provide a resource that is no group.
    Provide {
        /// Name of the resource.
        resource: String,
    },
    /// Make a node, or start it again if it was there.
    Create {
        /// Group of the node.
        group: String,
        /// Name of the node.
        node: String,
    },
    /// Empty a node, then end it.
    Remove {
        /// Group of the node.
        group: String,
        /// Name of the node.
        node: String,
    },
    /// Move clients of the other nodes to a new node.
    Relieve {
        /// Group of the new node.
        group: String,
        /// Name of the new node.
        node: String,
    },
    /// Let a node use more or fewer processors, while it serves.
    Resize {
        /// Group of the node.
        group: String,
        /// Name of the node.
        node: String,
        /// Thousandths of a processor that the node may use.
        millicpus: u32,
    },
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provide { resource } => write!(f, "provide {resource}"),
            Self::Create { node, .. } => write!(f, "create {node}"),
            Self::Remove { node, .. } => write!(f, "empty and remove {node}"),
            Self::Relieve { node, .. } => write!(f, "move clients to {node}"),
            Self::Resize { node, millicpus, .. } => write!(f, "give {node} {} processors", processors(*millicpus)),
        }
    }
}

/// Thousandths of a processor as people write them.
pub fn processors(millicpus: u32) -> f64 {
    f64::from(millicpus) / 1_000.0
}

/// An alarm has changed its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Name of the alarm.
    pub alarm: String,
    /// State before.
    pub from: AlarmState,
    /// State from now on.
    pub to: AlarmState,
    /// Measurement of the last period, if there is one.
    pub value: Option<f64>,
}

/// A decision that gives a group another size, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision.
    pub at: Timestamp,
    /// Name of the group.
    pub group: String,
    /// Nodes before.
    pub from: u32,
    /// Nodes that are wanted.
    pub to: u32,
    /// Measurement, condition, alarm and policy in words.
    pub reason: String,
}

/// Something that happened (EL-12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event.
    pub at: Timestamp,
    /// Kind of the event.
    pub kind: EventKind,
    /// Resource or node that the event is about.
    pub subject: String,
    /// The event in words.
    pub text: String,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A node or resource is there.
    Started,
    /// A node is gone as it was meant to.
    Stopped,
    /// A node is gone though nobody wanted that.
    Lost,
    /// An alarm has changed its state.
    Alarm,
    /// A group gets another size, or does not though a policy wants it.
    Decision,
    /// An action was begun.
    Action,
    /// An action has failed.
    Failure,
    /// Somebody used the API.
    Request,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
            Self::Alarm => "alarm",
            Self::Decision => "decision",
            Self::Action => "action",
            Self::Failure => "failure",
            Self::Request => "request",
        })
    }
}
