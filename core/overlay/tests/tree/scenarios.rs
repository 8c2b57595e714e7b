//! Routing by advertisements and subscriptions: one story each.

use std::collections::VecDeque;

use crate::net::{Net, add, filter, id, patient_tree, remove, topic, tree, tree_with};
use sedge_base::Duration;
use sedge_overlay::{AdvertLine, Input, InterestLine, RouteEntry, Token, TreeConfig};

fn adverts(net: &Net, node: u64) -> Vec<AdvertLine> {
    net.topology(node).adverts.lines
}

fn interest(net: &Net, node: u64) -> Vec<InterestLine> {
    net.topology(node).interest.lines
}

fn wants(text: &str, node: u64, next: u64) -> InterestLine {
    InterestLine { filter: filter(text), node: id(node), next: id(next) }
}

fn publishes(text: &str, origin: u64, next: u64) -> AdvertLine {
    AdvertLine { topic: topic(text), origin: id(origin), next: id(next) }
}

/// TR-12, TR-13, TR-14: the example of the source, a line A - B - C.
#[test]
fn tables_along_a_line_lead_the_publication_there() {
    let mut net = Net::line(tree);
    net.check_tree();
    net.publish(1, "topic1");
    net.settle();
    assert_eq!(adverts(&net, 1), []);
    assert_eq!(adverts(&net, 2), [publishes("topic1", 1, 1)]);
    assert_eq!(adverts(&net, 3), [publishes("topic1", 1, 2)]);
    assert_eq!(net.publish(1, "topic1"), [], "nobody wants it");
    net.local(3, &[add("c", "topic1")], Some(1));
    net.settle();
    assert_eq!(net.node(3).settled, [Token(1)]);
    assert_eq!(interest(&net, 3), [wants("topic1", 3, 3)]);
    assert_eq!(interest(&net, 2), [wants("topic1", 3, 3)]);
    assert_eq!(interest(&net, 1), [wants("topic1", 3, 2)]);
    let (destinations, hops) = net.send(1, "topic1");
    assert_eq!((destinations, hops), (vec![3], [(1, 2), (2, 3)].into()));
    net.local(3, &[remove("c", "topic1")], Some(2));
    net.settle();
    assert_eq!(net.node(3).settled, [Token(1), Token(2)]);
    assert_eq!([1, 2, 3].map(|node| interest(&net, node).len()), [0, 0, 0]);
    assert_eq!(net.publish(1, "topic1"), []);
}

/// IL-09, IL-11: the example of the source, a tree 1 - 2 - 3 - 5 with 4 beside 3: clients at 2 and 3 subscribe, one at 5 publishes.
#[test]
fn subscriptions_on_a_tree_keep_publications_off_the_other_branches() {
    let mut net = Net::new(tree, 5);
    net.delays.extend([(1, 3), (1, 4), (1, 5), (2, 5), (3, 4), (4, 5)].map(|pair| (pair, 90_000)));
    net.link_all();
    net.check_tree();
    net.publish(5, "t");
    net.settle();
    net.local(2, &[add("b", "t")], None);
    net.local(3, &[add("c", "t")], None);
    net.settle();
    assert_eq!(net.send(5, "t"), (vec![2, 3], [(5, 3), (3, 2)].into()), "nothing over 2 - 1 and 2 - 4");
    net.local(2, &[remove("b", "t")], None);
    net.settle();
    assert_eq!(net.send(5, "t"), (vec![3], [(5, 3)].into()));
    net.local(3, &[remove("c", "t")], None);
    net.settle();
    assert_eq!(net.send(5, "t"), (vec![], [].into()));
}

/// TR-14: no publication on links without subscribers behind them, and nobody else learns of the subscription.
#[test]
fn a_subscription_is_told_to_publishers_of_its_topics_only() {
    let mut net = Net::linked(tree, 4);
    net.publish(3, "a/1");
    net.publish(4, "b/1");
    net.settle();
    let sent = net.sent;
    net.local(2, &[add("c", "a/+"), add("d", "a/+"), add("d", "x")], None);
    net.settle();
    // To node 3 and the root, which lies between, and their confirmations.
    assert_eq!(net.sent - sent, 4);
    assert_eq!(interest(&net, 3), [wants("a/+", 2, 1)]);
    assert_eq!(interest(&net, 1), [wants("a/+", 2, 2)]);
    assert_eq!(interest(&net, 4), []);
    let (destinations, hops) = net.send(3, "a/1");
    assert_eq!((destinations, hops), (vec![2], [(3, 1), (1, 2)].into()));
    assert_eq!(net.publish(4, "b/1"), []);
    net.local(2, &[remove("c", "a/+")], None);
    net.settle();
    assert_eq!(net.publish(3, "a/1"), [2], "the other client is still there");
}

