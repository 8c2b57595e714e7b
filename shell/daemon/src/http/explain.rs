//! Why a client gets a publication, or not, from any node for a session at any node.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sedge_base::{ClientId, NodeId, ShardId};
use sedge_broker::{Broker, Outcome, Question};
use sedge_cluster::{ASK_BYTES_MAX, NodeStatus, shard_of};
use sedge_mqtt::{QoS, TopicName};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::ask::{PATIENCE, ask, ask_node};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, Explanation};
use super::server::Api;
use crate::runtime::{Ask, Letter, Shared, View};

/// Most bytes of the payload that is asked about, as many as a packet of MQTT can have.
const BYTES_MAX: usize = 268_435_455;

/// A publication that nobody has sent.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Asked {
    /// The client that would get it.
    client: String,
    /// Its topic, without wildcards.
    topic: String,
    /// Its QoS, 0 to 2; 1 if nothing is said.
    qos: Option<u8>,
    /// Bytes of its payload; 0 if nothing is said.
    bytes: Option<usize>,
    /// The client that would publish it: for No Local and access rules.
    from: Option<String>,
    /// Its message expiry interval in seconds.
    expiry: Option<u32>,
    /// True: whether the retained message of the topic would come with a SUBSCRIBE.
    #[serde(default)]
    retained: bool,
}

/// A question of one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Inquiry {
    client: String,
    topic: String,
    qos: u8,
    bytes: usize,
    from: Option<String>,
    expiry: Option<u32>,
    retained: bool,
    /// Whether `client` is the publisher, who may be forbidden to publish.
    publishes: bool,
}

/// Whether a client would get a publication now, from which node and subscription and at which QoS; or what prevents it.
#[utoipa::path(get, path = "/api/v1/explain", tag = "sessions", params(Asked), responses(
    (status = 200, body = Explanation), (status = 400, body = ErrorBody), (status = 504, body = ErrorBody)))]
pub(super) async fn explain(
    State(api): State<Api>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Explanation>, ApiError> {
    let Asked { client, topic, qos, bytes, from, expiry, retained } = parameters(query)?;
    let (qos, bytes) = (qos.unwrap_or(1), bytes.unwrap_or(0));
    if client.is_empty() {
        return Err(ApiError::BadRequest("client is empty".to_owned()));
    }
    if bytes > BYTES_MAX {
        return Err(ApiError::BadRequest(format!("bytes is above {BYTES_MAX}")));
    }
    let inquiry = Inquiry { client, topic, qos, bytes, from, expiry, retained, publishes: false };
    inquiry.question().map_err(ApiError::BadRequest)?;
    let publisher = inquiry.from.clone().filter(|_| !retained);
    if let Some(publisher) = publisher {
        let about = Inquiry { client: publisher, publishes: true, ..inquiry.clone() };
        if let Some(refused) = everywhere(&api, &about).await?.0 {
            return Ok(Json(Explanation { client: inquiry.client, ..refused }));
        }
    }
    let (found, silent) = everywhere(&api, &inquiry).await?;
    if let Some(found) = found {
        return Ok(Json(found));
    }
    let status = ask_node(&api.shared, sedge_cluster::Node::status).await?;
    Ok(Json(nobody(&inquiry, &status, silent)))
}

/// The answer of the node that has one, this one first; and how many members have not answered in time.
async fn everywhere(api: &Api, inquiry: &Inquiry) -> Result<(Option<Explanation>, bool), ApiError> {
    let here = inquiry.clone();
    let shard = inquiry.shard(&api.shared);
    let found = ask(&api.shared, shard, move |view| here.look(view)).await?;
    if found.is_some() {
        return Ok((found, false));
    }
    let question = super::desk::bytes(&super::desk::Inquiry::Explain(inquiry.clone()));
    if question.len() > ASK_BYTES_MAX {
        return Err(ApiError::BadRequest(format!("client and topic have more than {ASK_BYTES_MAX} bytes")));
    }
    let (answers, mut answered) = mpsc::unbounded_channel();
    api.shared.post(ShardId(0), Letter::Ask(Box::new(Ask { to: None, question, answers })));
    let first = async {
        while let Some((_, answer)) = answered.recv().await {
            if let Ok(explanation) = serde_json::from_slice::<Explanation>(&answer) {
                return Some(explanation);
            }
        }
        None
    };
    Ok(match tokio::time::timeout(PATIENCE, first).await {
        Ok(found) => (found, false),
        Err(_) => (None, true),
    })
}

/// Answers another node: the shard that would have the session looks, and posts what it sees.
pub(super) fn asked(shared: &Arc<Shared>, from: NodeId, request: u64, inquiry: Inquiry) {
    let (shard, answers) = (inquiry.shard(shared), Arc::clone(shared));
    let look = move |view: &View<'_>| {
        let found = inquiry.look(view).and_then(|explanation| serde_json::to_vec(&explanation).ok());
        answers.post(ShardId(0), Letter::Answer(from, request, found.unwrap_or_default().into()));
    };
    shared.post(shard, Letter::Query(Box::new(look)));
}

