//! The node as bridges see it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sedge_base::{ClientId, ShardId};
use sedge_bridge::{Answered, BridgeConfig, Bridges, Full, Host, RetainedPage, Runner, SessionView, Transform};
use sedge_broker::QueueLimits;
use sedge_cluster::shard_of;
use sedge_mqtt::{Message, Publish, TopicFilter, TopicName};

use crate::runtime::{Handover, Letter, Shared, View};
use crate::transport::{Peer, Socket};
use crate::{Config, StartError, awaits, rules};

/// A thread that does not answer in this time is stuck or drowned.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Messages that wait for a bridge: the limit in bytes is the one that counts.
pub(crate) const MESSAGES_MAX: usize = 1 << 31;
/// Retained messages that are looked at in one go.
const RETAINED_PAGE: usize = 100;
/// Number of the listener of connections that came through none.
const NO_LISTENER: u16 = u16::MAX;

/// See the module.
#[derive(Clone)]
pub(crate) struct Inside(pub(crate) Arc<Shared>);

/// Limits of the queues of the bridges' sessions, by client id.
pub(crate) fn queues(config: &Config) -> BTreeMap<Box<str>, QueueLimits> {
    let queue = |(name, bridge): (&String, &BridgeConfig)| {
        let limits = QueueLimits {
            messages: MESSAGES_MAX,
            bytes: usize::try_from(bridge.buffer_bytes).unwrap_or(usize::MAX),
            drops_oldest: bridge.buffer_full == Full::DropOldest,
            refuses: bridge.buffer_full == Full::Refuse,
        };
        (BridgeConfig::session_id(name).into_boxed_str(), limits)
    };
    config.bridges.iter().map(queue).collect()
}

/// Outputs of a rule for a bridge: each goes under the topic that its message came from.
struct Outputs {
    prefix: String,
}

impl Transform for Outputs {
    fn apply(&mut self, message: &mut Publish) -> bool {
        let topic = message.topic.as_ref().and_then(|topic| topic.as_str().strip_prefix(&self.prefix));
        message.topic = topic.and_then(|topic| TopicName::new(topic).ok());
        message.topic.is_some()
    }
}

/// The rule of the bridge with this name, if it has one.
fn rule<'a>(config: &'a Config, name: &str) -> Option<&'a str> {
    Some(config.bridges.get(name)?.rule.as_str()).filter(|rule| !rule.is_empty())
}

/// The transformation that the bridge's rule applies to its messages; `None`: this bridge has no rule.
fn transform(config: &Config, name: &str) -> Option<Box<dyn Transform>> {
    let outputs = Outputs { prefix: rules::prefix(rule(config, name)?) };
    Some(Box::new(outputs))
}

/// The bridges as they run.
fn running(config: &Config) -> BTreeMap<String, BridgeConfig> {
    let bridges = config.bridges.iter().map(|(name, bridge)| {
        let outputs = rule(config, name).map(|rule| vec![format!("{}#", rules::prefix(rule))]);
        let from = outputs.unwrap_or_else(|| bridge.from.clone());
        (name.clone(), BridgeConfig { from, takes: bridge.from.clone(), ..bridge.clone() })
    });
    bridges.collect()
}

/// Makes the bridges those of this configuration.
pub(crate) fn change(bridges: &Bridges, config: &Config, shared: &Arc<Shared>) -> io::Result<()> {
    bridges.change(&running(config), &Arc::new(Inside(Arc::clone(shared))), |name| transform(config, name))
}

/// Starts the bridges of the configuration.
pub(crate) fn start(config: &Config, shared: &Arc<Shared>) -> Result<Arc<Bridges>, StartError> {
    let host = Arc::new(Inside(Arc::clone(shared)));
    let bridges = Bridges::start(&running(config), &config.cluster.name, &host, |name| transform(config, name));
    let bridges = Arc::new(bridges.map_err(StartError::system("start a thread"))?);
    // There is no second one.
    let _ = shared.bridges.set(Arc::downgrade(&bridges));
    Ok(bridges)
}

impl Inside {
    pub(crate) fn shard(&self, client: &ClientId) -> ShardId {
        shard_of(client, u16::try_from(self.0.boxes.len()).unwrap_or(1))
    }

    /// Runs `question` on the thread of `shard` and waits for what it says.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        shard: ShardId,
        question: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = mpsc::channel();
        let query = move |view: &View<'_>| {
            // Nobody listens any more when this took too long.
            let _ = sender.send(question(view));
        };
        self.0.post(shard, Letter::Query(Box::new(query)));
        answer.recv_timeout(PATIENCE).ok()
    }
}

impl Host for Inside {
    fn connect(&self, client_id: &str) -> io::Result<UnixStream> {
        if self.0.stopping.load(Ordering::Acquire) {
            return Err(io::Error::other("the node stops"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let socket = Socket::Unix(mio::net::UnixStream::from_std(theirs));
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        let handover = Handover {
            socket,
            layers: None,
            listener: NO_LISTENER,
            peer: Peer::Inside,
            seat: None,
            user: None,
            bytes: Vec::new(),
        };
        self.0.post(self.shard(&ClientId::new(client_id)), Letter::Handover(Box::new(handover)));
        Ok(ours)
    }

    fn runner(&self, client_id: &str) -> Option<Runner> {
        let client = ClientId::new(client_id);
        self.ask(ShardId(0), move |view| {
            let node = view.node?;
            if !node.is_restored() || view.shard.stands_still() {
                return Some(Runner::Nobody);
            }
            Some(match node.runner_of(&client) {
                Some(runner) if runner == node.id() => {
                    // A node that is not ready learns the state of the other nodes first, before it takes over a bridge.
                    if node.is_ready() { Runner::Here } else { Runner::Nobody }
                }
                Some(runner) => Runner::Elsewhere(runner.to_string()),
                None => Runner::Nobody,
            })
        })?
    }

    fn retained(&self, filter: &TopicFilter, place: usize) -> Option<RetainedPage> {
        let (filter, wall) = (filter.clone(), self.0.clock.now().wall);
        self.ask(ShardId(0), move |view| {
            let (found, next) = view.node?.retained_page(&filter, wall, place, RETAINED_PAGE);
            let pair = |message: &Arc<Message>| (message.topic.clone(), message.payload.clone());
            Some(RetainedPage { messages: found.iter().map(pair).collect(), next })
        })?
    }

    fn close_topics(&self, filters: Vec<TopicFilter>) {
        self.0.post(ShardId(0), Letter::ClosedTopics(filters));
    }

    fn answer_awaited(&self, client_id: &str) -> Answered {
        awaits::answer_awaited(self, client_id)
    }

    fn session(&self, client_id: &str) -> Option<SessionView> {
        let client = ClientId::new(client_id);
        let shard = self.shard(&client);
        let wall = self.0.clock.now().wall;
        let look = move |view: &View<'_>| {
            let broker = view.shard.broker();
            Some((broker.session(&client)?, broker.oldest_wait(&client, wall), broker.free_bytes()))
        };
        let (session, (waits, waits_stored), free) = self.ask(shard, look)??;
        Some(SessionView {
            filters: session.subscriptions.iter().map(|found| found.filter.as_str().to_owned()).collect(),
            messages: (session.queued + session.inflight) as u64,
            bytes: session.queued_bytes as u64,
            waits,
            waits_stored,
            // It may have as much as is free; the last quarter is for what is on its way already.
            is_tight: session.queued_bytes > free / 4 * 3,
            unreleased: session.unreleased.iter().map(|id| id.get()).collect(),
        })
    }
}
