//! How a rule does.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sedge_rules::{Counters, Ledger};

use crate::error::BridgeError;
use crate::host::SessionView;
use crate::lag::{Lag, Measured};

/// How far a rule has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// No node has begun to run it.
    Waiting,
    /// The node with this name runs it.
    Elsewhere(String),
    /// This node runs it.
    Running,
    /// This node should run it and cannot; messages wait.
    Down,
}

impl RuleState {
    /// Its name in listings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Elsewhere(_) => "elsewhere",
            Self::Running => "running",
            Self::Down => "down",
        }
    }
}

/// A rule as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStatus {
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub state: RuleState,
    /// Messages that wait for it at this node.
    pub lag: Lag,
    /// Groups that it keeps.
    pub groups: u64,
    /// Windows that are open.
    pub windows: u64,
    /// Bytes of both.
    pub state_bytes: u64,
    /// Sparkplug edge nodes that it remembers.
    pub births: u64,
    /// Bytes of what it remembers of them.
    pub births_bytes: u64,
    /// Edge nodes that the rule has forgotten for want of room since it runs here.
    pub births_forgotten: u64,
    /// Counters of the rule at this node since the node's start.
    pub counters: Counters,
    /// The last error.
    pub last_error: Option<String>,
}

/// State that a rule's thread and its watchers share.
#[derive(Debug)]
pub(super) struct Record {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: RuleStatus,
    waiting: Measured,
    /// Counters of the connections before this one.
    before: Counters,
}

impl Record {
    pub(super) fn new(name: &str) -> Self {
        let status = RuleStatus {
            name: name.to_owned(),
            state: RuleState::Waiting,
            lag: Lag::default(),
            groups: 0,
            windows: 0,
            state_bytes: 0,
            births: 0,
            births_bytes: 0,
            births_forgotten: 0,
            counters: Counters::default(),
            last_error: None,
        };
        Self { inner: Mutex::new(Inner { status, waiting: Measured::default(), before: Counters::default() }) }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_state(&self, state: RuleState) {
        self.with(|inner| {
            if state != RuleState::Running {
                (inner.status.groups, inner.status.windows, inner.status.state_bytes) = (0, 0, 0);
            }
            inner.status.state = state;
        });
    }

    pub(super) fn set_lag(&self, session: &SessionView) {
        self.with(|inner| {
            inner.waiting.note(session, Instant::now());
            inner.status.lag = inner.waiting.lag;
        });
    }

    pub(super) fn look(&self, ledger: &Ledger) {
        let machine = ledger.machine();
        self.with(|inner| {
            inner.status.groups = machine.group_count() as u64;
            inner.status.windows = machine.window_count() as u64;
            inner.status.state_bytes = machine.state_bytes() as u64;
            if let Some(births) = machine.births() {
                inner.status.births = births.node_count() as u64;
                inner.status.births_bytes = births.bytes() as u64;
                inner.status.births_forgotten = births.forgotten();
            }
            inner.status.counters = inner.before.plus(&machine.counters());
        });
    }

    /// Another connection counts from the beginning.
    pub(super) fn begin(&self) {
        self.with(|inner| inner.before = inner.status.counters);
    }

    /// Notes why the rule does not run, and says so unless it is the same as before.
    pub(super) fn fail(&self, error: &BridgeError) {
        let text = error.to_string();
        self.set_state(RuleState::Down);
        let (name, new) = self.with(|inner| {
            let new = inner.status.last_error.as_ref() != Some(&text);
            inner.status.last_error = Some(text.clone());
            (inner.status.name.clone(), new)
        });
        if new {
            tracing::warn!(rule = name, error = text, "the rule does not run; messages wait");
        } else {
            tracing::debug!(rule = name, error = text, "the rule does not run; messages wait");
        }
    }

    /// Notes something that went wrong with one message.
    pub(super) fn note(&self, what: &str) {
        self.with(|inner| inner.status.last_error = Some(what.to_owned()));
    }

    pub(super) fn read(&self) -> RuleStatus {
        self.with(|inner| inner.status.clone())
    }
}
