//! How a bridge does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::error::BridgeError;
use crate::host::SessionView;
use crate::lag::{Lag, Measured};

/// How far a bridge has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeState {
    /// No node has begun to run it.
    Waiting,
    /// The node with this name runs it.
    Elsewhere(String),
    /// It is connected to this address.
    Running(String),
    /// The other end cannot be reached; messages wait.
    Down,
}

impl BridgeState {
    /// Its name in listings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Elsewhere(_) => "elsewhere",
            Self::Running(_) => "running",
            Self::Down => "down",
        }
    }
}

/// A bridge as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeStatus {
    /// Its name.
    pub name: String,
    /// `mqtt` or `kafka`.
    pub kind: &'static str,
    /// `out`, `in` or `both`.
    pub direction: &'static str,
    /// How far it has come.
    pub state: BridgeState,
    /// Messages that wait at this node until the other end has them.
    pub lag: Lag,
    /// Counters of this node.
    pub counts: Counts,
    /// The last error since the start of this node.
    pub last_error: Option<String>,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a bridge at a node since the node's start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// The same counters while the bridge counts.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Messages that the other end has acknowledged; with QoS 0, that were sent.
    messages_out,
    /// Bytes of their payloads.
    bytes_out,
    /// Messages that came from the other end.
    messages_in,
    /// Bytes of their payloads.
    bytes_in,
    /// Messages that do not go: too many hops, no name at the other end, or too large for it.
    dropped,
    /// Messages that the receiving end refused for good.
    refused,
    /// Messages that a transform has kept.
    kept,
    /// Messages that were not sent again, since a committed transaction had brought them there.
    repeats,
    /// QoS 2 messages whose handshake the other end had forgotten.
    forgotten,
    /// Connections to the other end.
    connects,
    /// Connections that were lost, and attempts that failed.
    failures,
}

/// State that a bridge's thread and its watchers share.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) counters: Counters,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: BridgeState,
    waiting: Measured,
    last_error: Option<String>,
}

impl Record {
    pub(crate) fn new(name: &str) -> Self {
        let inner = Inner { state: BridgeState::Waiting, waiting: Measured::default(), last_error: None };
        Self { name: name.to_owned(), counters: Counters::default(), inner: Mutex::new(inner) }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_state(&self, state: BridgeState) {
        self.with(|inner| inner.state = state);
    }

    /// It is connected; whether it was not before.
    #[cfg(feature = "kafka")]
    pub(crate) fn set_running(&self, address: &str) -> bool {
        let state = BridgeState::Running(address.to_owned());
        self.with(|inner| {
            let changes = inner.state != state;
            inner.state = state;
            changes
        })
    }

    pub(crate) fn set_lag(&self, session: &SessionView) {
        self.with(|inner| inner.waiting.note(session, Instant::now()));
    }

    /// Notes why the bridge does not run, and says so unless it is the same as before.
    pub(crate) fn fail(&self, error: &BridgeError) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        let new = self.with(|inner| {
            inner.state = BridgeState::Down;
            let new = inner.last_error.as_ref() != Some(&text);
            inner.last_error = Some(text.clone());
            new
        });
        if new {
            tracing::warn!(bridge = self.name, error = text, "the bridge does not run; messages wait");
        } else {
            tracing::debug!(bridge = self.name, error = text, "the bridge does not run; messages wait");
        }
    }

    /// Notes something that went wrong with one message.
    pub(crate) fn note(&self, what: &str) {
        tracing::debug!(bridge = self.name, what, "a message does not go");
        self.with(|inner| inner.last_error = Some(what.to_owned()));
    }

    pub(crate) fn read(&self, kind: &'static str, direction: &'static str) -> BridgeStatus {
        let counts = self.counters.read();
        self.with(|inner| BridgeStatus {
            name: self.name.clone(),
            kind,
            direction,
            state: inner.state.clone(),
            lag: inner.waiting.lag,
            counts,
            last_error: inner.last_error.clone(),
        })
    }
}
