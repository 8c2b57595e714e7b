//! How long messages take, as histograms.

use sedge_base::Durations;
use sedge_broker::Latencies;

use super::exposition::Exposition;

/// One of the durations that a thread has measured.
type Read = fn(&Latencies) -> &Durations;

fn sum<'a>(all: impl Iterator<Item = &'a Latencies>, read: Read) -> Durations {
    all.fold(Durations::default(), |mut sum, one| {
        sum.add(read(one));
        sum
    })
}

pub(super) fn write<'a>(out: &mut Exposition, all: impl Iterator<Item = &'a Latencies> + Clone) {
    let help = "From a PUBLISH that was read to the PUBLISH of a subscriber that was written; measured on samples.";
    let mut family = out.histogram("delivery_latency_seconds", help);
    let sources: [(&str, Read); 2] =
        [("client", |latencies| &latencies.delivery), ("node", |latencies| &latencies.delivery_from_elsewhere)];
    for (source, read) in sources {
        family.durations(&[("from", source)], &sum(all.clone(), read));
    }
    let help =
        "From a PUBLISH with QoS 1 or 2 that was read to its PUBACK or PUBREC that was written; measured on samples.";
    let mut family = out.histogram("publish_acknowledgement_seconds", help);
    family.durations(&[], &sum(all, |latencies| &latencies.acknowledgement));
}
