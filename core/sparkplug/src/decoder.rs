//! From publications to JSON, with the metrics that births name.

use bytes::Bytes;
use prost::Message;
use sedge_base::Timestamp;

use crate::births::{Births, Known};
use crate::error::PayloadError;
use crate::json::Writer;
use crate::message::{Metric, Payload};
use crate::topic::Topic;

/// The metric by which an edge node is asked for its births (specification, chapter 6).
const REBIRTH: &str = "Node Control/Rebirth";

/// Outcome of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The publication's payload as JSON.
    pub json: Bytes,
    /// Number of metrics that only a birth could explain which is not known.
    pub unknown: usize,
    /// The edge node is to be asked for its birth: publish [`rebirth_request`] to this topic.
    pub ask: Option<String>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    births: Births,
}

impl Decoder {
    /// Births of edge nodes.
    pub const fn births(&self) -> &Births {
        &self.births
    }

    /// Takes over a birth that a broker has kept. A birth that cannot be read changes nothing.
    pub fn learn(&mut self, topic: &str, payload: &[u8]) {
        let Some(topic) = Topic::parse(topic).filter(|topic| topic.kind.is_birth()) else { return };
        if let Ok(payload) = Payload::read(payload) {
            self.births.learn(&topic, &payload);
        }
    }

    /// Reads a publication; births are remembered. `Ok(None)`: it is none of Sparkplug B.
    pub fn decode(&mut self, now: Timestamp, topic: &str, payload: &[u8]) -> Result<Option<Decoded>, PayloadError> {
        let Some(topic) = Topic::parse(topic) else { return Ok(None) };
        let payload = Payload::read(payload)?;
        if topic.kind.is_birth() {
            self.births.learn(&topic, &payload);
        }
        let known: Vec<Option<Known>> = payload.metrics.iter().map(|metric| self.known(&topic, metric)).collect();
        let json = Writer::new().payload(&topic, &payload, &known)?;
        let unknown = known.iter().filter(|known| known.is_none()).count();
        let asks = unknown > 0 && topic.kind.is_data() && self.births.ask(now, &topic);
        Ok(Some(Decoded { json: Bytes::from(json), unknown, ask: asks.then(|| topic.command()) }))
    }

    /// A birth explains itself, and commands and deaths need no birth.
    fn known(&self, topic: &Topic<'_>, metric: &Metric) -> Option<Known> {
        let named = || {
            let name = metric.name.as_deref()?;
            Some(Known { name: name.into(), datatype: metric.datatype.unwrap_or(0) })
        };
        let found = self.births.find(topic, metric);
        if topic.kind.is_data() { found } else { found.or_else(named) }
    }
}

