//! One story each.

use std::collections::{BTreeSet, VecDeque};

use crate::net::{ANSWER, ASK, Net, add, filter, neighbour, remove, topic};
use bytes::Bytes;
use sedge_base::{ClientId, Duration, NodeId};
use sedge_overlay::{Advert, AdvertOp, Input, Overlay, Token, TopicTreeConfig, TopicTreeCounters};

const NONE: [u64; 0] = [];

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn linked(count: u64) -> Net {
    Net::linked(count, TopicTreeConfig::default())
}

/// TR-16, TR-30
#[test]
fn the_first_publication_of_a_topic_goes_to_everyone_and_later_ones_where_they_are_wanted() {
    let mut net = linked(4);
    net.local(2, &[add("c", "a/+")], None);
    net.settle();
    assert_eq!(net.publish(1, "a/b"), [2, 3, 4]);
    net.deliver(1, 2);
    net.settle();
    assert_eq!(net.publish(1, "a/b"), [2]);
    assert_eq!(net.publish(1, "b"), [2, 3, 4]);
    net.settle();
    assert_eq!(net.publish(1, "b"), NONE);
    assert_eq!(net.node(1).machine.counters().unconfirmed, 2);
}

/// Nodes that have confirmed a topic are known; only the others are in doubt.
#[test]
fn while_a_topic_is_being_asked_for_only_those_who_have_not_confirmed_get_it_in_vain() {
    let mut net = linked(4);
    net.publish(1, "a");
    net.poll(1);
    assert!(net.deliver(1, 2) && net.deliver(1, 3));
    net.poll_all();
    assert!(net.reach(2) && net.reach(3));
    net.poll_all();
    assert!(net.deliver(2, 1) && net.deliver(3, 1));
    assert_eq!(net.publish(1, "a"), [4]);
    net.settle();
    assert_eq!(net.publish(1, "a"), NONE);
}

/// TR-30: clients that stay among themselves cost the links nothing.
#[test]
fn topics_that_live_at_one_node_do_not_leave_it() {
    let mut net = linked(5);
    for id in 1..=5 {
        net.local(id, &[add("c", &format!("site/{id}/+")), add("d", "$share/g/none")], None);
        net.publish(id, &format!("site/{id}/t"));
    }
    net.settle();
    for id in 1..=5 {
        assert_eq!(net.publish(id, &format!("site/{id}/t")), NONE);
    }
}

/// TR-17, TR-18
#[test]
fn a_question_is_confirmed_by_all_and_answered_by_the_interested() {
    let mut net = linked(5);
    net.local(2, &[add("c", "a")], None);
    net.local(3, &[add("c", "#")], None);
    net.settle();
    net.publish(4, "a");
    net.publish(5, "b");
    net.settle();
    net.sent.clear();
    net.publish(1, "a");
    net.settle();
    let of_kind = |kind: u8| net.sent.iter().filter(move |signal| signal.2 == kind).map(|signal| (signal.0, signal.1));
    assert_eq!(of_kind(ASK).collect::<Vec<_>>(), [(1, 2), (1, 3), (1, 4), (1, 5)]);
    assert_eq!(of_kind(ANSWER).collect::<BTreeSet<_>>(), BTreeSet::from([(2, 1), (3, 1), (4, 1)]));
    let members: Vec<NodeId> = (1..=4).map(node).collect();
    for id in 1..=4 {
        assert_eq!(net.view(id, "a").members, members, "at {id}");
    }
    assert!(net.nodes[&5].machine.topics(0, 9).iter().all(|view| view.topic.as_str() == "b"));
}

