//! One story each.

use std::collections::VecDeque;

use crate::net::{Net, add, filter, neighbour, remove};
use bytes::Bytes;
use sedge_base::{ClientId, Duration, NodeId};
use sedge_overlay::{Advert, AdvertOp, Input, MeshConfig, MeshCounters, Overlay, Token};

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

/// FT-09, FT-10, FT-12
#[test]
fn all_nodes_list_the_clients_of_all_others() {
    let mut net = Net::linked(4);
    net.local(1, &[add("c1", "a/b"), add("c1", "a/#"), add("c2", "$share/g/x")], None);
    net.local(3, &[add("c3", "+/b")], None);
    net.settle();
    for other in 1..=4 {
        let others: Vec<u64> = (1..=4).filter(|node| *node != other).collect();
        net.check_tables(other, &others);
    }
    let routes = net.node(2).mesh.routes(1, 2);
    assert_eq!(routes.len(), 2);
    assert_eq!((routes[1].node, routes[1].client.as_ref().unwrap().as_str()), (node(1), "c2"));
    assert_eq!(routes[1].filter, filter("$share/g/x"));
    net.local(1, &[remove("c1", "a/b"), remove("c1", "a/#"), remove("c2", "$share/g/x")], None);
    net.settle();
    assert_eq!(net.node(2).mesh.route_count(), 1);
}

/// FT-13
#[test]
fn a_route_stays_until_the_second_of_two_clients_unsubscribes() {
    let mut net = Net::linked(2);
    net.local(1, &[add("c1", "a"), add("c2", "a")], None);
    net.settle();
    assert_eq!(net.hops(2, "a"), [1]);
    net.local(1, &[remove("c1", "a")], None);
    net.settle();
    assert_eq!(net.hops(2, "a"), [1]);
    assert!(net.node(2).shards.remote.contains(&filter("a")));
    net.local(1, &[remove("c2", "a")], None);
    net.settle();
    assert_eq!(net.hops(2, "a"), []);
    net.check_tables(2, &[1]);
}

/// FT-14
#[test]
fn a_publication_goes_only_where_it_is_wanted_and_only_one_hop() {
    let mut net = Net::linked(4);
    net.local(2, &[add("c", "a/+"), add("d", "a/b"), add("e", "$share/g/a/b")], None);
    net.local(4, &[add("c", "#")], None);
    net.settle();
    assert_eq!(net.hops(1, "a/b"), [2, 4]);
    assert_eq!(net.hops(1, "x"), [4]);
    assert_eq!(net.hops(1, "$SYS/x"), []);
    assert_eq!(net.hops(4, "x"), []);
    let mut everyone = vec![];
    net.node(4).mesh.everyone(&mut everyone);
    assert_eq!(everyone, [node(1), node(2), node(3)]);
    let topic = sedge_mqtt::TopicName::new("a/b").unwrap();
    assert_eq!(net.node(1).mesh.way(&topic, node(2)), node(2));
}

#[test]
fn members_of_a_shared_subscription_are_counted_by_node_and_state() {
    let mut net = Net::linked(3);
    let group = filter("$share/g/a");
    let offline = Advert { op: AdvertOp::Add { online: false }, ..add("c2", "$share/g/a") };
    net.local(1, &[add("c1", "$share/g/a"), offline.clone()], None);
    net.settle();
    assert_eq!(net.node(2).shards.groups[&(node(1), group.clone())], (1, 1));
    net.local(1, &[Advert { client: ClientId::new("c1"), ..offline }], None);
    net.settle();
    assert_eq!(net.node(2).shards.groups[&(node(1), group)], (0, 2));
    net.local(1, &[remove("c1", "$share/g/a"), remove("c2", "$share/g/a")], None);
    net.settle();
    net.check_tables(2, &[1, 3]);
    assert!(net.node(2).shards.groups.is_empty() && net.node(2).shards.remote.is_empty());
}

