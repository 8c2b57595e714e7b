//! Rules that read Sparkplug B.

use crate::common::{List, Run, compile, list, text};
use bytes::Bytes;
use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicName};
use sedge_rules::{Input, Item};

/// A birth as two metrics, and data that only it explains.
const BIRTH: &[u8] = b"\x12\x07\x0a\x01T\x10\x01\x20\x0a\x12\x07\x0a\x01N\x10\x02\x20\x03";
const DATA: &[u8] = b"\x12\x0b\x10\x01\x69\0\0\0\0\0\0\x35\x40\x12\x08\x10\x02\x50\xf9\xff\xff\xff\x0f";

fn sparkplug(more: &[(&str, Item)]) -> Run {
    let select = List(&[("t", "payload.values.T"), ("n", "payload.values.N"), ("node", "payload.node")]).table();
    let entries = [
        ("from", list(&["spBv1.0/g/NDATA/+"])),
        ("to", text("out/{3}")),
        ("decode", text("sparkplug")),
        ("select", select),
    ];
    Run::new(&[&entries, more].concat())
}

fn feed(run: &mut Run, now: u64, topic: &str, payload: &[u8]) {
    let (topic, payload) = (TopicName::new(topic).expect("a topic"), Bytes::copy_from_slice(payload));
    let input =
        Input { topic: &topic, payload: &payload, qos: QoS::AtMostOnce, retain: false, properties: None, client: None };
    run.machine.handle(Timestamp::from_millis(now), &input);
}

#[test]
fn payloads_of_sparkplug_have_the_names_of_their_births() {
    let mut run = sparkplug(&[]);
    feed(&mut run, 1, "spBv1.0/g/NBIRTH/e", BIRTH);
    assert_eq!(run.taken(), [""; 0], "a birth is heard, and no topic of the rule");
    feed(&mut run, 2, "spBv1.0/g/NDATA/e", DATA);
    assert_eq!(run.taken(), [r#"out/e {"t":21,"n":-7,"node":"e"}"#]);
    feed(&mut run, 3, "spBv1.0/g/NDATA/e", b"no payload");
    let counters = run.machine.counters();
    assert_eq!((counters.undecodable, counters.unknown_metrics, counters.rebirths), (1, 0, 0));
    assert_eq!((run.taken().len(), run.machine.births().map(sedge_sparkplug::Births::node_count)), (0, Some(1)));
}

#[test]
fn a_missing_birth_is_asked_for_unless_the_rule_says_no() {
    for asks in [true, false] {
        let mut run = sparkplug(&[("rebirth", Item::Bool(asks))]);
        feed(&mut run, 1, "spBv1.0/g/NDATA/e", DATA);
        let asked = run.machine.poll_output().filter(|_| asks);
        let topic = asked.as_ref().and_then(|output| output.topic.as_ref()).map(TopicName::as_str);
        assert_eq!(topic, asks.then_some("spBv1.0/g/NCMD/e"));
        assert!(asked.is_none_or(|asked| (asked.qos, asked.retain) == (QoS::AtMostOnce, false)));
        feed(&mut run, 2, "spBv1.0/g/NDATA/e", DATA);
        let all = run.taken();
        assert!(all.iter().all(|output| output == r#"out/e {"t":null,"n":null,"node":"e"}"#), "{all:?}");
        run.machine.learn("spBv1.0/g/NBIRTH/e", BIRTH);
        feed(&mut run, 3, "spBv1.0/g/NDATA/e", DATA);
        assert_eq!(run.taken(), [r#"out/e {"t":21,"n":-7,"node":"e"}"#]);
        assert_eq!(run.machine.counters().rebirths, u64::from(asks));
    }
}

#[test]
fn a_large_birth_is_learned_all_the_same() {
    let mut run = sparkplug(&[("max_payload", Item::Number(8.0)), ("rebirth", Item::Bool(false))]);
    feed(&mut run, 1, "spBv1.0/g/NBIRTH/e", BIRTH);
    assert_eq!(run.machine.births().map(sedge_sparkplug::Births::node_count), Some(1));
}

#[test]
fn a_rule_hears_the_births_of_the_groups_that_it_names() {
    let hears = |from: &[&str], decodes: bool| -> Vec<String> {
        let decode = if decodes { vec![("decode", text("sparkplug"))] } else { Vec::new() };
        let rule = compile("r", &[&[("from", list(from)), ("to", text("out"))][..], &decode].concat()).unwrap();
        rule.hears().iter().map(|filter| filter.as_str().to_owned()).collect()
    };
    assert_eq!(hears(&["spBv1.0/g/NDATA/+"], false), ["spBv1.0/g/NDATA/+"]);
    assert_eq!(
        hears(&["spBv1.0/g/NDATA/+", "spBv1.0/g/NBIRTH/+"], true),
        ["spBv1.0/g/NDATA/+", "spBv1.0/g/NBIRTH/+", "spBv1.0/g/DBIRTH/+/+"]
    );
    assert_eq!(hears(&["spBv1.0/#"], true), ["spBv1.0/#", "spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+"]);
}
