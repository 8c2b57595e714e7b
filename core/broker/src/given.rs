//! Sessions that were given away, until their new owners have them for good (MQ-11, DESIGN section 5): should a new owner die before that,
//! they are here, with all that has come for them since.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::ClientId;
use sedge_mqtt::{Message, TopicFilter};

use crate::journal::SessionNumber;
use crate::{Broker, QueuedState, SessionState};

/// See the module.
#[derive(Debug)]
pub(crate) struct Given {
    /// Epoch of the new owner.
    pub(crate) epoch: u64,
    /// Its number in the journal; 0: it is not there.
    pub(crate) number: SessionNumber,
    pub(crate) state: SessionState,
}

/// By client.
pub(crate) type GivenAway = BTreeMap<ClientId, Given>;

impl Broker {
    /// Something has come for a session that was given away: it is kept with it. The caller limits how much.
    pub fn keep_for(&mut self, client: &ClientId, message: &Arc<Message>) {
        let queued = self.given.get(client).and_then(|given| given.state.queued(Arc::clone(message)));
        if let Some(queued) = queued {
            self.keep(client, queued);
        }
    }

    /// A message for a shared subscription has come for a session that was given away, and for no other member.
    pub fn keep_share_for(&mut self, client: &ClientId, message: &Arc<Message>, group: &TopicFilter) {
        let Some(given) = self.given.get_mut(client) else { return };
        let subscription = given.state.subscriptions.iter().find(|subscription| subscription.filter == *group);
        let Some(options) = subscription.map(|subscription| subscription.options) else { return };
        let qos = options.qos.min(message.qos);
        let retain = options.retain_as_published && message.retain;
        let subscription_ids = subscription.and_then(|subscription| subscription.id).into_iter().collect();
        let group = Some(group.clone());
        self.keep(client, QueuedState { message: Arc::clone(message), qos, retain, subscription_ids, group });
    }

    fn keep(&mut self, client: &ClientId, queued: QueuedState) {
        let Some(given) = self.given.get_mut(client) else { return };
        if given.number != 0
            && let Some(journal) = &mut self.journal
        {
            journal.kept_for(given.number, &queued);
        }
        given.state.queue.push(queued);
    }

    /// The owner of this epoch has a session that was given away, for good.
    pub fn session_left(&mut self, client: &ClientId, epoch: u64) {
        if self.given.get(client).is_some_and(|given| given.epoch <= epoch) {
            self.drop_given(client);
        }
    }

    /// The owner of this epoch will not have the session that was given away to it: returns it, with what has come for it since.
    pub fn take_back(&mut self, client: &ClientId, epoch: u64) -> Option<SessionState> {
        self.given.get(client).filter(|given| given.epoch == epoch)?;
        self.drop_given(client)
    }

    pub(crate) fn drop_given(&mut self, client: &ClientId) -> Option<SessionState> {
        let Given { number, state, .. } = self.given.remove(client)?;
        if number != 0
            && let Some(journal) = &mut self.journal
        {
            journal.left(number, &state);
        }
        Some(state)
    }
}

impl SessionState {
    /// The delivery of this message to the session by its ordinary subscriptions (MQTT 5.0 sections 3.3.4 and 3.8.3.1); `None` if none matches.
    pub fn queued(&self, message: Arc<Message>) -> Option<QueuedState> {
        let own = message.publisher.as_ref() == Some(&self.client);
        let (mut best, mut retain, mut subscription_ids) = (None, false, Vec::new());
        for subscription in &self.subscriptions {
            let options = subscription.options;
            let shared = subscription.filter.share_group().is_some();
            if shared || (own && options.no_local) || !subscription.filter.matches(&message.topic) {
                continue;
            }
            best = best.max(Some(options.qos));
            retain |= options.retain_as_published && message.retain;
            subscription_ids.extend(subscription.id);
        }
        let qos = best?.min(message.qos);
        Some(QueuedState { message, qos, retain, subscription_ids, group: None })
    }
}
