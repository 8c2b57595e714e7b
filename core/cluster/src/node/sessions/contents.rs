//! The contents of a session that goes from node to node.

use sedge_broker::{InflightPhase, InterestChange, InterestOp, QueuedState, SessionState, SubscriptionState};
use sedge_mqtt::QoS;

/// The subscriptions of a session as a change of interest.
pub(in crate::node) fn interest_of(session: &SessionState, online: bool) -> Vec<InterestChange> {
    let op = InterestOp::Add { retained: false, online };
    let subscriptions = session.subscriptions.iter();
    subscriptions.map(|subscription| InterestChange { filter: subscription.filter.clone(), op }).collect()
}

/// Messages that a session has to deliver with QoS 1 and 2, oldest first.
pub(in crate::node) fn messages_of(session: &SessionState) -> impl Iterator<Item = &QueuedState> {
    let inflight = session.inflight.iter().filter_map(|inflight| match &inflight.phase {
        InflightPhase::Sent(queued) => Some(queued),
        InflightPhase::Released => None,
    });
    inflight.chain(&session.queue).filter(|queued| queued.qos > QoS::AtMostOnce)
}

/// Whether a subscription is an ordinary one.
pub(in crate::node) fn is_plain(subscription: &SubscriptionState) -> bool {
    subscription.filter.share_group().is_none()
}