/// TR-15, TR-16
#[test]
fn who_subscribed_first_gets_the_first_message_of_a_new_topic() {
    let mut net = Net::linked(tree, 4);
    let sent = net.sent;
    net.local(3, &[add("c", "a/+")], Some(1));
    net.poll(3);
    net.reach(3);
    net.reach(3);
    net.poll(3);
    assert_eq!(net.node(3).settled, [Token(1)], "nobody publishes: nobody has to know");
    assert_eq!(net.sent, sent);
    assert_eq!(net.publish(1, "a/1"), [2, 3, 4], "message 1");
    net.poll(1);
    assert_eq!(net.publish(1, "a/1"), [2, 3, 4]);
    // Node 2 has answered, the others have not.
    assert!(net.deliver(1, 2));
    net.poll(2);
    assert!(net.reach(2));
    net.poll(2);
    assert!(net.deliver(2, 1));
    assert_eq!(net.publish(1, "a/1"), [3, 4]);
    net.settle();
    assert_eq!(net.publish(1, "a/1"), [3]);
    assert_eq!(net.publish(1, "$a/1"), []);
}

/// Whichever comes first: the publisher still asks, or the subscriber knows of it.
#[test]
fn a_subscription_and_an_advertisement_that_cross_do_not_miss_each_other() {
    let mut net = Net::linked(patient_tree, 2);
    net.publish(1, "a");
    net.poll(1);
    net.local(2, &[add("c", "#")], Some(1));
    net.poll(2);
    while net.reach(2) {}
    net.poll(2);
    assert_eq!(net.node(2).settled, [Token(1)], "the advertisement has not arrived");
    assert_eq!(net.publish(1, "a"), [2]);
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);

    // The other way round: it has arrived, so the publisher has to confirm.
    let mut net = Net::linked(patient_tree, 2);
    net.publish(1, "a");
    net.poll(1);
    assert!(net.deliver(1, 2));
    net.local(2, &[add("c", "#")], Some(1));
    net.poll(2);
    while net.reach(2) {}
    net.poll(2);
    assert_eq!(net.node(2).settled, []);
    while net.deliver(2, 1) {}
    net.poll(1);
    assert_eq!(net.publish(1, "a"), [2]);
    while net.deliver(1, 2) {}
    net.poll(2);
    assert_eq!(net.node(2).settled, [], "the shards of the publisher have not answered");
    net.settle();
    assert_eq!(net.node(2).settled, [Token(1)]);
}

#[test]
fn a_question_without_changes_is_answered_by_all_shards_of_all_nodes() {
    let mut net = Net::linked(patient_tree, 3);
    net.local(1, &[], Some(7));
    net.poll(1);
    while net.deliver(1, 2) || net.deliver(1, 3) || net.reach(1) || net.reach(2) {
        net.poll_all();
    }
    while net.deliver(2, 1) || net.deliver(3, 1) {
        net.poll(1);
    }
    assert_eq!(net.node(1).settled, [], "the shards of node 3 have not answered");
    net.settle();
    assert_eq!(net.node(1).settled, [Token(7)]);
}

/// One change concerns both the interest that every node has to know and the interest that publishers have to know; meanwhile a node joins.
#[test]
fn a_change_is_settled_when_all_nodes_that_are_linked_then_know_of_it() {
    let mut net = Net::linked(patient_tree, 2);
    net.publish(2, "a");
    net.settle();
    net.start(3);
    net.local(1, &[add("c", "a"), add("c", "$own/x")], Some(1));
    net.poll(1);
    while net.deliver(1, 2) || net.reach(1) {}
    net.poll(2);
    // The first of two barriers: the interest that every node has to know is confirmed, the rest is not.
    assert!(net.reach(2));
    net.poll(2);
    while net.deliver(2, 1) {}
    net.poll(1);
    net.link(1, 3);
    assert!(net.reach(2));
    net.poll(2);
    while net.deliver(2, 1) {}
    net.poll(1);
    while net.reach(1) {
        net.poll(1);
    }
    assert_eq!(net.node(1).settled, [], "node 3 knows nothing");
    net.settle();
    assert_eq!(net.node(1).settled, [Token(1)]);
    assert_eq!(net.publish(3, "$own/x"), [1]);
}

