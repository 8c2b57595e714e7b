//! Runs against a broker inside the test whose faults are known to the message: every count has to be exact.

use crate::common::{COUNTS, counts, figures, try_bench};
use crate::simulated::{Broker, Faults};
use serde_json::Value;

#[test]
fn a_sound_broker_has_nothing_to_hide() {
    for (words, sent, expected) in [
        ("pairs --publishers 5 --messages 200", 1_000, 1_000),
        ("pairs --publishers 5 --messages 200 --qos 1 --protocol 5.0", 1_000, 1_000),
        ("pairs --publishers 5 --messages 200 --qos 2", 1_000, 1_000),
        ("pairs --publishers 5 --messages 200 --qos 2 --until ack --window 1 --protocol 5", 1_000, 1_000),
        ("pairs --publishers 6 --messages 100 --threads 3", 600, 600),
        ("pairs --publishers 4 --messages 100 --rate 4000 --size uniform:24-5000", 400, 400),
        ("pairs --publishers 2 --messages 20 --rate 400 --size 300000", 40, 40),
        ("fan-in --publishers 10 --messages 50", 500, 500),
        ("fan-out --subscribers 10 --messages 50 --qos 1 --subscribe-qos 0", 50, 500),
        ("shared --publishers 5 --subscribers 3 --messages 100", 500, 500),
        ("shared --publishers 5 --subscribers 3 --messages 100 --threads 2 --rate 5000", 500, 500),
        ("locality --messages 20 --rate 2000", 400, 0),
    ] {
        let broker = Broker::start(Faults::default());
        let all = figures(&format!("run {words} --broker {}", broker.address));
        let [sent_now, expected_now, rest @ ..] = counts(&all, COUNTS);
        assert_eq!((sent_now, rest), (sent, [0; 3]), "{words}");
        if expected > 0 {
            assert_eq!(expected_now, expected, "{words}");
        }
        assert_eq!(counts(&all, ["unacknowledged", "refused", "foreign", "disconnects"]), [0; 4], "{words}");
        let latencies = all.pointer("/latency_us/count").and_then(Value::as_u64);
        assert_eq!(latencies, Some(expected_now), "{words}");
    }
}

#[test]
fn every_fault_is_counted_once() {
    let per_topic = |every: u64| 200 / every;
    for threads in [1, 2] {
        for (faults, expected) in [
            (Faults { lose: Some(7), ..Faults::default() }, [3 * per_topic(7), 0, 0]),
            (Faults { repeat: Some(9), ..Faults::default() }, [0, 3 * per_topic(9), 0]),
            (Faults { swap: Some(11), ..Faults::default() }, [0, 0, 3 * per_topic(11)]),
            (
                // Numbers without a common multiple up to 200, and none next to another.
                Faults { lose: Some(67), repeat: Some(10), swap: Some(31), ..Faults::default() },
                [3 * per_topic(67), 3 * per_topic(10), 3 * per_topic(31)],
            ),
        ] {
            let broker = Broker::start(faults);
            let words = "run pairs --publishers 3 --messages 200 --rate 6000 --drain 3";
            let all = figures(&format!("{words} --threads {threads} --broker {}", broker.address));
            let [sent, wanted, rest @ ..] = counts(&all, COUNTS);
            assert_eq!((sent, wanted, rest), (600, 600, expected), "{faults:?}");
        }
    }
}

#[test]
fn a_lossy_broker_does_not_stop_the_closed_loop() {
    let broker = Broker::start(Faults { lose: Some(10), ..Faults::default() });
    let words = "run pairs --publishers 2 --messages 60 --window 8 --drain 3";
    let all = figures(&format!("{words} --broker {}", broker.address));
    assert_eq!(counts(&all, COUNTS), [120, 120, 12, 0, 0]);
}

#[test]
fn members_of_a_group_lose_together() {
    let broker = Broker::start(Faults { lose: Some(10), repeat: Some(7), ..Faults::default() });
    let words = "run shared --publishers 2 --subscribers 3 --messages 65 --rate 1000 --drain 3";
    let all = figures(&format!("{words} --broker {}", broker.address));
    assert_eq!(counts(&all, COUNTS), [130, 130, 12, 18, 0]);
}