impl Inquiry {
    fn question(&self) -> Result<Question, String> {
        let topic = TopicName::new(&self.topic).map_err(|error| format!("topic {:?}: {error}", self.topic))?;
        let qos = QoS::from_u8(self.qos).ok_or_else(|| format!("qos {} is none of 0, 1 and 2", self.qos))?;
        let Self { bytes, expiry, retained, .. } = *self;
        let publisher = self.from.as_deref().map(ClientId::new);
        Ok(Question { topic, qos, bytes, publisher, expiry, retained })
    }

    fn shard(&self, shared: &Shared) -> ShardId {
        shard_of(&ClientId::new(&self.client), u16::try_from(shared.boxes.len()).unwrap_or(u16::MAX))
    }

    fn look(&self, view: &View<'_>) -> Option<Explanation> {
        let (question, client) = (self.question().ok()?, ClientId::new(&self.client));
        let broker: &Broker = view.shard.broker();
        let found = if self.publishes {
            broker.explain_publisher(&client, &question.topic)
        } else {
            view.shard.explain(&client, &question)
        }?;
        let gets = found.outcome != Outcome::Not;
        Some(Explanation {
            client: self.client.clone(),
            topic: self.topic.clone(),
            gets,
            outcome: found.outcome.name().to_owned(),
            cause: found.cause.name().to_owned(),
            detail: found.detail,
            qos: gets.then_some(found.qos as u8),
            filter: found.filter.map(|filter| filter.as_str().to_owned()),
            node: Some(view.place.0.clone()),
            name: Some(view.place.1.clone()),
        })
    }
}

/// No node has a session of the client.
fn nobody(inquiry: &Inquiry, status: &NodeStatus, silent: bool) -> Explanation {
    let away: Vec<String> = status
        .members
        .iter()
        .filter(|member| member.node != status.node && member.link.is_none())
        .map(super::scope::label)
        .chain(status.dead.iter().map(|dead| dead.name.clone().unwrap_or_else(|| dead.node.to_string())))
        .collect();
    let client = &inquiry.client;
    let (cause, detail) = if !away.is_empty() {
        let away = away.join(", ");
        ("unreachable_node", format!("no node that can be reached has a session of {client:?}; out of reach: {away}"))
    } else if silent {
        ("silent_node", format!("no node that has answered has a session of {client:?}, and one has not answered"))
    } else {
        ("no_session", format!("no node has a session of {client:?}: it never connected, or its session has expired"))
    };
    Explanation {
        client: client.clone(),
        topic: inquiry.topic.clone(),
        gets: false,
        outcome: Outcome::Not.name().to_owned(),
        cause: cause.to_owned(),
        detail,
        qos: None,
        filter: None,
        node: None,
        name: None,
    }
}
