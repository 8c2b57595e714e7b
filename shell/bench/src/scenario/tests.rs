use super::*;

#[test]
fn every_ready_made_scenario_is_sound_and_survives_a_file() {
    for (name, _) in NAMES {
        let scenario = named(name).expect(name);
        scenario.check().expect(name);
        assert_eq!(&scenario.name, name);
        let text = toml::to_string(&scenario).expect("a file");
        assert_eq!(Scenario::parse(&text).expect(&text), scenario);
    }
    assert_eq!(named("nothing"), None);
}

#[test]
fn a_short_file_is_enough() {
    let text = r#"
        name = "mine"
        payload = "uniform:64-1024"
        interval_ms = 10
        [[publishers]]
        count = 3
        topic = "a/{i}"
        [[subscribers]]
        count = 1
        filter = "a/+"
        brokers = "1,2"
    "#;
    let scenario = Scenario::parse(text).expect("a scenario");
    scenario.check().expect("sound");
    assert_eq!(scenario.payload, Payload::Uniform(64, 1024));
    assert_eq!(scenario.subscribers.first().map(|group| &group.brokers), Some(&Placement::Only(vec![1, 2])));
    assert_eq!(scenario.clients(), 4);
}

#[test]
fn a_rate_is_shared_by_all_publishers_but_the_probes() {
    let mut scenario = named("limit").expect("a scenario");
    scenario.set_total_rate(10_000.0).expect("a rate");
    assert_eq!(scenario.interval_ms, Some(5.0));
    let probe = scenario.publishers.iter().find(|group| group.probe).expect("a probe");
    assert_eq!(scenario.interval_of(probe), Some(1_000.0));
    assert!(scenario.set_total_rate(0.0).is_err());
}

#[test]
fn bursts_fit_into_the_window() {
    let burst = |qos, window, burst| Scenario { qos, window, burst, ..Scenario::default() }.burst();
    assert_eq!([burst(0, 100, None), burst(2, 100, None), burst(0, 1, None)], [25, 16, 1]);
    assert_eq!([burst(2, 100, Some(50)), burst(0, 10, Some(50)), burst(0, 10, Some(0))], [50, 10, 1]);
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let pairs = || named("pairs").expect("a scenario");
    let wrong = [
        Scenario { qos: 3, ..pairs() },
        Scenario { window: 0, ..pairs() },
        Scenario { measure_s: 0.0, ..pairs() },
        Scenario { warmup_s: -1.0, ..pairs() },
        Scenario { interval_ms: Some(0.0), ..pairs() },
        Scenario { until: Until::Ack, ..pairs() },
        Scenario { payload: Payload::Fixed(1 << 30), ..pairs() },
        Scenario::default(),
    ];
    for scenario in wrong {
        assert!(scenario.check().is_err(), "{scenario:?}");
    }
    assert!(Scenario::parse("qoss = 1").is_err(), "a misspelt key is not ignored");
}
