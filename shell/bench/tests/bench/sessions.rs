//! Sessions that a run leaves behind in brokers.

use serde_json::Value;

use crate::common::{counts, figures};
use crate::simulated::{Broker, Faults};

#[test]
fn sessions_are_removed_at_the_end() {
    for words in [
        "smart-plugs-publish --publishers 6 --subscribers 2 --interval 5 --warmup 0",
        "smart-plugs-publish --publishers 6 --subscribers 2 --interval 5 --warmup 0 --protocol 5",
        "failover --publishers 4 --interval 5 --threads 2",
    ] {
        let broker = Broker::start(Faults::default());
        let words = format!("run {words} --messages 10 --drain 3 --broker {}", broker.address);
        let all = figures(&words);
        assert_eq!(counts(&all, ["lost", "disconnects"]), [0, 0], "{words}");
        assert_eq!((broker.sessions(), broker.connects()), (0, 16), "{words}");
        figures(&format!("{words} --keep-sessions"));
        assert_eq!((broker.sessions(), broker.connects()), (8, 24), "{words}");
    }
}

#[test]
fn who_has_been_at_several_brokers_leaves_all() {
    let brokers = [0; 2].map(|_| Broker::start(Faults { hang_up_at: Some(20), ..Faults::default() }));
    let addresses = brokers.each_ref().map(|broker| broker.address.to_string()).join(",");
    let words = "run failover --publishers 2 --messages 30 --interval 2 --drain 0.5";
    figures(&format!("{words} --broker {addresses}"));
    // Both publishers went on at the other broker.
    assert!(brokers.iter().map(Broker::connects).sum::<u64>() >= 6 + 6);
    assert_eq!(brokers.each_ref().map(Broker::sessions), [0, 0]);
}

#[test]
fn sessions_at_a_broker_that_is_gone_are_told() {
    let (broker, gone) = (Broker::start(Faults::default()), Broker::start(Faults::default()));
    let words = "run failover --publishers 2 --interval 5 --duration 0.5 --warmup 0.1 --drain 0.2";
    let gone_address = gone.address;
    std::thread::scope(|scope| {
        let run = scope.spawn(|| figures(&format!("{words} --broker {},{gone_address}", broker.address)));
        while gone.messages() == 0 {
            std::thread::yield_now();
        }
        gone.end();
        let all = run.join().expect("a run");
        let warnings = all.get("warnings").and_then(Value::as_array).expect("warnings");
        let told =
            warnings.iter().filter_map(Value::as_str).any(|text| text.contains("2 sessions are still in brokers"));
        assert!(told, "{warnings:?}");
    });
    assert_eq!(broker.sessions(), 0);
}
