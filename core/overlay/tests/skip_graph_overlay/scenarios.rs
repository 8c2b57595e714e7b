//! One story each.

use sedge_base::{ClientId, Duration, NodeId};
use sedge_mqtt::TopicFilter;
use sedge_overlay::skip_graph::{Base, Role};
use sedge_overlay::{Advert, AdvertOp, Input, MeshConfig, Overlay, RouteEntry, SkipGraphConfig};

use crate::net::{Net, add, filter, neighbour, patient, remove, topic};

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

/// SG-07: all subscribers of the topic on other nodes, and nobody else.
#[test]
fn a_publication_goes_to_the_subscribers_of_its_topic_only() {
    let mut net = Net::of(5);
    assert_eq!(net.nodes[&1].overlay.name(), "skip-graph");
    for subscriber in [2, 4] {
        net.subscribe(subscriber, "a/b");
    }
    net.subscribe(3, "a/c");
    assert_eq!(net.publish(1, "a/b"), [2, 4]);
    assert_eq!(net.publish(1, "a/c"), [3]);
    assert_eq!(net.publish(1, "a"), []);
    net.pass(10);
    let carried = net.carry(1, "a/b", &[2, 4]);
    assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), [2, 4]);
    net.assert_graph();
}

/// SG-08: the first and the last local client count.
#[test]
fn delivery_starts_with_the_first_and_stops_with_the_last_local_subscriber() {
    let mut net = Net::of(3);
    assert_eq!(net.publish(1, "a"), []);
    net.local(2, &[add("c", "a"), add("d", "a")], true);
    net.settle();
    assert_eq!(net.destinations(1, "a"), [2]);
    net.local(2, &[remove("c", "a")], true);
    net.settle();
    assert_eq!(net.destinations(1, "a"), [2]);
    net.local(2, &[remove("d", "a")], true);
    net.settle();
    assert_eq!(net.destinations(1, "a"), []);
    let node = net.node(2);
    assert_eq!(node.tokens.len(), 4);
}

/// The first publication to a topic is not lost, whoever subscribes to it: it goes to everyone until they have answered.
#[test]
fn a_new_topic_goes_to_everyone_until_its_subscribers_are_known() {
    let mut net = Net::of(4);
    net.subscribe(3, "a");
    assert_eq!(net.destinations(1, "a"), [2, 3, 4]);
    net.poll(1);
    assert!(net.deliver(1, 2));
    net.poll(2);
    assert!(net.deliver(2, 1));
    assert_eq!(net.destinations(1, "a"), [3, 4], "2 has answered");
    net.settle();
    assert_eq!(net.destinations(1, "a"), [3]);
}

/// SG-10, SG-12: the last subscriber leaves: nothing goes from node to node for the topic, for publishers old and new.
#[test]
fn a_topic_without_subscribers_is_suspended() {
    let mut net = Net::of(6);
    for subscriber in [5, 6] {
        net.subscribe(subscriber, "a");
    }
    for publisher in [1, 2] {
        assert_eq!(net.publish(publisher, "a"), [5, 6]);
    }
    net.pass(5);
    for publisher in [1, 2] {
        let own = net.virtual_node(publisher, "a", Role::Publisher).expect("a publisher");
        assert_eq!(own.is_suspended, Some(false));
    }
    net.unsubscribe(5, "a");
    net.unsubscribe(6, "a");
    net.pass(5);
    assert_eq!(net.publish(3, "a"), []);
    net.pass(5);
    for publisher in [1, 2, 3] {
        assert_eq!(net.destinations(publisher, "a"), []);
        let own = net.virtual_node(publisher, "a", Role::Publisher).expect("a publisher");
        assert_eq!(own.is_suspended, Some(true), "{publisher}");
        assert_eq!(own.is_rendezvous_point, publisher == 3);
    }
    for _ in 0..100 {
        for publisher in [1, 2, 3] {
            assert_eq!(net.destinations(publisher, "a"), []);
        }
    }
    assert_eq!(net.settle(), 0, "publications to a suspended topic cause no signals");
    assert!(net.node(1).overlay.counters().withheld >= 100);
    assert_eq!(net.node(1).overlay.counters().suspended, 1);
}