/// Publisher and subscriber begin at the same moment; signals are under way in every order.
#[test]
fn two_sides_that_begin_at_once_find_each_other() {
    for order in 0..16_u8 {
        let mut net = linked(3);
        if order & 1 == 0 {
            net.destinations(1, "a/b");
            net.local(2, &[add("c", "a/+")], Some(1));
        } else {
            net.local(2, &[add("c", "a/+")], Some(1));
            net.destinations(1, "a/b");
        }
        for (bit, id) in [(2, 1), (4, 2)] {
            if order & bit != 0 {
                net.poll(id);
            }
        }
        if order & 8 != 0 {
            net.deliver(1, 2);
            net.poll(2);
        } else {
            net.deliver(2, 1);
            net.poll(1);
        }
        net.settle();
        assert_eq!(net.publish(1, "a/b"), [2], "order {order}");
        assert_eq!(net.view(2, "a/b").members, [node(1), node(2)]);
        assert_eq!(net.node(2).settled, [Token(1)]);
    }
}

/// DESIGN section 1, "SUBACK means the cluster knows"
#[test]
fn a_change_is_settled_when_all_nodes_and_their_shards_have_confirmed_it() {
    let mut net = linked(3);
    net.local(1, &[add("c", "a")], Some(7));
    net.poll(1);
    assert!(net.deliver(1, 2) && net.deliver(1, 3));
    net.poll_all();
    assert!(net.reach(1) && net.reach(2));
    net.poll_all();
    assert!(net.deliver(2, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [], "node 3's shards are not ready");
    assert!(net.reach(3));
    net.poll_all();
    assert!(net.deliver(3, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(7)]);
}

/// The answer comes behind everything that the shards of every node have sent before.
#[test]
fn a_question_without_changes_is_answered_by_all_shards_of_all_nodes() {
    let mut net = linked(2);
    net.local(1, &[], Some(7));
    net.poll(1);
    assert!(net.deliver(1, 2));
    net.poll_all();
    assert!(net.reach(1));
    net.poll_all();
    assert!(!net.deliver(2, 1), "node 2's shards have not answered");
    assert_eq!(net.node(1).settled, []);
    assert!(net.reach(2));
    net.poll_all();
    assert!(net.deliver(2, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(7)]);
}

#[test]
fn a_lonely_node_settles_when_its_own_shards_are_ready() {
    let mut net = Net::new(1, TopicTreeConfig::default());
    net.local(1, &[add("c", "a")], Some(1));
    net.poll(1);
    assert_eq!(net.node(1).settled, []);
    while net.reach(1) {}
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(1)]);
    assert_eq!(net.publish(1, "a"), NONE);
}

#[test]
fn a_neighbour_that_goes_down_is_not_waited_for() {
    for gone in [false, true] {
        let mut net = linked(3);
        net.local(1, &[add("c", "a")], Some(1));
        net.poll(1);
        net.links.insert((1, 3), VecDeque::new());
        net.settle();
        assert_eq!(net.node(1).settled, []);
        net.cut(1, 3, gone);
        net.poll(1);
        assert_eq!(net.node(1).settled, [Token(1)]);
        assert_eq!(net.node(1).machine.counters().late_settlements, 0);
    }
}

#[test]
fn a_neighbour_that_never_confirms_is_waited_for_only_so_long() {
    let mut net = linked(2);
    net.local(1, &[add("c", "a")], Some(1));
    net.poll(1);
    net.links.insert((1, 2), VecDeque::new());
    net.pass(Duration::from_millis(1_999));
    assert_eq!(net.node(1).settled, []);
    net.pass(Duration::from_millis(1));
    assert_eq!(net.node(1).settled, [Token(1)]);
    assert_eq!(net.node(1).machine.counters().late_settlements, 1);
}

/// FT-13
#[test]
fn a_node_is_interested_until_the_second_of_two_clients_unsubscribes() {
    let mut net = linked(3);
    net.publish(1, "a");
    net.local(2, &[add("c1", "a"), add("c2", "a"), add("c2", "#")], None);
    net.settle();
    for (gone, wanted) in [(remove("c1", "a"), vec![2]), (remove("c2", "#"), vec![2]), (remove("c2", "a"), vec![])] {
        net.local(2, &[gone], None);
        net.settle();
        assert_eq!(net.publish(1, "a"), wanted);
    }
    assert_eq!(net.view(1, "a").members, [node(1)]);
    assert_eq!(net.node(2).machine.topic_count(), 0);
    assert_eq!(net.node(1).machine.routes(0, 9).len(), 2, "{:?}", net.node(1).machine.routes(0, 9));
}