#[test]
fn a_neighbour_that_goes_down_is_not_waited_for() {
    for gone in [false, true] {
        let mut net = Net::linked(patient_tree, 3);
        net.publish(3, "a");
        net.settle();
        net.local(2, &[add("c", "a")], Some(1));
        while net.reach(2) || net.reach(1) || net.deliver(2, 1) || net.deliver(1, 2) {
            net.poll_all();
        }
        net.poll_all();
        while net.reach(2) || net.reach(1) || net.deliver(2, 1) || net.deliver(1, 2) {
            net.poll_all();
        }
        assert_eq!(net.node(2).settled, []);
        net.cut(2, 3, gone);
        net.settle();
        assert_eq!(net.node(2).settled, [Token(1)]);
        assert_eq!(net.counter(2, "late_settlements"), 0);
    }
}

#[test]
fn a_neighbour_that_never_confirms_is_waited_for_only_so_long() {
    let mut net = Net::linked(tree, 2);
    net.publish(1, "a");
    net.settle();
    net.local(2, &[add("c", "a")], Some(1));
    net.poll(2);
    net.links.insert((2, 1), VecDeque::new());
    while net.reach(2) {}
    net.pass(Duration::from_millis(1_999));
    assert_eq!(net.node(2).settled, []);
    net.pass(Duration::from_millis(1));
    assert_eq!(net.node(2).settled, [Token(1)]);
    assert_eq!(net.counter(2, "late_settlements"), 1);
}

/// TR-03, TR-26: until a new node has answered it gets everything.
#[test]
fn a_node_that_joins_gets_what_is_published_meanwhile() {
    let mut net = Net::linked(tree, 3);
    net.local(2, &[add("c", "a")], None);
    net.publish(1, "a");
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);
    net.start(4);
    net.local(4, &[add("c", "a")], None);
    let newcomer = net.neighbour(4);
    net.feed(1, Input::MemberUp(newcomer));
    assert_eq!(net.publish(1, "a"), [2, 4], "known from membership only");
    net.link(1, 4);
    assert_eq!(net.publish(1, "a"), [2, 4]);
    assert_eq!(net.publish(4, "b"), [1]);
    net.link_all();
    assert_eq!(net.publish(1, "a"), [2, 4]);
    assert_eq!(net.publish(4, "b"), []);
    net.check_tree();
    let mut synced = net.node(4).synced.clone();
    synced.sort_unstable();
    assert_eq!(synced, [id(1), id(2), id(3)], "once each");
}

/// TR-22, TR-25
#[test]
fn a_dead_node_is_forgotten_at_once_and_ways_go_round_it() {
    let mut net = Net::linked(tree, 4);
    net.local(2, &[add("c", "a")], None);
    net.local(1, &[add("c", "a")], None);
    net.publish(4, "a");
    net.publish(1, "b");
    net.settle();
    assert_eq!(net.send(4, "a").1, [(4, 1), (1, 2)].into());
    net.kill(1);
    assert_eq!(net.send(4, "a"), (vec![2], [(4, 2)].into()));
    net.settle();
    net.check_tree();
    assert_eq!(adverts(&net, 2), [publishes("a", 4, 4)]);
    assert_eq!(interest(&net, 4), [wants("a", 2, 2)]);
}