/// SG-11: once a subscription is settled, the next publication of every publisher goes to it.
#[test]
fn the_first_subscriber_resumes_a_topic() {
    let mut net = Net::of(6);
    for publisher in [1, 2, 3] {
        assert_eq!(net.publish(publisher, "a"), []);
    }
    net.pass(5);
    net.local(6, &[add("c", "a")], true);
    loop {
        net.poll_all();
        if !net.nodes[&6].tokens.is_empty() {
            break;
        }
        let links: Vec<(u64, u64)> = net.links.keys().copied().collect();
        let moved = links.into_iter().any(|(from, to)| net.deliver(from, to));
        let reached = net.ids().into_iter().any(|node| net.reach(node));
        assert!(moved || reached, "it comes to rest without being settled");
    }
    for publisher in [1, 2, 3] {
        assert_eq!(net.destinations(publisher, "a"), [6]);
    }
    net.settle();
    net.pass(5);
    for publisher in [1, 2, 3] {
        let own = net.virtual_node(publisher, "a", Role::Publisher).expect("a publisher");
        assert_eq!(own.is_suspended, Some(false));
        assert_eq!(net.carry(publisher, "a", &[6]).hops.len(), 1);
    }
    assert_eq!(net.node(1).overlay.counters().resumed, 1);
}

/// SUBACK means the cluster knows: every other node has answered, its shards included.
#[test]
fn a_subscription_is_settled_when_all_others_know() {
    let mut net = Net::of(3);
    assert_eq!((net.publish(2, "a"), net.publish(3, "a")), (vec![], vec![]));
    net.local(1, &[add("c", "a")], true);
    net.poll(1);
    while net.deliver(1, 2) {}
    assert_eq!((net.destinations(2, "a"), net.destinations(3, "a")), (vec![1], vec![]));
    while net.reach(1) {}
    net.poll(2);
    while net.reach(2) {}
    net.poll(2);
    while net.deliver(2, 1) {}
    net.poll(1);
    assert!(net.nodes[&1].tokens.is_empty(), "3 does not know");
    net.settle();
    assert_eq!(net.nodes[&1].tokens.len(), 1);
    assert_eq!(net.destinations(3, "a"), [1]);
}

/// As in the mesh: a neighbour that does not answer holds nobody up for ever, and one that is gone counts as answered.
#[test]
fn who_does_not_answer_is_not_waited_for_without_end() {
    let mesh = MeshConfig { settle_timeout: Duration::from_secs(2), ..MeshConfig::default() };
    let mut net = Net::with(3, SkipGraphConfig { mesh, ..SkipGraphConfig::default() });
    net.local(1, &[add("c", "a")], true);
    net.poll(1);
    let at = net.now + Duration::from_secs(2);
    while net.reach(1) {}
    net.tick(at);
    net.poll(1);
    assert_eq!((net.nodes[&1].tokens.len(), net.nodes[&1].overlay.counters().late_settlements), (1, 1));
    net.local(1, &[add("d", "b")], true);
    net.poll(1);
    while net.reach(1) {}
    net.kill(2);
    net.kill(3);
    net.poll(1);
    assert_eq!((net.nodes[&1].tokens.len(), net.nodes[&1].overlay.counters().late_settlements), (2, 1));
}

/// SG-32: of many nodes the graph remembers a few; when those are gone, a node that is alone in its list goes on looking for the others.
#[test]
fn others_take_the_place_of_introducers_that_are_gone() {
    let mut net = Net::new(patient());
    net.start(1);
    for other in 2..=22 {
        net.start(other);
        net.link(1, other);
    }
    for gone in 5..=22 {
        net.kill(gone);
    }
    net.poll(1);
    for signals in net.links.values_mut() {
        signals.clear();
    }
    for _ in 0..4 {
        let at = net.nodes[&1].overlay.poll_timeout().expect("a timer");
        net.tick(at);
        net.poll(1);
    }
    assert!(net.links.values().any(|signals| !signals.is_empty()), "nobody is asked");
}

