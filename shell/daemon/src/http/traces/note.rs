//! A note of a trace, as the API tells it.

use sedge_broker::{TraceEvent, TraceStep};
use sedge_cluster::Node;
use sedge_mqtt::MessageId;

use super::super::model::TraceNote;
use super::super::scope::name;

/// A note of the node, which knows what others are called.
pub(super) fn of_node(node: &Node, event: &TraceEvent) -> TraceNote {
    let me = node.id();
    let mut note = model(&(me.to_string(), name(node, me)), event);
    if let TraceStep::Routed { nodes, .. } = &event.step {
        note.nodes = nodes.iter().map(|id| name(node, *id)).collect();
    } else if let TraceStep::Came { from, .. } = &event.step {
        note.nodes = vec![name(node, *from)];
    }
    note
}

/// A note of a shard of the node with this id and name.
pub(super) fn model((node, name): &(String, String), event: &TraceEvent) -> TraceNote {
    let MessageId { node: entry, incarnation, shard, seq } = event.message;
    let note = TraceNote {
        publication: format!("{entry}/{}/{}/{seq}", incarnation.get(), shard.0),
        topic: event.topic.as_str().to_owned(),
        at_us: event.at.wall.as_millis() * 1_000 + event.at.instant.as_nanos() / 1_000 % 1_000,
        node: node.clone(),
        name: name.clone(),
        ..TraceNote::default()
    };
    step(note, &event.step)
}

fn step(note: TraceNote, step: &TraceStep) -> TraceNote {
    let named = |step: &str| step.to_owned();
    let of = |client: &sedge_base::ClientId| Some(client.to_string());
    match step {
        TraceStep::Received { publisher, qos, bytes, retain, parent } => TraceNote {
            step: named("received"),
            client: publisher.as_ref().and_then(of),
            qos: Some(*qos as u8),
            bytes: Some(*bytes),
            detail: retain.then(|| "to be retained".to_owned()),
            parent: parent.map(|parent| parent.to_string()),
            ..note
        },
        TraceStep::Refused { publisher, reason, detail } => TraceNote {
            step: named("refused"),
            client: of(publisher),
            detail: Some(format!("{detail} (0x{:02x})", reason.as_u8())),
            ..note
        },
        TraceStep::Routed { groups, .. } => {
            let detail = (*groups > 0).then(|| format!("{groups} shared subscriptions get it there"));
            TraceNote { step: named("routed"), detail, ..note }
        }
        TraceStep::Came { again, parent, .. } => TraceNote {
            step: named(if *again { "came_again" } else { "came" }),
            parent: parent.map(|parent| parent.to_string()),
            ..note
        },
        TraceStep::Copied => TraceNote { step: named("copied"), ..note },
        TraceStep::Session { client, explanation } => TraceNote {
            step: named("session"),
            client: of(client),
            outcome: Some(explanation.outcome.name().to_owned()),
            cause: Some(explanation.cause.name().to_owned()),
            detail: Some(explanation.detail.clone()),
            filter: explanation.filter.as_ref().map(ToString::to_string),
            qos: (explanation.outcome != sedge_broker::Outcome::Not).then_some(explanation.qos as u8),
            ..note
        },
        TraceStep::More { sessions } => TraceNote {
            step: named("more"),
            detail: Some(format!("{sessions} more sessions have a part in it")),
            ..note
        },
        TraceStep::Sent { client, qos, waited } => TraceNote {
            step: named("sent"),
            client: of(client),
            qos: Some(*qos as u8),
            detail: waited.then(|| "after it had waited".to_owned()),
            ..note
        },
        TraceStep::Acknowledged { client } => TraceNote { step: named("acknowledged"), client: of(client), ..note },
        TraceStep::Dropped { client, cause } => {
            TraceNote { step: named("dropped"), client: of(client), cause: Some(cause.name().to_owned()), ..note }
        }
        TraceStep::Answered { publisher, reason } => TraceNote {
            step: named("answered"),
            client: of(publisher),
            detail: Some(format!("reason 0x{:02x}", reason.as_u8())),
            ..note
        },
    }
}