/// TR-27
#[test]
fn wildcards_do_not_match_reserved_names() {
    let mut net = linked(3);
    net.local(2, &[add("c", "#"), add("c", "+/a")], None);
    net.settle();
    assert_eq!(net.publish(1, "$x/a"), NONE);
    net.local(3, &[add("c", "$x/+")], Some(1));
    net.settle();
    assert!(net.publish(1, "$x/a").contains(&3));
    net.settle();
    assert_eq!(net.publish(1, "$x/a"), [3]);
    assert!(net.node(1).shards.remote.contains(&filter("$x/+")));
    net.local(3, &[remove("c", "$x/+")], None);
    net.settle();
    assert_eq!(net.node(1).shards.remote, BTreeSet::from([filter("#")]));
}

#[test]
fn members_of_a_shared_subscription_are_counted_everywhere() {
    let mut net = linked(3);
    let group = filter("$share/g/a");
    let offline = Advert { op: AdvertOp::Add { online: false }, ..add("c2", "$share/g/a") };
    net.local(1, &[add("c1", "$share/g/a"), offline.clone()], None);
    net.settle();
    assert_eq!(net.node(2).shards.groups[&(node(1), group.clone())], (1, 1));
    net.local(1, &[Advert { client: ClientId::new("c1"), ..offline }], None);
    net.settle();
    assert_eq!(net.node(3).shards.groups[&(node(1), group.clone())], (0, 2));
    assert!(net.node(3).machine.routes(0, 9).iter().any(|line| line.node == node(1) && line.filter == group));
    net.publish(2, "a");
    net.settle();
    assert_eq!(net.publish(2, "a"), NONE, "shares travel as mail");
    net.local(1, &[remove("c1", "$share/g/a"), remove("c2", "$share/g/a")], None);
    net.settle();
    net.check_groups(2);
    assert!(net.node(2).shards.groups.is_empty());
}

/// A publisher ends after ten minutes of silence, not before.
#[test]
fn topics_that_nobody_publishes_any_more_are_forgotten() {
    let mut net = linked(2);
    net.local(2, &[add("c", "a")], None);
    net.publish(1, "a");
    net.pass(Duration::from_mins(9));
    assert_eq!(net.publish(1, "a"), [2]);
    net.pass(Duration::from_mins(9));
    assert_eq!(net.view(2, "a").members.len(), 2);
    net.pass(Duration::from_mins(2));
    assert_eq!((net.node(1).machine.topic_count(), net.node(2).machine.topic_count()), (0, 0));
    assert_eq!(net.node(1).machine.published_count(), 0);
    // A new beginning, in which nobody is forgotten.
    assert_eq!(net.publish(1, "a"), [2]);
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);
    assert_eq!(net.view(2, "a").members.len(), 2);
}

#[test]
fn too_many_topics_go_to_everyone() {
    let mut net = Net::linked(3, TopicTreeConfig { max_topics: 2, ..TopicTreeConfig::default() });
    net.local(2, &[add("c", "t/#")], None);
    for text in ["t/1", "t/2", "t/3", "$share/t/4"] {
        net.destinations(1, text);
    }
    net.settle();
    assert_eq!(net.publish(1, "t/1"), [2]);
    assert_eq!(net.publish(1, "t/3"), [2, 3]);
    assert_eq!(net.destinations(1, "$share/t/4"), [2, 3]);
    assert_eq!(net.node(1).machine.counters().over_limit, 4);
    // When others have fallen silent there is room.
    net.pass(Duration::from_mins(11));
    net.publish(1, "t/3");
    net.settle();
    assert_eq!(net.publish(1, "t/3"), [2]);
}