/// SG-19: one virtual node, and never suspended.
#[test]
fn a_node_in_both_roles_is_a_subscriber_only() {
    let mut net = Net::of(4);
    assert_eq!(net.publish(1, "a"), []);
    net.pass(5);
    assert!(net.virtual_node(1, "a", Role::Publisher).is_some());
    net.subscribe(1, "a");
    net.pass(5);
    assert!(net.virtual_node(1, "a", Role::Publisher).is_none());
    let own = net.virtual_node(1, "a", Role::Subscriber).expect("a subscriber");
    assert_eq!((own.is_suspended, own.is_rendezvous_point), (None, false));
    net.subscribe(3, "a");
    assert_eq!(net.destinations(1, "a"), [3]);
    net.unsubscribe(1, "a");
    net.pass(5);
    assert!(
        net.virtual_node(1, "a", Role::Publisher).is_some() && net.virtual_node(1, "a", Role::Subscriber).is_none()
    );
    assert_eq!(net.destinations(1, "a"), [3]);
    net.assert_graph();
}

/// SG-33: a publisher and subscribers on one node only.
#[test]
fn local_consumption_stays_local() {
    let mut net = Net::of(3);
    net.subscribe(2, "a");
    net.subscribe(2, "b/+");
    assert_eq!((net.publish(2, "a"), net.publish(2, "b/c")), (vec![], vec![]));
    net.pass(3);
    for _ in 0..10 {
        assert_eq!((net.destinations(2, "a"), net.destinations(2, "b/c")), (vec![], vec![]));
    }
    assert_eq!(net.settle(), 0);
}

/// SG-31, MQTT 5.0 section 4.7: wildcards give the same publications as a single broker would.
#[test]
fn wildcards_are_known_to_everyone() {
    let mut net = Net::of(5);
    net.subscribe(2, "a/+");
    net.subscribe(3, "#");
    net.subscribe(4, "a/b");
    net.subscribe(5, "$x/#");
    assert_eq!(net.publish(1, "a/b"), [2, 3, 4]);
    assert_eq!(net.publish(1, "a"), [3]);
    assert_eq!(net.publish(1, "$x/y"), [5]);
    assert_eq!(net.publish(1, "$y"), []);
    net.pass(5);
    let carried = net.carry(1, "a/b", &[2, 3, 4]);
    assert_eq!(
        (carried.hops[&2], carried.hops[&3], carried.messages),
        (1, 1, 3),
        "who is in no list is reached directly"
    );
    net.unsubscribe(3, "#");
    assert_eq!(net.destinations(1, "a"), []);
}

/// Names that start with `$` are handed over only where somebody wants them, since `#` does not match them.
#[test]
fn reserved_names_are_advertised_one_by_one() {
    let mut net = Net::of(2);
    assert_eq!(net.nodes[&1].remote, [filter("#")].into());
    for text in ["$x/y", "$x/+", "a/+", "#", "a"] {
        net.subscribe(2, text);
    }
    assert_eq!(net.nodes[&1].remote, [filter("#"), filter("$x/y"), filter("$x/+")].into());
    assert_eq!(net.destinations(1, "$x/y"), [2]);
    for text in ["$x/y", "$x/+", "a/+", "#", "a"] {
        net.unsubscribe(2, text);
    }
    assert_eq!(net.nodes[&1].remote, [filter("#")].into());
}

#[test]
fn members_of_a_shared_subscription_are_counted_by_node_and_state() {
    let mut net = Net::of(3);
    let offline = Advert { op: AdvertOp::Add { online: false }, ..add("d", "$share/g/a") };
    net.local(1, &[add("c", "$share/g/a"), offline], true);
    net.settle();
    assert_eq!(net.nodes[&2].groups[&(node(1), filter("$share/g/a"))], (1, 1));
    assert_eq!(net.publish(2, "a"), [], "shares have mail of their own");
    net.local(1, &[remove("c", "$share/g/a"), remove("d", "$share/g/a")], true);
    net.settle();
    assert!(net.nodes[&3].groups.is_empty());
    assert_eq!(net.nodes[&1].tokens.len(), 4);
}

/// SG-06: a node without topics is in the graph, and leads nobody's publications.
#[test]
fn nodes_without_topics_have_a_placeholder() {
    let mut net = Net::of(4);
    net.assert_graph();
    for node in net.ids() {
        let view = net.nodes[&node].overlay.view(0, 10);
        assert_eq!((view.virtual_node_count, view.virtual_nodes.len()), (1, 1));
        assert_eq!(view.virtual_nodes[0].key.topic, None);
    }
    net.subscribe(2, "a");
    net.pass(3);
    net.assert_graph();
    let view = net.nodes[&2].overlay.view(0, 10);
    assert_eq!(view.virtual_nodes[0].key.topic, Some(topic("a")));
    assert!(view.virtual_nodes[0].left.iter().all(|peer| peer.levels.0 <= peer.levels.1));
}