/// Relays know the interest that passes them, and forget it when it passes others.
#[test]
fn relays_change_with_the_tree() {
    let mut net = Net::linked(tree, 4);
    net.local(2, &[add("c", "a")], None);
    net.publish(3, "a");
    net.settle();
    assert_eq!(interest(&net, 1), [wants("a", 2, 2)]);
    assert_eq!(interest(&net, 4), []);
    net.capacities.insert(4, 9);
    net.feed(4, Input::Load { capacity: 9, clients: 0 });
    net.pass(Duration::from_secs(40));
    net.check_tree();
    assert_eq!(net.topology(1).trees[0].root, id(4));
    assert_eq!(interest(&net, 1), []);
    assert_eq!(interest(&net, 4), [wants("a", 2, 2)]);
    assert_eq!(net.send(3, "a"), (vec![2], [(3, 4), (4, 2)].into()));
    assert_eq!((net.counter(1, "repairs"), net.counter(4, "repairs")), (0, 0));
}

/// FT-25, FT-29: it may have changed its mind while there was no link.
#[test]
fn after_a_new_link_everything_goes_there_until_it_has_answered_again() {
    let mut net = Net::linked(tree, 3);
    net.local(2, &[add("c", "a")], None);
    net.publish(1, "a");
    net.publish(1, "b");
    net.settle();
    net.cut(1, 2, false);
    assert_eq!(net.publish(1, "a"), [2], "its wishes are kept while the link is down");
    assert_eq!(net.publish(1, "b"), []);
    assert_eq!(net.publish(1, "new"), [2, 3]);
    net.local(2, &[remove("c", "a"), add("c", "b")], None);
    net.settle();
    assert_eq!(net.publish(1, "new"), [2], "it has not answered");
    net.link(1, 2);
    assert_eq!(net.publish(1, "b"), [2]);
    net.settle();
    assert_eq!(net.publish(1, "a"), []);
    assert_eq!(net.publish(1, "b"), [2]);
    assert_eq!(net.publish(1, "new"), []);
    net.pass(Duration::from_mins(1));
    assert_eq!((net.counter(1, "repairs"), net.counter(2, "repairs")), (0, 0));
}

/// FT-15
#[test]
fn a_difference_is_repaired_with_the_next_digest() {
    for lost in [(1, 2), (2, 1)] {
        let mut net = Net::linked(tree, 2);
        net.publish(1, "a");
        net.local(2, &[add("c", "b")], None);
        net.settle();
        net.publish(1, "b");
        net.local(2, &[add("c", "a")], None);
        net.poll_all();
        // A signal with changes is lost, which no link does.
        net.links.insert(lost, VecDeque::new());
        net.settle();
        net.pass(Duration::from_secs(11));
        assert_eq!(net.counter(lost.1, "repairs"), 1);
        assert_eq!(net.publish(1, "a"), [2]);
        assert_eq!(net.publish(1, "b"), [2]);
        net.pass(Duration::from_mins(2));
        assert_eq!(net.counter(1, "repairs") + net.counter(2, "repairs"), 1);
    }
}

/// FT-16: the interest of a node is forgotten when it is not refreshed; as nothing is known of the node then, it gets everything.
#[test]
fn what_is_not_refreshed_vanishes_after_its_lease_and_is_not_taken_for_unwanted() {
    let mut net = Net::linked(tree, 3);
    net.local(2, &[add("c", "a")], None);
    net.publish(1, "a");
    net.publish(1, "b");
    net.settle();
    net.cut(1, 2, false);
    net.pass(Duration::from_secs(29));
    assert_eq!(interest(&net, 1), [wants("a", 2, 3)]);
    assert_eq!(net.publish(1, "b"), []);
    net.pass(Duration::from_secs(1));
    assert_eq!(interest(&net, 1), []);
    assert_eq!(net.publish(1, "b"), [2]);
    assert!(net.counter(1, "expired") > 0);
    net.link(1, 2);
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);
    assert_eq!(net.publish(1, "b"), []);
}