/// The payload that asks an edge node for its births.
pub fn rebirth_request(now: Timestamp) -> Bytes {
    let timestamp = Some(now.as_millis());
    let metric = Metric { timestamp, ..Metric::boolean(REBIRTH, true) };
    Payload { timestamp, metrics: vec![metric], ..Payload::default() }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{
        DataSet, Element, ElementValue, MetricValue, Property, PropertySet, PropertyValue, Row, Template,
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn metric(name: Option<&str>, alias: Option<u64>, datatype: Option<u32>, value: MetricValue) -> Metric {
        Metric { name: name.map(str::to_owned), alias, datatype, value: Some(value), ..Metric::default() }
    }

    fn bytes(metrics: Vec<Metric>) -> Vec<u8> {
        Payload { timestamp: Some(5), seq: Some(1), metrics, ..Payload::default() }.encode_to_vec()
    }

    fn json(decoder: &mut Decoder, topic: &str, payload: &[u8]) -> (serde_json::Value, Decoded) {
        let decoded = decoder.decode(NOW, topic, payload).expect("a payload").expect("a topic of Sparkplug");
        (serde_json::from_slice(&decoded.json).expect("JSON"), decoded)
    }

    #[test]
    fn data_gets_names_and_types_from_the_birth() {
        let mut decoder = Decoder::default();
        let birth = bytes(vec![
            metric(Some("Temp"), Some(1), Some(9), MetricValue::Float(20.5)),
            metric(Some("Level"), Some(2), Some(3), MetricValue::Int(0)),
        ]);
        let (born, decoded) = json(&mut decoder, "spBv1.0/g/NBIRTH/e", &birth);
        assert_eq!((&born["values"]["Temp"], decoded.unknown), (&20.5.into(), 0));
        let minus = u32::MAX - 6;
        let data = bytes(vec![
            metric(None, Some(1), None, MetricValue::Float(21.5)),
            metric(None, Some(2), None, MetricValue::Int(minus)),
            metric(Some("Level"), None, None, MetricValue::Int(minus)),
        ]);
        let (data, decoded) = json(&mut decoder, "spBv1.0/g/NDATA/e", &data);
        assert_eq!((decoded.unknown, decoded.ask), (0, None));
        assert_eq!(data["values"], serde_json::json!({"Temp": 21.5, "Level": -7}));
        assert_eq!(
            data["metrics"][0],
            serde_json::json!({"name": "Temp", "alias": 1, "dataType": "Float", "value": 21.5})
        );
        assert_eq!((&data["type"], &data["group"], &data["node"]), (&"NDATA".into(), &"g".into(), &"e".into()));
    }

    #[test]
    fn an_unknown_alias_asks_for_a_birth_once() {
        let mut decoder = Decoder::default();
        let data = bytes(vec![metric(None, Some(1), None, MetricValue::Float(21.5))]);
        let (value, decoded) = json(&mut decoder, "spBv1.0/g/DDATA/e/d", &data);
        assert_eq!((decoded.unknown, decoded.ask.as_deref()), (1, Some("spBv1.0/g/NCMD/e")));
        assert_eq!(
            (&value["values"], &value["metrics"][0]["name"]),
            (&serde_json::json!({}), &serde_json::Value::Null)
        );
        assert_eq!(json(&mut decoder, "spBv1.0/g/NDATA/e", &data).1.ask, None, "asked a moment ago");
        assert_eq!(json(&mut decoder, "spBv1.0/g/NCMD/f", &data).1.ask, None, "commands are for the edge node");
        let asked = Payload::read(&rebirth_request(NOW)).expect("a payload");
        let [metric] = &asked.metrics[..] else { panic!("{asked:?}") };
        assert_eq!((metric.name.as_deref(), &metric.value), (Some(REBIRTH), &Some(MetricValue::Boolean(true))));
    }

    #[test]
    fn tables_templates_and_properties_are_json() {
        let element = |value| Element { value: Some(value) };
        let row =
            Row { elements: vec![element(ElementValue::Int(u32::MAX)), element(ElementValue::String("x\"".into()))] };
        let data = DataSet {
            column_count: Some(2),
            columns: vec!["a".into(), "b".into()],
            types: vec![3, 12],
            rows: vec![row],
        };
        let member = metric(Some("m"), None, Some(10), MetricValue::Double(f64::NAN));
        let template = Template { reference: Some("t".into()), metrics: vec![member], ..Template::default() };
        let unit = Property { kind: Some(12), value: Some(PropertyValue::String("C".into())), ..Property::default() };
        let set = PropertySet { keys: vec!["unit".into()], values: vec![unit] };
        let mut table = metric(Some("table"), None, Some(16), MetricValue::DataSet(Box::new(data)));
        table.properties = Some(Box::new(set));
        let birth = bytes(vec![table, metric(Some("t"), None, Some(19), MetricValue::Template(Box::new(template)))]);
        let (value, _) = json(&mut Decoder::default(), "spBv1.0/g/NBIRTH/e", &birth);
        let wanted = serde_json::json!({"columns": ["a", "b"], "types": ["Int32", "String"], "rows": [[-1, "x\""]]});
        assert_eq!(value["values"]["table"], wanted);
        assert_eq!(value["metrics"][0]["properties"], serde_json::json!({"unit": "C"}));
        let member = serde_json::json!({"name": "m", "dataType": "Double", "value": null});
        assert_eq!(value["values"]["t"], serde_json::json!({"reference": "t", "metrics": [member], "parameters": []}));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let mut decoder = Decoder::default();
        let many: Vec<u8> = [0x12, 0].repeat(crate::weight::PARTS_MAX + 1);
        let refused = decoder.decode(NOW, "spBv1.0/g/NDATA/e", &many);
        assert_eq!(refused, Err(PayloadError::TooManyParts(crate::weight::PARTS_MAX)));
        let mut deep = metric(Some("m"), None, Some(10), MetricValue::Double(1.0));
        for _ in 0..40 {
            let template = Template { metrics: vec![deep], ..Template::default() };
            deep = metric(Some("t"), None, Some(19), MetricValue::Template(Box::new(template)));
        }
        let refused = decoder.decode(NOW, "spBv1.0/g/NBIRTH/e", &bytes(vec![deep]));
        assert_eq!(refused, Err(PayloadError::TooDeep(crate::weight::DEPTH_MAX)));
        let long = "x".repeat(64 << 10);
        let birth = bytes(vec![metric(Some(&long), Some(1), Some(9), MetricValue::Float(0.0))]);
        assert!(decoder.decode(NOW, "spBv1.0/g/NBIRTH/e", &birth).is_ok());
        let aliases = bytes((0..1_000).map(|_| metric(None, Some(1), None, MetricValue::Float(1.0))).collect());
        let refused = decoder.decode(NOW, "spBv1.0/g/NDATA/e", &aliases);
        assert_eq!(refused, Err(PayloadError::TooLarge(crate::json::JSON_MAX)));
        assert!(matches!(decoder.decode(NOW, "spBv1.0/g/NDATA/e", b"{}"), Err(PayloadError::Malformed(_))));
        assert_eq!(decoder.decode(NOW, "spBv1.0/STATE/h", b"{}"), Ok(None));
    }
}
