//! Every decoded payload is JSON, and an alias stands for its name.

use proptest::prelude::*;
use prost::Message;
use sedge_base::Timestamp;
use sedge_sparkplug::{Decoder, Metric, Payload};

const NOW: Timestamp = Timestamp::from_millis(1);

proptest! {
    #[test]
    fn arbitrary_bytes_are_json_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut decoder = Decoder::default();
        for topic in ["spBv1.0/g/NBIRTH/e", "spBv1.0/g/NDATA/e"] {
            if let Ok(Some(decoded)) = decoder.decode(NOW, topic, &bytes) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&decoded.json).is_ok());
            }
        }
    }

    #[test]
    fn aliases_stand_for_the_names_of_the_birth(names in proptest::collection::btree_set(".{1,20}", 1..30), unborn in 0_u64..5) {
        let metric = |name: Option<&String>, alias| {
            let mut metric = Metric::boolean(name.map_or("", String::as_str), true);
            metric.alias = Some(alias);
            if name.is_none() {
                (metric.name, metric.datatype) = (None, None);
            }
            metric
        };
        let named: Vec<Metric> = (0..).zip(&names).map(|(alias, name)| metric(Some(name), alias)).collect();
        let count = named.len() as u64;
        let data: Vec<Metric> = (0..count + unborn).map(|alias| metric(None, alias)).collect();
        let bytes = |metrics| Payload { metrics, ..Payload::default() }.encode_to_vec();
        let mut decoder = Decoder::default();
        decoder.learn("spBv1.0/g/NBIRTH/e", &bytes(named));
        let decoded = decoder.decode(NOW, "spBv1.0/g/NDATA/e", &bytes(data)).unwrap().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&decoded.json).unwrap();
        let found: Vec<&str> = json["metrics"].as_array().unwrap().iter().filter_map(|metric| metric["name"].as_str()).collect();
        prop_assert_eq!(found, names.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(decoded.unknown as u64, unborn);
        prop_assert_eq!(decoded.ask.is_some(), unborn > 0);
    }
}