/// Overlay-trees section 7: advertisements age out after ten minutes without publications.
#[test]
fn a_topic_without_publications_is_withdrawn_and_asked_for_anew() {
    let mut net = Net::linked(tree, 3);
    net.local(2, &[add("c", "#")], None);
    net.publish(1, "a");
    net.publish(1, "b");
    net.settle();
    net.pass(Duration::from_mins(9));
    net.feed(1, Input::RoundTrip { node: id(2), micros: 10_000 });
    assert_eq!(net.publish(1, "a"), [2]);
    assert_eq!(net.topology(1).advertised.total, 2);
    net.pass(Duration::from_mins(2));
    assert_eq!(net.topology(1).advertised.lines, [topic("a")]);
    assert_eq!(adverts(&net, 3), [publishes("a", 1, 1)]);
    assert_eq!(net.counter(1, "withdrawn"), 1);
    assert_eq!(net.publish(1, "b"), [2, 3]);
    net.settle();
    assert_eq!(net.publish(1, "b"), [2]);
    net.pass(Duration::from_mins(15));
    assert_eq!(net.topology(1).advertised.total, 0);
    assert_eq!(net.topology(2).adverts.total, 0);
    assert_eq!(net.counter(2, "repairs"), 0);
}

/// Ageing needs no neighbours.
#[test]
fn a_lonely_node_forgets_topics_too() {
    let mut net = Net::new(tree, 1);
    assert_eq!(net.publish(1, "a"), []);
    net.pass(Duration::from_mins(11));
    assert_eq!(net.topology(1).advertised.total, 0);
    assert_eq!(net.node(1).overlay.poll_timeout(), None);
}

fn small_tree(node: u64) -> Box<dyn sedge_overlay::Overlay> {
    tree_with(node, TreeConfig { topics: 3, ..TreeConfig::default() })
}

/// A topic per message: topics for which there is no room go to everyone, and topics with one publication make room.
#[test]
fn topics_beyond_the_limit_go_to_everyone() {
    let mut net = Net::linked(small_tree, 3);
    net.local(2, &[add("c", "#")], None);
    for text in ["steady", "one/1", "one/2", "steady"] {
        net.publish(1, text);
    }
    net.settle();
    assert_eq!(net.publish(1, "steady"), [2]);
    for _ in 0..3 {
        assert_eq!(net.publish(1, "one/3"), [2, 3]);
        net.settle();
    }
    assert_eq!(net.counter(1, "unadvertised"), 3);
    net.pass(Duration::from_secs(61));
    net.feed(1, Input::RoundTrip { node: id(2), micros: 10_000 });
    net.publish(1, "one/3");
    net.settle();
    assert_eq!(net.publish(1, "one/3"), [2]);
    assert_eq!(net.topology(1).advertised.lines, [topic("one/2"), topic("one/3"), topic("steady")]);
    assert_eq!(adverts(&net, 3).len(), 3);
    assert_eq!(net.counter(1, "withdrawn"), 1);
    net.publish(1, "one/1");
    net.settle();
    assert_eq!(net.topology(1).advertised.lines, [topic("one/1"), topic("one/3"), topic("steady")]);
    assert_eq!(net.publish(1, "one/4"), [2, 3], "no other has had a single publication only, long ago");
}

#[test]
fn topics_and_subscriptions_between_two_polls_travel_in_one_signal() {
    let mut net = Net::linked(tree, 2);
    for n in 0..1_000 {
        net.publish(1, &format!("topic/{n}"));
    }
    net.poll(1);
    assert_eq!(net.links[&(1, 2)].len(), 1);
    net.settle();
    let many: Vec<_> = (0..1_000).map(|n| add(&format!("c{n}"), &format!("topic/{n}"))).collect();
    net.local(2, &many, Some(1));
    net.poll(2);
    assert_eq!(net.links[&(2, 1)].len(), 1);
    net.settle();
    assert_eq!(net.node(2).settled, [Token(1)]);
    assert_eq!(net.publish(1, "topic/7"), [2]);
    assert_eq!(net.topology(1).interest.total, 1_000);
}

#[test]
fn a_long_table_is_cut_into_signals() {
    let mut net = Net::new(patient_tree, 2);
    for n in 0..500 {
        net.publish(1, &format!("topic/{n}"));
        net.local(1, &[add("c", &format!("other/{n}"))], None);
        net.publish(2, &format!("other/{n}"));
    }
    net.link(1, 2);
    net.poll_all();
    assert!(net.links[&(1, 2)].len() > 5);
    assert!(net.links[&(1, 2)].iter().all(|signal| signal.len() < 2_000));
    net.settle();
    assert_eq!(net.publish(2, "other/9"), [1]);
    assert_eq!(net.topology(2).adverts.total, 500);
    assert_eq!((net.node(1).synced.clone(), net.node(2).synced.clone()), (vec![id(2)], vec![id(1)]));
}

