//! An acknowledged QoS 1 or 2 publication reaches every session that was subscribed when it was sent and still is.

use std::collections::BTreeSet;

use sedge_mqtt::QoS;

use crate::oracle::Oracle;

/// Name of the invariant.
pub(crate) const NAME: &str = "not_lost";

/// Call at the end, when every client is connected and quiet. `complete`: whether QoS 0 must not be lost either.
pub(crate) fn check(oracle: &Oracle) -> Vec<String> {
    let mut lost = Vec::new();
    for subscription in &oracle.subscriptions {
        let is_shared = subscription.filter.share_group().is_some();
        if subscription.until.is_some() || subscription.qos == QoS::AtMostOnce || is_shared {
            continue;
        }
        let key = (subscription.client, subscription.session);
        let got: BTreeSet<usize> =
            oracle.deliveries.get(&key).into_iter().flatten().map(|delivery| delivery.publication).collect();
        for (number, publication) in oracle.publications.iter().enumerate() {
            let owed = publication.qos != QoS::AtMostOnce
                && publication.acknowledged.is_some()
                && publication.sent > subscription.from
                && subscription.filter.matches(&publication.topic)
                && !oracle.is_out_of_reach(subscription, publication);
            if owed && !got.contains(&number) {
                lost.push(format!(
                    "p{number} ({:?} on {}, sent {} by client-{}, acknowledged) never reached client-{} ({} since {})",
                    publication.qos,
                    publication.topic,
                    publication.sent,
                    publication.publisher,
                    subscription.client,
                    subscription.filter,
                    subscription.from
                ));
            }
        }
    }
    lost
}