/// SG-32: the interest of a dead node is forgotten at once; the list is whole again soon.
#[test]
fn a_dead_node_is_no_destination_and_no_relay() {
    let mut net = Net::of(6);
    for subscriber in 2..=6 {
        net.subscribe(subscriber, "a");
    }
    assert_eq!(net.publish(1, "a"), [2, 3, 4, 5, 6]);
    net.pass(5);
    for dead in [4, 2, 6] {
        net.kill(dead);
        let left = net.others(1);
        assert_eq!(net.destinations(1, "a"), left);
        let carried = net.carry(1, "a", &left);
        assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), left, "at once");
        net.settle();
        net.pass(10);
        net.assert_graph();
    }
    net.join(4);
    net.subscribe(4, "a");
    assert_eq!(net.destinations(1, "a"), [3, 4, 5]);
    net.pass(10);
    net.assert_graph();
}

/// A link that is lost and back: publications are kept for the node, and the node is asked for interest that it could not tell meanwhile.
#[test]
fn a_lost_link_forgets_nothing_and_is_caught_up_on() {
    let mut net = Net::of(3);
    net.subscribe(2, "a");
    assert_eq!((net.publish(1, "a"), net.publish(1, "b")), (vec![2], vec![]));
    net.cut(1, 2, false);
    net.settle();
    assert_eq!((net.destinations(1, "a"), net.destinations(1, "b")), (vec![2], vec![]));
    assert_eq!(net.nodes[&1].overlay.way(&topic("a"), node(2)), node(2), "it waits for the link");
    assert!(!net.nodes[&1].overlay.is_linked(node(2)));
    net.subscribe(2, "b");
    assert_eq!(net.nodes[&2].tokens.len(), 2, "settled with those that can be reached");
    assert_eq!(net.destinations(1, "c"), [2, 3], "it may want this");
    net.settle();
    assert_eq!(net.destinations(1, "c"), [2], "it has not answered");
    net.unsubscribe(2, "a");
    net.link(1, 2);
    for text in ["a", "b", "c"] {
        assert_eq!(net.destinations(1, text), [2], "until it has answered");
    }
    net.settle();
    assert_eq!(["a", "b", "c"].map(|text| net.destinations(1, text)), [vec![], vec![2], vec![]]);
    assert_eq!(net.nodes[&1].synced, [node(2), node(3), node(2)]);
    net.pass(10);
    net.assert_graph();
}

/// The link is another one than before, and signals that were sent over the first one come over the second.
#[test]
fn what_is_late_from_an_earlier_link_is_heard() {
    let mut net = Net::of(2);
    net.destinations(1, "a");
    net.poll(1);
    assert!(net.deliver(1, 2));
    net.subscribe(2, "b");
    net.poll(2);
    let late = net.links.remove(&(2, 1)).expect("a link");
    net.link(1, 2);
    net.poll(1);
    net.links.insert((2, 1), late);
    net.settle();
    assert!(net.nodes.values().all(|node| node.protocol_errors.is_empty()));
    assert_eq!((net.destinations(1, "a"), net.publish(1, "b")), (vec![], vec![2]));
}

/// A node that was started anew before its death was noticed.
#[test]
fn a_new_incarnation_begins_with_nothing() {
    let mut net = Net::of(3);
    net.subscribe(2, "a");
    net.subscribe(2, "b/+");
    assert_eq!((net.publish(1, "a"), net.publish(1, "b/c")), (vec![2], vec![2]));
    net.pass(5);
    net.start(2);
    net.link(1, 2);
    net.link(3, 2);
    assert_eq!(net.destinations(1, "a"), [2], "until it has answered");
    net.settle();
    assert_eq!((net.destinations(1, "a"), net.destinations(1, "b/c")), (vec![], vec![]));
    net.pass(20);
    net.assert_graph();
}

