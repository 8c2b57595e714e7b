//! Rules with a `jq` program (DP-02): what a machine makes of what comes back, and which keys go together.

#[expect(dead_code, reason = "the other tests use the rest")]
mod common;

use common::{Run, compile, list, text};
use sedge_rules::RuleError;

fn faults(entries: &[(&str, sedge_rules::Item)]) -> Vec<(String, String)> {
    let found = compile("r", entries).err().unwrap_or_default();
    found.into_iter().map(|RuleError { key, what, .. }| (key, what)).collect()
}

/// DP-02: what a program may take has a meaning only with one, and a key that is not for it is named.
#[test]
fn limits_of_a_program_need_one() {
    let found = faults(&[("max_time", text("1s")), ("max_outputs", text("3"))]);
    let wrong = |key: &str| (key.to_owned(), "has a meaning only with jq".to_owned());
    assert_eq!(found, vec![wrong("max_time"), wrong("max_outputs")]);
}

/// A build without it says how to get it.
#[cfg(not(feature = "jq"))]
#[test]
fn a_build_without_jq_says_so() {
    let found = faults(&[("jq", text(".payload"))]);
    assert!(matches!(&found[..], [(key, what)] if key == "jq" && what.contains("--features jq")), "{found:?}");
    let mut run = Run::new(&[("from", list(&["a"])), ("to", text("b"))]);
    run.send(1, "a", "1");
    assert_eq!(run.machine.counters().outputs, 1);
}

#[cfg(feature = "jq")]
#[expect(clippy::disallowed_types, reason = "the machine owns the transform, and the test reads what it was asked")]
mod with_jq {
    use std::sync::{Arc, Mutex};

    use sedge_mqtt::{PacketId, Publish, QoS, TopicName};
    use sedge_rules::{Item, Ledger, Made, Taken, Transform, TransformError};

    use super::{Run, compile, faults, list, text};

    /// Answers with what is next, and keeps what it was asked.
    #[derive(Debug)]
    struct Answers(Vec<Result<Vec<Made>, TransformError>>, Arc<Mutex<Vec<String>>>);

    impl Transform for Answers {
        fn run(&mut self, message: &[u8]) -> Result<Vec<Made>, TransformError> {
            let message = String::from_utf8_lossy(message).into_owned();
            self.1.lock().expect("one thread").push(message);
            self.0.remove(0)
        }
    }

    fn rule(program: &str) -> Vec<(&'static str, Item)> {
        vec![("from", list(&["plant/+"])), ("to", text("out/{1}")), ("jq", text(program))]
    }

    /// DP-02: none, one, several, in order; texts stay texts; what is no JSON is an error; errors are counted by their kind.
    #[test]
    fn outputs_are_published_and_failures_counted() {
        let asked = Arc::default();
        let answers = vec![
            Ok(vec![Made::Json("{\"t\":1}".into()), Made::Text("warm".into())]),
            Ok(Vec::new()),
            Ok(vec![Made::Json("1".into()), Made::Json("NaN".into())]),
            Err(TransformError::Failed("no way".into())),
            Err(TransformError::OverBudget("too long".into())),
        ];
        let mut run = Run::new(&rule(".payload"));
        run.machine.run_programs_by(Box::new(Answers(answers, Arc::clone(&asked))));
        for payload in ["{\"v\":1}", "not \"json", "1", "2", "3"] {
            run.send(7, "plant/a", payload);
        }
        let outputs: Vec<_> = std::iter::from_fn(|| run.machine.poll_output()).collect();
        let shown: Vec<_> =
            outputs.iter().map(|output| (output.topic.as_ref().map(TopicName::as_str), &output.payload[..])).collect();
        assert_eq!(shown, [(Some("out/a"), &b"{\"t\":1}"[..]), (Some("out/a"), b"warm")]);
        let types = outputs.iter().map(|output| output.properties.content_type.as_ref().map(sedge_mqtt::Utf8::as_str));
        assert_eq!(types.collect::<Vec<_>>(), [Some("application/json"), None]);
        assert!(outputs.iter().all(|output| output.properties.user.len() == 1), "each names the rule");
        let counters = run.machine.counters();
        assert_eq!((counters.selected, counters.outputs, counters.jq_failed, counters.jq_over_budget), (5, 2, 2, 1));
        assert_eq!(run.machine.take_note().as_deref(), Some("jq: too long"));
        let asked = asked.lock().expect("one thread");
        let first = r#"{"topic":"plant/a","payload":{"v":1},"qos":1,"retain":false,"time":7,"client":"c","content_type":null,"properties":{}}"#;
        assert_eq!(asked.first().map(String::as_str), Some(first));
        assert!(asked[1].contains(r#""payload":"not \"json""#), "{asked:?}");
    }

    /// DP-03: a message that nothing could run a program on is neither counted nor acknowledged.
    #[test]
    fn a_message_without_an_answer_has_to_come_once_more() {
        let rule = compile("r", &rule(".payload")).expect("a valid rule");
        let mut ledger = Ledger::new(Arc::new(rule));
        let answers = vec![Err(TransformError::Broken("no process".into()))];
        ledger.run_programs_by(Box::new(Answers(answers, Arc::default())));
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: Some(TopicName::new("plant/a").expect("a topic")),
            packet_id: PacketId::new(1),
            payload: "1".into(),
            properties: None,
        };
        assert_eq!(ledger.take(sedge_base::Timestamp::from_millis(1), &publish), Taken::Broken);
        assert_eq!(ledger.take_broken().as_deref(), Some("no process"));
        assert_eq!(ledger.seal(), None, "there is nothing to acknowledge");
    }

    /// DP-02: a program has the place of what it makes superfluous; its faults have places.
    #[test]
    fn a_program_has_the_place_of_select() {
        let mut entries = rule(".payload");
        entries.extend([("select", text("payload")), ("window", Item::Bool(true)), ("group_by", list(&["topic"]))]);
        let rivals: Vec<String> = faults(&entries)
            .into_iter()
            .filter(|(_, what)| what.contains("place of select"))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(rivals, ["select", "group_by", "window"]);
        let wrong = compile("r", &rule(".payload | foo")).expect_err("no such function");
        assert_eq!((wrong[0].key.as_str(), wrong[0].at), ("jq", Some(11)), "{wrong:?}");
    }
}
