//! Questions between nodes about what their APIs say, so that any node speaks for the whole cluster.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sedge_base::{NodeId, ShardId};
use sedge_cluster::ASK_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::ask::PATIENCE;
use super::error::ApiError;
use super::server::Api;
use super::{
    accounts, bridges, explain, logs, members, retained, routes, rules, sessions, topics, topology, traces, tree,
};
use crate::runtime::{Ask, Letter, Shared};

/// Questions of other nodes that wait for an answer; one more gets none.
const WAITING_MAX: usize = 64;
/// Most bytes of an answer: lists are cut so that they fit.
pub(super) const ANSWER_BYTES: usize = ASK_BYTES_MAX - 1024;

/// A question of one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", content = "about", rename_all = "snake_case")]
pub(super) enum Inquiry {
    /// See [`explain`].
    Explain(explain::Inquiry),
    /// The node's report about itself in a line of a list.
    Summary,
    /// The node's full report about itself.
    Status,
    /// Links, trees and tables of the node.
    Topology,
    /// Some of the node's sessions.
    Sessions(sessions::Wanted),
    /// The session of one client.
    Session(String),
    /// Some lines of the node's routing table.
    Routes(routes::Part),
    /// Some of the node's retained messages.
    Retained(retained::Which),
    /// Bridges of the node from this place on.
    Bridges(usize),
    /// Rules of the node from this place on.
    Rules(usize),
    /// The topics to which clients of the node publish most.
    HotTopics(topics::Part),
    /// One level of the tree of topics.
    TopicLevel(tree::Which),
    /// The last publication of the node's clients to a topic.
    TopicValue(String),
    /// The level of the node's log, which changes to this one if one is given.
    LogLevel(Option<String>),
    /// The last lines of the node's log.
    LogLines(logs::Part),
    /// Change the node's password file.
    Account(accounts::Change),
    /// Start a trace.
    Trace(traces::Order),
    /// End a trace.
    TraceEnd(u64),
    /// Notes of a trace.
    TraceNotes(traces::Wanted),
}

/// A question of another node.
pub(crate) struct Inquired {
    from: NodeId,
    request: u64,
    inquiry: Inquiry,
}

/// Where questions of other nodes wait for the HTTP thread.
#[derive(Default)]
pub(crate) struct Desk {
    waiting: OnceLock<mpsc::Sender<Inquired>>,
    turned_away: AtomicU64,
}

impl Desk {
    /// Takes the only end that questions come out of; `None` if somebody has it.
    pub(super) fn open(&self) -> Option<mpsc::Receiver<Inquired>> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        self.waiting.set(sender).ok().map(|()| receiver)
    }

    /// Questions that got no answer because too many waited.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }
}

/// Another node asks: called on the thread of the node, which waits for nothing.
pub(crate) fn asked(shared: &std::sync::Arc<Shared>, from: NodeId, request: u64, question: &Bytes) {
    let nothing = || shared.post(ShardId(0), Letter::Answer(from, request, Bytes::new()));
    match serde_json::from_slice(question) {
        Ok(Inquiry::Explain(inquiry)) => explain::asked(shared, from, request, inquiry),
        Ok(inquiry) => {
            let waiting = shared.desk.waiting.get();
            let inquired = Inquired { from, request, inquiry };
            if waiting.is_none_or(|waiting| waiting.try_send(inquired).is_err()) {
                shared.desk.turned_away.fetch_add(1, Ordering::Relaxed);
                nothing();
            }
        }
        // A question of a later version.
        Err(_) => nothing(),
    }
}

/// Answers the questions of other nodes one after another.
pub(super) async fn serve(api: Api, mut waiting: mpsc::Receiver<Inquired>) {
    while let Some(Inquired { from, request, inquiry }) = waiting.recv().await {
        let answer = answer(&api, inquiry).await.unwrap_or_default();
        api.shared.post(ShardId(0), Letter::Answer(from, request, answer));
    }
}

