//! A QoS 2 publication is delivered to a session at most once, and no message is repeated without DUP.

use std::collections::BTreeMap;

use sedge_mqtt::QoS;

use crate::oracle::{Excused, Oracle};

/// Name of the invariant.
pub(crate) const NAME: &str = "once";

/// Call at the end. Copies that a retained value adds are not counted: the standard allows them. Nor are copies of a session that
/// two nodes held while they were cut off from each other: see [`crate::oracle::Split`].
pub(crate) fn check(oracle: &Oracle) -> (Vec<String>, Excused) {
    let (mut twice, mut excused) = (Vec::new(), Excused::default());
    for ((client, session), deliveries) in &oracle.deliveries {
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        for delivery in deliveries.iter().filter(|delivery| !delivery.retained) {
            let copies = seen.entry(delivery.publication).or_default();
            *copies += 1;
            let publication = &oracle.publications[delivery.publication];
            // A QoS 1 publisher that lost its PUBACK publishes again, and the broker cannot know.
            let allowed = publication.qos == QoS::AtLeastOnce || delivery.dup;
            let exactly = publication.qos == QoS::ExactlyOnce && delivery.qos == QoS::ExactlyOnce;
            if *copies > 1 && (exactly || !allowed) && !oracle.excuses(*client, delivery, &mut excused) {
                twice.push(format!(
                    "p{} ({:?} on {}) reached client-{client} (session {session}, {:?}, dup {}) {copies} times",
                    delivery.publication, publication.qos, publication.topic, delivery.qos, delivery.dup
                ));
            }
        }
    }
    (twice, excused)
}