#[test]
fn topics_of_others_are_kept_up_to_a_limit_and_publications_arrive_all_the_same() {
    let config = TopicTreeConfig { max_heard_topics: 3, max_trees: 1, ..TopicTreeConfig::default() };
    let mut net = Net::linked(2, config);
    net.config.max_topics = 0;
    net.start(3);
    net.link_all();
    net.settle();
    net.local(3, &[add("c", "#")], None);
    net.settle();
    for text in ["1", "2", "3", "4", "5"] {
        net.publish(1, text);
    }
    net.publish(2, "1");
    net.pass(Duration::from_secs(1));
    assert_eq!(net.node(3).machine.topic_count(), 3);
    assert_eq!(net.node(3).machine.counters().ignored, 2);
    assert_eq!(net.publish(1, "5"), [3]);
    assert_eq!(net.way("5", 1, 3), [3]);
    assert_eq!(net.node(1).machine.tree_count(), 1);
    assert!(net.node(1).machine.counters().refused_trees > 0);
}

/// FT-15, FT-32: whichever single signal is lost.
#[test]
fn what_was_lost_is_repaired_by_the_next_refresh() {
    for lost in 0.. {
        let mut net = linked(3);
        net.local(1, &[add("c", "a/+"), add("d", "$share/g/a")], None);
        net.publish(2, "a/b");
        net.publish(3, "x");
        net.settle();
        net.local(2, &[add("c", "a/b"), add("c", "$y")], Some(1));
        net.destinations(1, "a/b");
        net.local(1, &[remove("d", "$share/g/a"), add("e", "x")], Some(2));
        let mut moved = 0;
        let mut has_lost = false;
        net.poll_all();
        loop {
            let under_way: Vec<(u64, u64)> =
                net.links.iter().filter(|(_, link)| !link.is_empty()).map(|(at, _)| *at).collect();
            if under_way.is_empty() && !(1..=3).any(|id| net.reach(id)) {
                break;
            }
            for at in under_way {
                if moved == lost {
                    has_lost = net.links.get_mut(&at).and_then(VecDeque::pop_front).is_some();
                } else {
                    net.deliver(at.0, at.1);
                }
                moved += 1;
            }
            net.poll_all();
        }
        net.pass(Duration::from_secs(13));
        assert_eq!(net.publish(1, "a/b"), [2], "signal {lost}");
        assert_eq!(net.publish(2, "a/b"), [1], "signal {lost}");
        assert_eq!(net.publish(3, "x"), [1], "signal {lost}");
        (1..=3).for_each(|id| net.check_groups(id));
        let members = vec![node(1), node(2)];
        assert!((1..=2).all(|id| net.view(id, "a/b").members == members), "signal {lost}");
        assert!((1..=3).all(|id| net.nodes[&id].shards.remote.contains(&filter("$y")) == (id != 2)));
        let repairs: u64 = net.nodes.values().map(|state| state.machine.counters().repairs).sum();
        assert_eq!(repairs, u64::from(has_lost), "signal {lost}");
        let before = net.node(1).machine.counters();
        net.pass(Duration::from_mins(1));
        assert_eq!(net.node(1).machine.counters().repairs, before.repairs);
        if !has_lost {
            assert!(lost >= 10, "{lost}");
            return;
        }
    }
}

/// FT-16
#[test]
fn what_is_not_refreshed_vanishes_after_its_lease_and_not_before() {
    let mut net = linked(2);
    net.local(2, &[add("c", "a"), add("c", "$share/g/a")], None);
    net.publish(1, "a");
    net.settle();
    net.cut(1, 2, false);
    net.pass(Duration::from_secs(29));
    assert_eq!(net.publish(1, "a"), [2]);
    assert_eq!(net.publish(1, "b"), [2], "it may have wanted that");
    net.pass(Duration::from_secs(1));
    assert_eq!((net.publish(1, "a"), net.publish(1, "b")), (vec![], vec![]));
    assert_eq!(net.node(1).machine.counters().expired, 1);
    net.link(1, 2);
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);
    net.check_groups(1);
}