/// Interest that all nodes have to know takes the same way as with flooding.
#[test]
fn shared_subscriptions_and_reserved_topics_are_known_everywhere() {
    let mut net = Net::linked(tree, 3);
    net.local(3, &[add("c", "$own/+"), add("c", "$share/g/a"), add("d", "$share/g/a")], Some(1));
    net.settle();
    assert_eq!(net.node(3).settled, [Token(1)]);
    net.check_groups();
    assert_eq!(net.node(1).shards.groups[&(id(3), filter("$share/g/a"))], (2, 0));
    assert_eq!(net.publish(1, "$own/x"), [3]);
    net.publish(1, "a");
    net.settle();
    assert_eq!(net.publish(1, "a"), [], "a share is sent by itself");
}

/// Publications to topics that a node has never heard of have to be kept for it when it dies.
#[test]
fn the_routing_table_covers_all_that_goes_to_a_node() {
    let mut net = Net::linked(tree, 3);
    net.local(2, &[add("c", "a"), add("c", "$own/x")], None);
    net.publish(1, "a");
    net.settle();
    let line = |node: u64, client: Option<&str>, text: &str| RouteEntry {
        node: id(node),
        client: client.map(Into::into),
        filter: filter(text),
    };
    let lines = [line(2, None, "#"), line(2, None, "a"), line(2, Some("c"), "$own/x"), line(3, None, "#")];
    let overlay = &net.node(1).overlay;
    assert_eq!(overlay.routes(0, 10), lines);
    assert_eq!(overlay.routes(1, 2), lines[1..3]);
    assert_eq!(overlay.route_count(), 4);
    assert!(overlay.routes(0, 10).is_sorted());
}

#[test]
fn nonsense_closes_the_link_and_nothing_else() {
    for nonsense in [
        &b"\x02"[..],
        b"\x02\x02\x01",
        b"\x02\x01\x02",
        b"\x02\x01\x03\0\0\0\0\0\0\0\x01",
        b"\x02\x01\x05\xff\0\0\0\0\0\0\0",
    ] {
        let mut net = Net::linked(tree, 3);
        net.local(2, &[add("c", "a")], None);
        net.publish(1, "a");
        net.settle();
        net.feed(1, Input::Signal { from: id(2), bytes: nonsense.into() });
        net.poll(1);
        assert_eq!(net.node(1).protocol_errors.len(), 1, "{nonsense:?}");
        assert!(!net.node(1).overlay.is_linked(id(2)));
        assert_eq!(net.publish(1, "a"), [2]);
        net.node(1).protocol_errors.clear();
        net.cut(1, 2, false);
        net.link(1, 2);
        net.settle();
        net.check_tree();
        assert_eq!(net.publish(1, "a"), [2]);
        assert_eq!(net.publish(1, "b"), [2, 3]);
    }
}

/// IL-10: a filter that another one covers is told to nobody, until the other one goes.
#[test]
fn what_another_filter_covers_is_not_told() {
    let mut net = Net::linked(tree, 3);
    net.settle();
    for text in ["a/b", "a/c"] {
        net.publish(1, text);
    }
    net.settle();
    net.local(2, &[add("wide", "a/#")], Some(1));
    net.settle();
    let told = |net: &Net| -> Vec<String> {
        let lines = net.topology(1).interest.lines.into_iter().filter(|line| line.node == id(2));
        lines.map(|line| line.filter.as_str().to_owned()).collect()
    };
    assert_eq!(told(&net), ["a/#"]);
    net.local(2, &[add("narrow", "a/b"), add("other", "a/+")], None);
    net.poll_all();
    assert!(!net.deliver(2, 1) && !net.deliver(2, 3), "nothing is to be said");
    assert_eq!(told(&net), ["a/#"]);
    net.local(2, &[remove("other", "a/+"), remove("wide", "a/#")], Some(2));
    net.settle();
    assert_eq!(told(&net), ["a/b"]);
    assert_eq!((net.publish(1, "a/b"), net.publish(1, "a/c")), (vec![2], vec![]));
    net.local(2, &[remove("narrow", "a/b")], None);
    net.settle();
    assert!(told(&net).is_empty());
}