async fn answer(api: &Api, inquiry: Inquiry) -> Result<Bytes, ApiError> {
    Ok(match inquiry {
        // The shard has answered itself.
        Inquiry::Explain(_) => Bytes::new(),
        Inquiry::Summary => bytes(&members::summary(api).await?),
        Inquiry::Status => bytes(&super::handlers::own_status(api).await?),
        Inquiry::Topology => topology::fitted(api).await?,
        Inquiry::Sessions(wanted) => bytes(&sessions::fitted(api, &wanted).await?),
        Inquiry::Session(client) => bytes(&sessions::fitted_one(api, &client).await?),
        Inquiry::Routes(part) => bytes(&routes::fitted(api, part).await?),
        Inquiry::Retained(which) => retained::fitted(api, which).await?,
        Inquiry::Bridges(from) => bytes(&bridges::part(api, from).await?),
        Inquiry::Rules(from) => bytes(&rules::part(api, from).await?),
        Inquiry::HotTopics(part) => bytes(&topics::fitted(api, part).await?),
        Inquiry::TopicLevel(which) => bytes(&tree::fitted(api, &which).await?),
        Inquiry::TopicValue(topic) => bytes(&tree::fitted_value(api, &topic).await?),
        Inquiry::LogLevel(level) => bytes(&logs::own(api, level.as_deref())?),
        Inquiry::LogLines(part) => bytes(&logs::fitted_lines(api, part)),
        Inquiry::Account(change) => bytes(&accounts::asked(api, change).await),
        Inquiry::Trace(order) => bytes(&traces::begin(&api.shared, &order)),
        Inquiry::TraceEnd(id) => bytes(&api.shared.end_trace(id)),
        Inquiry::TraceNotes(wanted) => traces::fitted(api, &wanted).await?,
    })
}

/// As it is sent.
pub(super) fn bytes(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).unwrap_or_default().into()
}

/// Answers of members, and the members that have not answered.
pub(super) struct Heard<T> {
    pub(super) answers: Vec<(NodeId, T)>,
    pub(super) silent: Vec<NodeId>,
}

/// Puts a question to these members, all at once, and waits [`PATIENCE`] for their answers.
pub(super) async fn ask_members<T: DeserializeOwned>(api: &Api, whom: &[NodeId], inquiry: &Inquiry) -> Heard<T> {
    ask_each(api, whom.iter().map(|node| (*node, inquiry.clone()))).await
}

/// Puts a question to each of these members.
pub(super) async fn ask_each<T: DeserializeOwned>(
    api: &Api,
    questions: impl Iterator<Item = (NodeId, Inquiry)>,
) -> Heard<T> {
    let deadline = Instant::now() + PATIENCE;
    let asked: Vec<_> = questions
        .map(|(node, inquiry)| {
            let (answers, answered) = mpsc::unbounded_channel();
            let ask = Ask { to: Some(node), question: bytes(&inquiry), answers };
            api.shared.post(ShardId(0), Letter::Ask(Box::new(ask)));
            (node, answered)
        })
        .collect();
    let mut heard = Heard { answers: Vec::new(), silent: Vec::new() };
    for (node, mut answered) in asked {
        let answer = timeout_at(deadline, answered.recv()).await.ok().flatten();
        match answer.and_then(|(_, answer)| serde_json::from_slice(&answer).ok()) {
            Some(answer) => heard.answers.push((node, answer)),
            None => heard.silent.push(node),
        }
    }
    heard
}

/// Answer of one member.
pub(super) async fn ask_member<T: DeserializeOwned>(api: &Api, node: NodeId, inquiry: &Inquiry) -> Result<T, ApiError> {
    let heard = ask_members(api, &[node], inquiry).await;
    heard.answers.into_iter().next().map(|(_, answer)| answer).ok_or(ApiError::Silent)
}