/// TR-22
#[test]
fn a_node_that_is_gone_is_forgotten_and_its_next_life_is_heard() {
    let mut net = linked(3);
    for id in 1..=3 {
        net.local(id, &[add("c", "a"), add("d", &format!("only/{id}"))], None);
    }
    net.publish_all(&[1, 2], &["a".into(), "only/3".into()]);
    net.kill(3);
    assert_eq!((net.publish(1, "a"), net.publish(1, "only/3")), (vec![2], vec![]));
    net.settle();
    assert_eq!(net.view(1, "a").members, [node(1), node(2)]);
    net.start(3);
    net.local(3, &[add("c", "a")], Some(1));
    net.link_all();
    assert_eq!(net.publish(1, "only/3"), [3], "nobody knows what it wants now");
    net.settle();
    assert_eq!(net.node(3).settled, [Token(1)]);
    assert_eq!(net.node(3).synced, [node(1), node(2)]);
    assert_eq!((net.publish(1, "a"), net.publish(1, "only/3")), (vec![2, 3], vec![]));
}

/// Filters that a node has wanted since the link broke are settled without node 1: until the snapshot is here, node 2 may want anything.
#[test]
fn a_neighbour_that_comes_back_gets_everything_until_it_has_confirmed() {
    let mut net = linked(3);
    net.publish(1, "a");
    net.settle();
    net.cut(1, 2, false);
    net.local(2, &[add("c", "a")], Some(1));
    net.settle();
    assert_eq!(net.node(2).settled, [Token(1)]);
    net.link(1, 2);
    assert_eq!(net.publish(1, "a"), [2]);
    net.settle();
    assert_eq!(net.publish(1, "a"), [2]);
    net.local(2, &[remove("c", "a")], None);
    net.settle();
    assert_eq!(net.publish(1, "a"), NONE);
}

#[test]
fn membership_may_lose_a_node_before_its_link_is_down() {
    let mut net = linked(2);
    net.local(2, &[add("c", "a")], None);
    net.publish(1, "a");
    net.settle();
    net.feed(1, Input::MemberDown { node: node(2) });
    assert_eq!(net.publish(1, "a"), [2]);
    net.cut(1, 2, false);
    assert_eq!(net.publish(1, "a"), NONE);
    net.link(1, 2);
    net.settle();
    net.cut(1, 2, false);
    net.feed(1, Input::MemberDown { node: node(2) });
    assert_eq!(net.publish(1, "a"), NONE);
}

#[test]
fn links_are_wanted_to_all_members() {
    let mut net = Net::new(1, TopicTreeConfig::default());
    for id in [1, 2, 3] {
        net.feed(1, Input::MemberUp(neighbour(id)));
    }
    net.feed(1, Input::MemberDown { node: node(3) });
    net.poll(1);
    assert_eq!(net.node(1).wanted_links.iter().copied().collect::<Vec<_>>(), [node(2)]);
    assert!(net.node(1).machine.relays());
    assert_eq!(net.node(1).machine.name(), "topic-tree");
}

#[test]
fn nonsense_closes_the_link_and_nothing_else() {
    let nonsense: [&[u8]; 6] = [
        b"",
        b"\x02\x01",
        b"\x01\x02",
        b"\x01\x03\0\0\0\0\0\0\0\x01",
        b"\x01\x06\0\0\0\0\0\0\0\xff\0",
        b"\x01\x04\0\0\0\0\0\0\0\0",
    ];
    for nonsense in nonsense {
        let mut net = linked(3);
        net.local(2, &[add("c", "a")], None);
        net.publish(1, "a");
        net.settle();
        net.feed(1, Input::Signal { from: node(2), bytes: Bytes::from_static(nonsense) });
        net.poll(1);
        assert_eq!(net.node(1).protocol_errors.len(), 1);
        assert!(!net.node(1).machine.is_linked(node(2)));
        net.cut(1, 2, false);
        net.link(1, 2);
        net.settle();
        assert_eq!(net.publish(1, "a"), [2]);
    }
}