/// DESIGN section 1, "SUBACK means the cluster knows"
#[test]
fn a_change_is_settled_when_all_shards_of_all_nodes_route_by_it() {
    let mut net = Net::linked(3);
    net.local(1, &[add("c", "a")], Some(7));
    net.poll(1);
    net.poll(1);
    assert!(net.deliver(1, 2) && net.deliver(1, 3));
    net.poll_all();
    assert!(net.reach(1) && net.reach(2));
    net.poll_all();
    assert!(net.deliver(2, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [], "node 3's shards do not route yet");
    assert!(net.reach(3));
    net.poll_all();
    assert!(net.deliver(3, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(7)]);
    assert!(net.node(2).shards.remote.contains(&filter("a")) && net.node(3).shards.remote.contains(&filter("a")));
}

/// The answer comes behind everything that the shards of every node have sent before.
#[test]
fn a_question_without_changes_is_answered_by_all_shards_of_all_nodes() {
    let mut net = Net::linked(2);
    net.local(1, &[], Some(7));
    net.poll(1);
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
    let mut net = Net::new(1, MeshConfig::default());
    net.local(1, &[add("c", "a")], Some(1));
    net.poll(1);
    assert_eq!(net.node(1).settled, []);
    assert!(net.reach(1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(1)]);
}

#[test]
fn a_change_that_changes_nothing_still_waits_for_those_before_it() {
    let mut net = Net::linked(2);
    net.local(1, &[add("c", "a")], Some(1));
    net.poll(1);
    net.local(1, &[add("c", "a")], Some(2));
    net.poll(1);
    assert!(net.reach(1) && net.reach(1));
    net.poll(1);
    assert_eq!(net.node(1).settled, []);
    net.settle();
    assert_eq!(net.node(1).settled, [Token(1), Token(2)]);
}

#[test]
fn a_neighbour_that_goes_down_is_not_waited_for() {
    for gone in [false, true] {
        let mut net = Net::linked(3);
        net.local(1, &[add("c", "a")], Some(1));
        net.poll_all();
        net.deliver(1, 2);
        while net.reach(1) || net.reach(2) {
            net.poll(2);
        }
        net.poll_all();
        while net.deliver(2, 1) {}
        net.poll(1);
        assert_eq!(net.node(1).settled, []);
        net.cut(1, 3, gone);
        net.poll(1);
        assert_eq!(net.node(1).settled, [Token(1)]);
        assert_eq!(net.node(1).mesh.counters().late_settlements, 0);
    }
}

#[test]
fn a_neighbour_that_never_confirms_is_waited_for_only_so_long() {
    let mut net = Net::linked(2);
    net.links.insert((1, 2), VecDeque::new());
    net.local(1, &[add("c", "a")], Some(1));
    net.poll(1);
    net.links.insert((1, 2), VecDeque::new());
    net.reach(1);
    net.pass(Duration::from_millis(1_999));
    assert_eq!(net.node(1).settled, []);
    net.pass(Duration::from_millis(1));
    assert_eq!(net.node(1).settled, [Token(1)]);
    assert_eq!(net.node(1).mesh.counters().late_settlements, 1);
}

#[test]
fn changes_between_two_polls_travel_in_one_signal() {
    let mut net = Net::linked(2);
    for client in 0..100 {
        net.local(1, &[add(&format!("c{client}"), "a")], Some(client));
        net.local(1, &[add(&format!("c{client}"), "b")], None);
        net.local(1, &[remove(&format!("c{client}"), "b")], None);
    }
    net.poll(1);
    assert_eq!(net.links[&(1, 2)].len(), 1);
    net.settle();
    net.check_tables(2, &[1]);
    assert_eq!(net.node(1).settled.len(), 100);
}

/// FT-26
#[test]
fn a_new_neighbour_gets_everything_and_both_sides_learn_that_it_has() {
    let mut net = Net::new(2, MeshConfig { signal_bytes: 1024, ..MeshConfig::default() });
    let many: Vec<Advert> = (0..1_000).map(|n| add(&format!("client-{n}"), &format!("topic/{n}"))).collect();
    net.local(1, &many, None);
    net.settle();
    net.link(1, 2);
    net.poll_all();
    assert!(net.links[&(1, 2)].len() > 20);
    assert!(net.links[&(1, 2)].iter().all(|signal| signal.len() < 2_000));
    while net.deliver(1, 2) | net.deliver(2, 1) {
        net.poll_all();
    }
    assert_eq!(net.node(2).synced, [], "the shards do not route yet");
    net.settle();
    assert_eq!(net.node(1).synced, [node(2)]);
    assert_eq!(net.node(2).synced, [node(1)]);
    net.check_tables(2, &[1]);
    net.check_tables(1, &[2]);
}

/// FT-25
#[test]
fn a_lost_link_keeps_the_routes_and_a_lost_node_does_not() {
    let mut net = Net::linked(3);
    net.local(2, &[add("c", "a")], None);
    net.settle();
    net.cut(1, 2, false);
    net.settle();
    assert_eq!(net.hops(1, "a"), [2], "messages wait for the link");
    assert!(!net.node(1).mesh.is_linked(node(2)));
    net.feed(1, Input::MemberDown { node: node(2) });
    net.settle();
    assert_eq!(net.hops(1, "a"), []);
    net.check_tables(1, &[3]);
    net.check_tables(3, &[1, 2]);
    net.kill(2);
    net.settle();
    net.check_tables(3, &[1]);
}

/// FT-29
#[test]
fn the_snapshot_of_a_neighbour_replaces_what_was_known_of_it_at_its_end() {
    let mut net = Net::linked(2);
    net.local(2, &[add("c", "old"), add("c", "both")], None);
    net.settle();
    net.cut(1, 2, false);
    net.local(2, &[remove("c", "old"), add("c", "new")], None);
    net.settle();
    net.link(1, 2);
    net.poll_all();
    net.deliver(2, 1);
    net.deliver(2, 1);
    assert_eq!((net.hops(1, "old"), net.hops(1, "both"), net.hops(1, "new")), (vec![2], vec![2], vec![2]));
    net.deliver(2, 1);
    assert_eq!((net.hops(1, "old"), net.hops(1, "both"), net.hops(1, "new")), (vec![], vec![2], vec![2]));
    net.settle();
    net.check_tables(1, &[2]);
}

#[test]
fn a_client_that_moves_is_known_at_both_nodes_until_the_old_one_lets_go() {
    let mut net = Net::linked(3);
    net.local(1, &[add("c", "a")], None);
    net.settle();
    net.local(2, &[add("c", "a")], None);
    net.settle();
    assert_eq!(net.hops(3, "a"), [1, 2]);
    net.local(1, &[remove("c", "a")], None);
    net.settle();
    assert_eq!(net.hops(3, "a"), [2]);
}

/// FT-15, FT-32
#[test]
fn a_table_that_differs_is_repaired_by_the_next_refresh() {
    let mut net = Net::linked(3);
    net.local(1, &[add("c", "a"), add("d", "b")], None);
    net.settle();
    net.local(1, &[add("c", "lost")], None);
    net.poll(1);
    // The one signal with the change is lost, which no link does.
    net.links.insert((1, 2), VecDeque::new());
    net.pass(Duration::from_secs(11));
    net.check_tables(2, &[1, 3]);
    assert_eq!(net.node(2).mesh.counters().repairs, 1);
    net.pass(Duration::from_mins(5));
    assert_eq!(net.node(2).mesh.counters(), MeshCounters { repairs: 1, ..MeshCounters::default() });
}

/// A cluster in which node 1 has told the others of two subscriptions.
fn told() -> Net {
    let mut net = Net::linked(3);
    net.local(1, &[add("c", "a"), add("d", "b")], None);
    net.settle();
    net
}

/// The signals by which node 1 of such a cluster tells node 2 of these changes.
fn signals_of(changes: &[Advert]) -> VecDeque<Bytes> {
    let mut twin = told();
    twin.local(1, changes, None);
    twin.poll(1);
    twin.links[&(1, 2)].clone()
}

/// FT-32: entries that are wrong, surplus, missing or stale, each put into the table of node 2 in the place of the entries that node 1 has told.
#[test]
fn a_wrong_a_surplus_a_missing_and_a_stale_entry_are_repaired_by_the_next_refresh() {
    let (right, other) = (add("c", "right"), add("c", "other"));
    let cases: [(&str, &[Advert], VecDeque<Bytes>); 4] = [
        ("wrong", core::slice::from_ref(&right), signals_of(&[add("c", "wrong")])),
        ("surplus", core::slice::from_ref(&right), signals_of(&[right.clone(), other.clone()])),
        ("missing", &[right.clone(), other], signals_of(core::slice::from_ref(&right))),
        ("stale", &[remove("d", "b")], VecDeque::new()),
    ];
    for (case, changes, heard) in cases {
        let mut net = told();
        net.local(1, changes, None);
        net.poll(1);
        net.links.insert((1, 2), heard);
        net.settle();
        let before: Vec<_> = net.node(2).mesh.routes(0, usize::MAX);
        assert_ne!(before, net.node(3).mesh.routes(0, usize::MAX), "{case}: the tables of 2 and 3 differ");
        net.pass(Duration::from_secs(11));
        net.check_tables(2, &[1, 3]);
        net.check_tables(3, &[1, 2]);
        assert_eq!(net.node(2).mesh.counters().repairs, 1, "{case}");
        net.pass(Duration::from_mins(5));
        assert_eq!(net.node(2).mesh.counters(), MeshCounters { repairs: 1, ..MeshCounters::default() }, "{case}");
    }
}

/// FT-16
#[test]
fn what_is_not_refreshed_vanishes_after_its_lease_and_not_before() {
    let mut net = Net::linked(2);
    net.local(2, &[add("c", "a")], None);
    net.settle();
    net.cut(1, 2, false);
    net.pass(Duration::from_secs(29));
    assert_eq!(net.hops(1, "a"), [2]);
    net.pass(Duration::from_secs(1));
    assert_eq!(net.hops(1, "a"), []);
    assert_eq!(net.node(1).mesh.counters().expired, 1);
    net.link(1, 2);
    net.settle();
    net.check_tables(1, &[2]);
}

/// FT-16
#[test]
fn who_stood_still_forgets_nobody() {
    let mut net = Net::linked(2);
    net.local(2, &[add("c", "a")], None);
    net.settle();
    net.now = net.now + Duration::from_secs(45);
    net.pass(Duration::ZERO);
    assert_eq!(net.hops(1, "a"), [2]);
    assert_eq!(net.node(1).mesh.counters(), MeshCounters::default());
}

#[test]
fn links_are_wanted_to_all_members() {
    let mut net = Net::new(1, MeshConfig::default());
    for id in [1, 2, 3] {
        net.feed(1, Input::MemberUp(neighbour(id)));
    }
    net.feed(1, Input::MemberDown { node: node(3) });
    net.poll(1);
    assert_eq!(net.node(1).wanted_links.iter().copied().collect::<Vec<_>>(), [node(2)]);
}

#[test]
fn nonsense_closes_the_link_and_nothing_else() {
    for nonsense in [&b""[..], b"\x02\x01", b"\x01\x02", b"\x01\x03\0\0\0\0\0\0\0\x01", b"\x01\x05\0\0\0\0\0\0\0\xff"] {
        let mut net = Net::linked(3);
        net.local(2, &[add("c", "a")], None);
        net.settle();
        net.feed(1, Input::Signal { from: node(2), bytes: Bytes::from_static(nonsense) });
        net.poll(1);
        assert_eq!(net.node(1).protocol_errors.len(), 1);
        assert!(!net.node(1).mesh.is_linked(node(2)));
        net.node(1).protocol_errors.clear();
        net.cut(1, 2, false);
        net.link(1, 2);
        net.settle();
        net.check_tables(1, &[2, 3]);
    }
}

/// FT-29: node 1 is still busy with the signals of node 2's first life when the second life comes up.
#[test]
fn confirmations_of_an_earlier_link_are_not_sent_over_the_next() {
    for polled in [true, false] {
        let mut net = Net::linked(2);
        net.local(2, &[add("c", "a")], Some(1));
        net.poll(2);
        assert!(net.deliver(2, 1));
        if polled {
            net.poll(1);
        }
        net.kill(2);
        net.start(2, MeshConfig::default());
        net.link(1, 2);
        net.node(1).synced.clear();
        while net.reach(1) {}
        net.poll_all();
        while net.deliver(1, 2) {}
        net.poll_all();
        assert_eq!(net.node(1).synced, []);
        net.settle();
        assert_eq!(net.node(1).synced, [node(2)]);
        net.check_tables(1, &[2]);
        net.check_tables(2, &[1]);
    }
}
