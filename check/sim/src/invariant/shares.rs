//! An acknowledged QoS 1 or 2 publication reaches a member of every shared subscription that has had one all along, and with QoS 2
//! no more than one.

use std::collections::BTreeMap;

use sedge_mqtt::QoS;

use crate::oracle::{Oracle, Publication, Subscription};

/// Name of the invariant.
pub(crate) const NAME: &str = "shares";

/// Call at the end, when every client is connected and quiet. Members are clients that have no other subscription.
pub(crate) fn check(oracle: &Oracle) -> Vec<String> {
    let shares: Vec<&Subscription> =
        oracle.subscriptions.iter().filter(|subscription| subscription.filter.share_group().is_some()).collect();
    let mut copies: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    // Also deliveries that came before the SUBACK.
    for ((client, _), came) in oracle.deliveries.iter().filter(|((client, _), _)| oracle.workers.contains(client)) {
        for delivery in came {
            copies.entry(delivery.publication).or_default().push(*client);
        }
    }
    let mut wrong = Vec::new();
    for (number, publication) in oracle.publications.iter().enumerate() {
        if publication.qos == QoS::AtMostOnce || publication.acknowledged.is_none() {
            continue;
        }
        let who = copies.get(&number).map(Vec::as_slice).unwrap_or_default();
        let said = || format!("p{number} ({:?} on {}, sent {})", publication.qos, publication.topic, publication.sent);
        // QoS 2 that was sent to a member goes to nobody else when its session ends (MQTT 5.0 section 4.8.2).
        let may_have_ended = publication.qos == QoS::ExactlyOnce && oracle.workers_end;
        if who.is_empty() && !may_have_ended && is_owed(&shares, publication) {
            wrong.push(format!("{} reached no member", said()));
        }
        if who.len() > 1 && publication.qos == QoS::ExactlyOnce {
            wrong.push(format!("{} reached {who:?}", said()));
        }
    }
    wrong
}

/// Whether there was a member all along.
fn is_owed(shares: &[&Subscription], publication: &Publication) -> bool {
    shares.iter().any(|share| {
        let stays = share.until.is_none() && share.from < publication.sent;
        stays && share.filter.matches(&publication.topic)
    })
}
