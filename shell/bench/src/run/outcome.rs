//! Outcome of a run.

use crate::host::Usage;
use crate::measure::Tally;
use crate::scenario::Scenario;

/// A part of a run.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// When it began, in seconds since the run did.
    pub(crate) at_s: f64,
    pub(crate) seconds: f64,
    /// Processor time of the brokers, if their processes or metrics are known.
    pub(crate) cpu_s: Option<f64>,
    /// Largest resident memory of the brokers seen.
    pub(crate) rss_kib: Option<u64>,
}

/// The brokers at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Seconds since the run began.
    pub(crate) at_s: f64,
    pub(crate) usage: Usage,
}

/// One of the processes, over time.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSamples {
    pub(crate) name: String,
    /// Until it ended.
    pub(crate) samples: Vec<Sample>,
}

/// Something that was done to a broker.
#[derive(Clone, Debug)]
pub(crate) struct FaultDone {
    /// When, in seconds since publishing began.
    pub(crate) at_s: f64,
    pub(crate) what: String,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) scenario: Scenario,
    pub(crate) brokers: Vec<String>,
    pub(crate) sp_ratio: f64,
    pub(crate) nominal_rate: Option<f64>,
    pub(crate) clients: u64,
    pub(crate) connect_s: f64,
    /// Length of the window.
    pub(crate) measure_s: f64,
    /// Deliveries that the messages sent in the window should have caused.
    pub(crate) expected: u64,
    /// From the begin of the window to the last delivery.
    pub(crate) completion_s: f64,
    pub(crate) tally: Tally,
    pub(crate) phases: Vec<Phase>,
    pub(crate) samples: Vec<Sample>,
    /// Processes that have names, each alone.
    pub(crate) processes: Vec<ProcessSamples>,
    /// When publishing began, in seconds since the run began.
    pub(crate) origin_s: f64,
    pub(crate) faults: Vec<FaultDone>,
    pub(crate) warnings: Vec<String>,
    /// Clocks of other driver processes.
    pub(crate) clocks: Vec<String>,
    /// Share of TCP segments of this machine that were sent again in the window.
    pub(crate) retransmitted: f64,
}

impl Outcome {
    /// Nothing happened.
    #[cfg(test)]
    pub(crate) fn empty(scenario: Scenario) -> Self {
        Self {
            scenario,
            brokers: Vec::new(),
            sp_ratio: 1.0,
            nominal_rate: None,
            clients: 0,
            connect_s: 0.0,
            measure_s: 1.0,
            expected: 0,
            completion_s: 0.0,
            tally: Tally::default(),
            phases: Vec::new(),
            samples: Vec::new(),
            processes: Vec::new(),
            origin_s: 0.0,
            faults: Vec::new(),
            warnings: Vec::new(),
            clocks: Vec::new(),
            retransmitted: 0.0,
        }
    }

    /// The phase of this name.
    pub(crate) fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}