/// FT-29: node 1 is still busy with the signals of node 2's first life when the second life comes up.
#[test]
fn confirmations_of_an_earlier_link_are_not_sent_over_the_next() {
    for polled in [true, false] {
        let mut net = linked(2);
        net.local(2, &[add("c", "a")], Some(1));
        net.poll(2);
        assert!(net.deliver(2, 1));
        if polled {
            net.poll(1);
        }
        net.kill(2);
        net.start(2);
        net.link(1, 2);
        net.node(1).synced.clear();
        while net.reach(1) {}
        net.poll_all();
        while net.deliver(1, 2) {}
        net.poll_all();
        assert_eq!(net.node(1).synced, []);
        net.settle();
        assert_eq!(net.node(1).synced, [node(2)]);
        assert_eq!(net.node(1).protocol_errors, Vec::<String>::new());
    }
}

#[test]
fn large_tables_travel_in_pieces() {
    let config = TopicTreeConfig { signal_bytes: 1024, ..TopicTreeConfig::default() };
    let mut net = Net::new(2, config);
    let adverts: Vec<Advert> = (0..300).map(|at| add("c", &format!("a/rather/long/filter/{at}/+"))).collect();
    net.local(1, &adverts, None);
    (0..300).for_each(|at| drop(net.destinations(2, &format!("a/rather/long/filter/{at}/x"))));
    net.link(1, 2);
    net.settle();
    assert_eq!(net.publish(2, "a/rather/long/filter/299/x"), [1]);
    assert_eq!(net.node(1).machine.topic_count(), 300);
    let late: Vec<Advert> = (0..300).map(|at| add("c", &format!("late/rather/long/filter/{at}/+"))).collect();
    (0..300).for_each(|at| drop(net.destinations(2, &format!("late/rather/long/filter/{at}/x"))));
    net.settle();
    net.local(1, &late, Some(1));
    net.settle();
    assert_eq!(net.node(1).settled, [Token(1)]);
    assert_eq!(net.node(1).machine.topic_count(), 600);
    let answers = net.sent.iter().filter(|signal| **signal == (2, 1, ANSWER)).count();
    assert!(answers > 5, "{answers}");
    let mut seen = Vec::new();
    net.node(2).machine.everyone(&mut seen);
    assert_eq!(seen, [node(1)]);
    // Every line is there once, and `#` for interest that is not known.
    assert_eq!(net.node(2).machine.route_count(), 601);
    assert_eq!(net.node(2).machine.routes(600, 5).len(), 1);
}

/// A node that has just died may have wanted any topic that this one did not publish.
#[test]
fn routes_cover_all_that_destinations_could_answer() {
    let mut net = linked(3);
    net.local(2, &[add("c", "a/+"), add("c", "b")], None);
    net.publish(1, "a/x");
    net.settle();
    let lines: Vec<_> = net.node(1).machine.routes(0, 9).into_iter().filter(|line| line.node == node(2)).collect();
    let filters: Vec<&str> = lines.iter().map(|line| line.filter.as_str()).collect();
    assert_eq!(filters, ["#", "a/+"]);
    assert!(lines.iter().any(|line| line.filter.matches(&topic("b"))));
    let counters = net.node(1).machine.counters();
    let TopicTreeCounters { signals, signal_bytes, .. } = counters;
    let expected = TopicTreeCounters { unconfirmed: 1, signals, signal_bytes, ..TopicTreeCounters::default() };
    assert_eq!(counters, expected);
}
