//! Publications of one connection of a publisher on one topic and of one quality of service reach a session in order (MQ-13).

use std::collections::{BTreeMap, BTreeSet};

use sedge_mqtt::QoS;

use crate::oracle::{Excused, Oracle};

/// Name of the invariant.
pub(crate) const NAME: &str = "order";

/// Call at the end. Only the first delivery of a publication counts, and only if its publisher did not have to send it again. Deliveries of
/// two copies of one session have no order between them: see [`crate::oracle::Split`].
pub(crate) fn check(oracle: &Oracle) -> (Vec<String>, Excused) {
    let (mut wrong, mut excused) = (Vec::new(), Excused::default());
    for ((client, session), deliveries) in &oracle.deliveries {
        let mut last: BTreeMap<(usize, u64, &str, QoS, QoS), usize> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for delivery in deliveries {
            let publication = &oracle.publications[delivery.publication];
            let is_first = seen.insert(delivery.publication) && !delivery.retained;
            // A message that comes back from another member of a shared subscription comes late.
            let counts = is_first && !publication.repeated && !oracle.workers.contains(client);
            if !counts {
                continue;
            }
            let flow = (
                publication.publisher,
                publication.connection,
                publication.topic.as_str(),
                publication.qos,
                delivery.qos,
            );
            if oracle.is_excused(*client, delivery) {
                if last.get(&flow).is_some_and(|before| *before > delivery.publication) {
                    oracle.excuses(*client, delivery, &mut excused);
                }
                continue;
            }
            let before = last.insert(flow, delivery.publication);
            if let Some(before) = before.filter(|before| *before > delivery.publication) {
                wrong.push(format!(
                    "p{} reached client-{client} (session {session}) after p{before}",
                    delivery.publication
                ));
            }
        }
    }
    (wrong, excused)
}
