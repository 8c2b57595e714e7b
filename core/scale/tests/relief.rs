//! Which clients move: by load, with those they talk to, and no more than needed.

use proptest::prelude::*;
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_scale::{ClientLoad, NodeLoad, Relief};

fn client(name: &str, rate: f64, topic: &str, filter: &str) -> ClientLoad {
    ClientLoad {
        client: name.to_owned(),
        rate,
        waiting: 0,
        topic: TopicName::try_from(topic).ok(),
        filters: TopicFilter::new(filter).ok().into_iter().collect(),
    }
}

fn node(name: &str, clients: Vec<ClientLoad>) -> NodeLoad {
    NodeLoad { node: name.to_owned(), clients }
}

fn idle(count: usize) -> Vec<ClientLoad> {
    (0..count).map(|number| client(&format!("c{number}"), 0.0, "", "")).collect()
}

fn relief(nodes: &[NodeLoad], onto: Option<&str>) -> Relief {
    sedge_scale::relief(nodes, onto, 7)
}

fn names(found: &Relief) -> Vec<&str> {
    found.moves.iter().map(|step| step.client.as_str()).collect()
}

/// EL-24: load counts, and not the number of clients.
#[test]
fn few_busy_clients_move_where_many_idle_ones_stay() {
    let mut clients = idle(40);
    clients.extend((0..4).map(|number| client(&format!("busy{number}"), 50.0, "", "")));
    let found = relief(&[node("a", clients), node("b", idle(40))], Some("b"));
    assert_eq!(names(&found).len(), 2, "{found:?}");
    assert!(names(&found).iter().all(|name| name.starts_with("busy")), "{found:?}");
    assert_eq!(found.onto.iter().collect::<Vec<_>>(), ["b"]);
}

/// EL-24
#[test]
fn idle_clients_are_shared_evenly_and_even_nodes_are_left_alone() {
    let found = relief(&[node("a", idle(60)), node("b", Vec::new())], Some("b"));
    assert!((28..=32).contains(&found.moves.len()), "{}", found.moves.len());
    assert_eq!(relief(&[node("a", idle(52)), node("b", idle(48))], None), Relief::default());
    assert_eq!(relief(&[node("a", idle(52)), node("b", idle(5)), node("c", idle(52))], Some("c")), Relief::default());
    assert_eq!(relief(&[], None), Relief::default());
}

/// FW-10, FW-11, SG-27
#[test]
fn publishers_move_with_their_subscribers() {
    let mut clients = Vec::new();
    for house in 0..10 {
        clients.push(client(&format!("p{house}"), 10.0, &format!("house/{house}/plug"), ""));
        clients.push(client(&format!("s{house}"), 10.0, "", &format!("house/{house}/#")));
    }
    let found = relief(&[node("a", clients), node("b", Vec::new())], None);
    let moved = names(&found);
    assert_eq!(moved.len(), 10);
    for name in &moved {
        let partner = name.replace(['p', 's'], if name.starts_with('p') { "s" } else { "p" });
        assert!(moved.contains(&partner.as_str()), "{name} without {partner}");
    }
}

/// FW-11: those whose partner is there already go first.
#[test]
fn a_client_follows_its_partner() {
    let a = vec![client("p1", 10.0, "x", ""), client("p2", 10.0, "y", ""), client("p3", 10.0, "z", "")];
    let found = relief(&[node("a", a), node("b", vec![client("s2", 10.0, "", "y")])], None);
    assert_eq!(names(&found), ["p2"]);
}

/// A subscriber of everything cannot move with all its publishers: it stays, and the others move without it.
#[test]
fn a_subscriber_of_everything_binds_nobody() {
    let mut clients: Vec<_> =
        (0..10).map(|number| client(&format!("p{number}"), 10.0, &format!("t/{number}"), "")).collect();
    clients.push(client("all", 100.0, "", "#"));
    let found = relief(&[node("a", clients), node("b", Vec::new())], None);
    assert!(!names(&found).contains(&"all") || names(&found).len() == 1, "{found:?}");
    assert!(!found.moves.is_empty());
}

proptest! {
    /// No move leaves a node with less than it should have: the fullest gets better, and nobody is made worse than the mean and a client.
    #[test]
    fn nothing_overshoots(rates in prop::collection::vec(prop::collection::vec(0_u32..200, 0..30), 1..5)) {
        let nodes: Vec<NodeLoad> = rates.iter().enumerate().map(|(place, rates)| {
            let clients = rates.iter().enumerate().map(|(number, rate)| {
                client(&format!("c{place}-{number}"), f64::from(*rate), "t", "")
            });
            node(&format!("n{place}"), clients.collect())
        }).collect();
        let found = relief(&nodes, None);
        let weight = |node: &NodeLoad, gone: bool| -> f64 {
            let stays = |client: &&ClientLoad| !gone || !found.moves.iter().any(|step| step.client == client.client);
            node.clients.iter().filter(stays).map(|client| client.rate + 0.1).sum()
        };
        let count = f64::from(u32::try_from(nodes.len()).expect("few"));
        let mean = nodes.iter().map(|node| weight(node, false)).sum::<f64>() / count;
        for node in &nodes {
            prop_assert!(weight(node, false) <= mean || weight(node, true) >= mean * 0.89, "{node:?} {found:?}");
        }
    }
}