#[test]
fn subscribers_acknowledge_what_they_get() {
    for (qos, expected) in [(1, [100, 0, 0]), (2, [0, 100, 100])] {
        let broker = Broker::start(Faults::default());
        figures(&format!("run pairs --publishers 2 --messages 50 --qos {qos} --drain 3 --broker {}", broker.address));
        // The last acknowledgement may still be on its way when the report is there.
        while broker.acks() != expected {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_was_not_acknowledged_is_sent_again() {
    let broker = Broker::start(Faults { hang_up_at: Some(20), ..Faults::default() });
    let words = "run failover --publishers 2 --messages 50 --interval 2 --drain 3 --keep-sessions";
    let all = figures(&format!("{words} --broker {}", broker.address));
    let [sent, expected, lost, ..] = counts(&all, COUNTS);
    assert_eq!((sent, expected, lost), (100, 100, 0));
    let [disconnects, resent, unacknowledged] = counts(&all, ["disconnects", "resent", "unacknowledged"]);
    assert_eq!((disconnects, unacknowledged), (2, 0));
    assert!(resent >= 2, "{resent}");
    assert_eq!(broker.connects(), 6);
}

#[test]
fn figures_of_a_timed_run_fit_together() {
    let broker = Broker::start(Faults::default());
    let words = "run pairs --publishers 4 --rate 400 --warmup 0.2 --duration 0.5 --drain 3";
    let own = std::process::id();
    let all = figures(&format!("{words} --pid {own} --broker {}", broker.address));
    // The open loop sends what is due within the window, neither more nor less, whatever the machine does meanwhile.
    assert_eq!(counts(&all, COUNTS), [200, 200, 0, 0, 0]);
    let number = |name: &str| all.pointer(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{name}"));
    assert!((number("/ingress_per_s") - 400.0).abs() < 1e-6);
    assert!((number("/nominal_per_s") - 400.0).abs() < 1e-6);
    assert!(number("/broker_rss_kib") > 0.0);
    for name in ["/egress_per_s", "/latency_us/p50", "/latency_us/p9999", "/latency_us/max", "/jitter_us/max"] {
        assert!(number(name) > 0.0, "{name}");
    }
    let phases: Vec<&str> = all
        .pointer("/phases")
        .and_then(Value::as_array)
        .expect("phases")
        .iter()
        .filter_map(|phase| phase.get("name").and_then(Value::as_str))
        .collect();
    assert_eq!(phases, ["connect", "subscribe", "idle", "warm-up", "measure", "drain", "end"]);
}

#[test]
fn people_get_a_table_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("series.csv");
    let page = folder.path().join("page.html");
    let broker = Broker::start(Faults::default());
    let words = format!(
        "run idle --publishers 20 --duration 0.2 --broker {} --csv {} --html {}",
        broker.address,
        file.display(),
        page.display()
    );
    let (table, _) = try_bench(&words).expect("a run");
    assert!(table.contains("connections per s"), "{table}");
    assert!(std::fs::read_to_string(file).expect("a file").starts_with("second,"));
    assert!(std::fs::read_to_string(page).expect("a page").starts_with("<!doctype html>"));
    let (list, _) = try_bench("scenarios").expect("a list");
    assert!(list.contains("smart-plugs-publish"));
    let (text, _) = try_bench("scenarios failover").expect("a scenario");
    let own = folder.path().join("own.toml");
    std::fs::write(&own, text).expect("a file");
    let all = figures(&format!("run {} --messages 5 --broker {}", own.display(), broker.address));
    assert_eq!(counts(&all, COUNTS), [40, 40, 0, 0, 0]);
}

#[test]
fn what_cannot_be_run_says_why() {
    for (words, text) in [
        ("run nothing --broker 127.0.0.1:1", "no scenario"),
        ("run pairs", "no broker"),
        ("run pairs --broker 127.0.0.1:1 --qos 3", "quality of service"),
        ("run idle --publishers 1 --broker 127.0.0.1:1", "could not connect"),
    ] {
        let error = try_bench(words).expect_err(words);
        assert!(error.to_string().contains(text), "{error}");
    }
}