#[test]
fn members_are_linked_and_forgotten_with_their_link() {
    let mut net = Net::of(2);
    net.feed(1, Input::MemberUp(neighbour(7, 1)));
    net.poll(1);
    assert!(net.nodes[&1].wanted_links.contains(&node(7)));
    net.subscribe(2, "a");
    assert_eq!(net.publish(1, "a"), [2]);
    net.feed(1, Input::MemberDown { node: node(2) });
    assert_eq!(net.destinations(1, "a"), [2], "the link stands");
    net.cut(1, 2, false);
    assert_eq!((net.destinations(1, "a"), net.destinations(1, "new")), (vec![], vec![]));
    net.poll(1);
    net.link(1, 2);
    net.settle();
    assert_eq!(net.destinations(1, "a"), [2]);
    net.cut(1, 2, false);
    net.feed(1, Input::MemberDown { node: node(2) });
    assert_eq!(net.destinations(1, "a"), []);
}

/// The publications kept for a node that has just died are those that would have been sent to it.
#[test]
fn routes_cover_all_destinations() {
    let mut net = Net::of(3);
    net.subscribe(2, "a");
    net.subscribe(2, "b/+");
    net.subscribe(3, "$share/g/x");
    net.publish(1, "a");
    let client = Some(ClientId::new("c"));
    let line = |id: u64, client: Option<&ClientId>, text: &str| RouteEntry {
        node: node(id),
        client: client.cloned(),
        filter: TopicFilter::new(text).expect("a filter"),
    };
    let all = [
        line(2, None, "#"),
        line(2, None, "a"),
        line(2, client.as_ref(), "b/+"),
        line(3, None, "#"),
        line(3, client.as_ref(), "$share/g/x"),
    ];
    let overlay = &net.nodes[&1].overlay;
    assert_eq!(overlay.routes(0, 100), all);
    assert_eq!(overlay.routes(1, 2), all[1..3]);
    assert_eq!(overlay.route_count(), all.len());
    net.kill(2);
    assert_eq!(net.nodes[&1].overlay.routes(0, 100), all[3..]);
}

/// SG-19: the view that an operator has of a node.
#[test]
fn the_topology_shows_topics_subscribers_and_the_graph() {
    let mut net = Net::of(3);
    net.subscribe(2, "a");
    net.subscribe(3, "a");
    assert_eq!((net.publish(1, "a"), net.publish(1, "b")), (vec![2, 3], vec![]));
    net.pass(5);
    let topology = net.nodes[&1].overlay.topology(1);
    assert_eq!((topology.advertised.lines.as_slice(), topology.advertised.total), (&[topic("a")][..], 2));
    assert_eq!((topology.interest.lines.len(), topology.interest.total), (1, 2));
    assert_eq!((topology.interest.lines[0].node, &topology.interest.lines[0].filter), (node(2), &filter("a")));
    let graph = topology.graph.expect("a graph");
    assert_eq!((graph.virtual_node_count, graph.virtual_nodes.len()), (2, 1));
    assert!(graph.virtual_nodes[0].is_rendezvous_point);
    assert!(topology.counters.contains(&("asked", 2)));
}

/// Ten minutes without a publication end a publisher, unless clients of the node subscribe.
#[test]
fn idle_publishers_leave_the_graph() {
    let mut net = Net::with(3, SkipGraphConfig { publisher_idle: Duration::from_mins(1), ..patient() });
    net.subscribe(2, "a");
    assert_eq!((net.publish(1, "a"), net.publish(1, "b")), (vec![2], vec![]));
    net.pass(5);
    assert!(net.virtual_node(1, "b", Role::Publisher).is_some());
    net.pass(40);
    net.publish(1, "a");
    net.pass(40);
    assert!(net.virtual_node(1, "b", Role::Publisher).is_none());
    assert!(net.virtual_node(1, "a", Role::Publisher).is_some());
    assert_eq!(net.destinations(1, "b"), [2, 3], "it begins anew");
    net.settle();
    assert_eq!(net.destinations(1, "b"), []);
}

/// SG-21: nodes whose digits have different bases cannot have one graph; users read which setting to change.
#[test]
fn another_base_is_refused() {
    let mut net = Net::new(patient());
    net.start(1);
    net.config.base = Base::Sixteen;
    net.start(2);
    net.link(1, 2);
    net.settle();
    net.pass(2);
    let errors: Vec<&String> = net.nodes.values().flat_map(|node| &node.protocol_errors).collect();
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("cluster.skip_graph_base")), "{errors:?}");
}
