//! The Prometheus protobuf format, the only one with native histograms: for scrapers that prefer it to text.

use prost::Message;

use super::exposition::Exposition;

/// Content type of a page in protobuf.
pub(super) const PROTOBUF_FORMAT: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
const MEDIA: &str = "application/vnd.google.protobuf";
const WANTED: [(&str, &str); 2] = [("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")];
/// Media types by which a request may ask for a page of text.
const TEXT: [&str; 3] = ["text/plain", "text/*", "*/*"];

impl Exposition {
    /// The page as protobuf: each family behind its length. A family without metrics says nothing.
    pub(super) fn protobuf(&self) -> Vec<u8> {
        let said = self.0.iter().filter(|family| !family.metric.is_empty());
        said.flat_map(Message::encode_length_delimited_to_vec).collect()
    }
}

/// Whether an `Accept` header prefers protobuf to text.
pub(super) fn is_preferred(accept: &str) -> bool {
    let (mut protobuf, mut text) = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |name: &str| {
            parameters
                .iter()
                .find(|(own, _)| own.trim().eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().trim_matches('"'))
        };
        let weight = value("q").map_or(1000, thousandths);
        if media.eq_ignore_ascii_case(MEDIA) && WANTED.iter().all(|(name, wanted)| value(name) == Some(wanted)) {
            protobuf = weight.max(protobuf);
        } else if TEXT.iter().any(|known| media.eq_ignore_ascii_case(known)) {
            text = weight.max(text);
        }
    }
    protobuf > 0 && protobuf >= text
}

/// A weight such as `0.75` in thousandths; one that is none counts for nothing.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{whole}{fraction:0<3}");
    digits.parse().ok().filter(|weight| *weight <= 1000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sedge_base::Durations;

    use super::super::exposition::Kind;
    use super::super::model::{BucketSpan, MetricFamily, MetricType};
    use super::*;

    /// OP-01: what Prometheus sends with and without its feature native-histograms.
    #[test]
    fn a_scraper_that_prefers_protobuf_gets_it() {
        let wanted = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let others = "application/openmetrics-text;version=1.0.0;q=0.75,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert!(is_preferred(&format!("{wanted},{others}")));
        assert!(is_preferred(&format!("{wanted};q=0.6,{others}")));
        assert!(!is_preferred(&format!("{wanted};q=0.3,{others}")));
        assert!(!is_preferred(others));
        assert!(!is_preferred(&wanted.replace("delimited", "text")));
        assert!(!is_preferred(&format!("{wanted};q=0")));
        for accept in ["", "*/*", "text/plain", ";;==,q", "application/vnd.google.protobuf;q=é"] {
            assert!(!is_preferred(accept), "{accept}");
        }
    }

    /// OP-01: families come back, each behind its length, with both kinds of buckets.
    #[test]
    fn a_page_can_be_read_again() {
        let (mut out, mut durations) = (Exposition::default(), Durations::default());
        for micros in [0, 1_000_000, 1_000_001, 1_050_000, 4_000_000] {
            durations.note(Duration::from_micros(micros));
        }
        out.family("sessions", Kind::Gauge, "Sessions.").labelled(&[("name", "n\"1")], 3);
        out.family("links_total", Kind::Counter, "None.");
        out.histogram("wait_seconds", "Waits.").durations(&[], &durations);
        let page = out.protobuf();
        let (mut rest, mut families) = (&page[..], Vec::new());
        while !rest.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut rest).expect("a family"));
        }
        let [sessions, waits] = &families[..] else { panic!("{families:?}") };
        assert_eq!((sessions.name.as_str(), sessions.kind()), ("sedge_sessions", MetricType::Gauge));
        assert_eq!(
            (sessions.metric[0].label[0].value.as_str(), sessions.metric[0].gauge.map(|number| number.value)),
            ("n\"1", Some(3.0))
        );
        let histogram = waits.metric[0].histogram.as_ref().expect("a histogram");
        assert_eq!(
            (waits.kind(), histogram.sample_count, histogram.sample_sum.to_bits()),
            (MetricType::Histogram, 5, 7.050_001_f64.to_bits())
        );
        assert_eq!((histogram.schema, histogram.zero_count), (3, 1));
        let span = |offset, length| BucketSpan { offset, length };
        assert_eq!(
            (&histogram.positive_span[..], &histogram.positive_delta[..]),
            (&[span(0, 2), span(14, 1)][..], &[1, 1, -1][..])
        );
        let last = histogram.bucket.last().expect("a classic bucket");
        assert!(last.upper_bound.is_infinite() && last.cumulative_count == 5);
    }

    /// A histogram takes no more than its bounds allow, whatever is counted.
    #[test]
    fn the_size_of_a_histogram_is_bounded() {
        let mut durations = Durations::default();
        for power in 0..6400 {
            durations.note(Duration::from_secs_f64(1e-6 * 1.005_f64.powi(power)));
        }
        let mut out = Exposition::default();
        out.histogram("wait_seconds", "Waits.").durations(&[], &durations);
        let histogram = out.0[0].metric[0].histogram.as_ref().expect("a histogram");
        assert!(histogram.positive_delta.len() <= 256, "{}", histogram.positive_delta.len());
        assert!(out.protobuf().len() < 2048, "{}", out.protobuf().len());
    }
}
