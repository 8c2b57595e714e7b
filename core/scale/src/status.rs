//! The machine's state, for people and for the API.

use sedge_base::Instant;

use crate::alarm::AlarmState;
use crate::site::Metric;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleStatus {
    /// Whether the kill switch is on.
    pub paused: bool,
    /// Groups by name.
    pub groups: Vec<GroupStatus>,
    /// Alarms by name.
    pub alarms: Vec<AlarmStatus>,
    /// Actions that were begun and not answered, in words.
    pub pending: Vec<String>,
    /// Actions that policies may still start within this hour.
    pub actions_left: u32,
    /// Samples that were not taken in.
    pub dropped_samples: u64,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Fewest nodes.
    pub min: u32,
    /// Most nodes.
    pub max: u32,
    /// Nodes that are wanted.
    pub wanted: u32,
    /// Thousandths of a processor that each node may use, if that is limited.
    pub millicpus: Option<u32>,
    /// Reason why a change that a policy wants is not made, if there is one.
    pub hold: Option<String>,
    /// Nodes of the group.
    pub members: Vec<MemberStatus>,
}

/// A node of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    /// Name of the node.
    pub name: String,
    /// State of the node.
    pub state: MemberState,
    /// Time since which the node is in this state.
    pub since: Instant,
    /// Newest samples of the node.
    pub samples: Vec<(Metric, f64)>,
}

/// State of a node of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The node is being made.
    Starting,
    /// The node serves clients.
    Serving,
    /// The node is being emptied.
    Leaving,
}

impl core::fmt::Display for MemberState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Leaving => "leaving",
        })
    }
}

/// An alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmStatus {
    /// Name of the alarm.
    pub name: String,
    /// State of the alarm.
    pub state: AlarmState,
    /// Time since which the alarm is in this state.
    pub since: Instant,
    /// Measurement of the last period, if there is one.
    pub value: Option<f64>,
}
