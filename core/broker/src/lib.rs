//! MQTT semantics of one shard, without I/O: connections, sessions, local matching, acknowledgements, wills, timers.
//!
//! [`Broker`] is a deterministic machine: the same inputs at the same times with the same seed give the same outputs. Its owner
//! carries client bytes in and out and does what [`Output`] asks for.

mod access;
mod alias;
mod api;
mod awaited;
mod backlog;
mod broker;
mod chunks;
mod clock;
mod closed;
mod config;
mod connect;
mod connection;
mod counters;
mod detach;
mod disconnect;
mod enhanced;
mod explain;
mod fanout;
mod given;
mod group;
mod hot;
mod inbound;
mod inflight;
mod journal;
mod latency;
mod level;
mod listing;
mod merge;
mod order;
mod outgoing;
mod owners;
mod process;
mod publish;
mod queue;
mod refusal;
mod retained;
mod room;
mod send;
mod session;
mod state;
mod stragglers;
mod subscribe;
mod subscription;
#[cfg(test)]
mod testing;
mod throttle;
mod trace;
mod traffic;
mod transfer;
mod unread;
mod upstream;
mod urgent;
mod verdicts;
mod watched;
mod will;
mod withdrawn;

pub use access::{Admission, INSIDE_PREFIXES, Identity, Policy};
pub use api::{
    BounceReason, Credentials, Deliver, Event, Input, InterestChange, InterestOp, Method, Output, Report, Ticket,
};
pub use awaited::Awaits;
pub use broker::{Broker, Place};
pub use chunks::SharedBuffers;
pub use config::{Births, BrokerConfig, QueueLimits, RetainedConfig};
pub use counters::{Counters, Dropped};
pub use detach::{DETACH_BELOW_BYTES, detach};
pub use explain::{Cause, Elsewhere, Explanation, Outcome, Question};
pub use hot::{HOT_TOPIC_BYTES_MAX, HOT_TOPICS_MAX, HotTopic};
pub use journal::{Image, QueuedRecord, Record, RestoredSession, SessionFacts, SessionNumber};
pub use latency::Latencies;
pub use level::{LEVEL_EXAMINES, LastValue, Level, LevelLine, LevelQuery};
pub use listing::{SessionBrief, SessionInfo, SubscriptionInfo};
pub use owners::Census;
pub use refusal::Refusal;
pub use retained::{BUCKETS, RetainedStore, SetOutcome};
pub use send::{CLIENT_PROPERTY, ID_PROPERTY};
pub use state::{InboundState, InflightPhase, InflightState, QueuedState, SessionState, SubscriptionState, WillState};
pub use throttle::{PAUSE_MAX, PublishRate};
pub use trace::{
    TRACE_BYTES_MAX, TRACE_EVENTS_MAX, TRACES_MAX, TraceEvent, TraceParent, TraceSet, TraceSpec, TraceStep, Tracer,
};
pub use upstream::Wanting;
pub use urgent::DeadlineNames;
pub use watched::{WATCHED_BYTES_MAX, WATCHED_TOPIC_BYTES_MAX, WATCHED_VALUE_BYTES_MAX, WatchedKept};
