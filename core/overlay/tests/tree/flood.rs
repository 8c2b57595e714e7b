//! Flooding.

use crate::net::{Net, add, filter, flood, id, remove};
use sedge_base::Duration;
use sedge_overlay::{Advertised, Input, Output, RouteEntry, Token};

/// TR-11: a publication crosses each link of the tree once, whether anybody wants it or not.
#[test]
fn every_node_gets_every_publication_once_over_the_tree() {
    let mut net = Net::line(flood);
    net.check_tree();
    assert_eq!(net.parents(2), [(1, None), (2, Some(1)), (3, Some(2))].into());
    let (destinations, hops) = net.send(1, "a");
    assert_eq!(destinations, [2, 3]);
    assert_eq!(hops, [(1, 2), (2, 3)].into());
    let (destinations, hops) = net.send(2, "a");
    assert_eq!(destinations, [1, 3]);
    assert_eq!(hops, [(2, 1), (2, 3)].into());
}

#[test]
fn all_publications_are_asked_for_at_the_first_poll() {
    let mut net = Net::new(flood, 1);
    assert_eq!(net.node(1).overlay.name(), "flood");
    assert!(net.node(1).overlay.relays());
    let first = net.node(1).overlay.poll_output();
    assert_eq!(first, Some(Output::Table(Advertised::Remote { filter: filter("#"), wanted: true })));
    assert_eq!(net.node(1).overlay.poll_output(), None);
}

/// DESIGN section 1, "SUBACK means the cluster knows": publications come anyway.
#[test]
fn a_plain_subscription_is_settled_when_the_own_shards_are_ready_and_tells_nobody() {
    let mut net = Net::linked(flood, 3);
    let sent = net.sent;
    net.local(1, &[add("c", "a/+")], Some(7));
    net.poll(1);
    assert_eq!(net.node(1).settled, []);
    assert!(net.reach(1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(7)]);
    assert_eq!(net.sent, sent);
}

#[test]
fn a_question_without_changes_is_answered_by_all_shards_of_all_nodes() {
    let mut net = Net::linked(flood, 2);
    net.local(1, &[], Some(7));
    net.poll(1);
    assert!(net.deliver(1, 2) && net.reach(1));
    net.poll_all();
    assert!(!net.deliver(2, 1), "the shards of node 2 have not answered");
    assert_eq!(net.node(1).settled, []);
    assert!(net.reach(2));
    net.poll_all();
    assert!(net.deliver(2, 1));
    net.poll(1);
    assert_eq!(net.node(1).settled, [Token(7)]);
}

#[test]
fn members_of_shared_subscriptions_are_known_everywhere_before_they_settle() {
    let mut net = Net::linked(flood, 3);
    net.local(1, &[add("c", "$share/g/a"), add("c", "b")], Some(1));
    net.poll(1);
    net.reach(1);
    net.poll(1);
    assert_eq!(net.node(1).settled, []);
    net.settle();
    assert_eq!(net.node(1).settled, [Token(1)]);
    net.check_groups();
    assert_eq!(net.node(3).shards.groups[&(id(1), filter("$share/g/a"))], (1, 0));
    net.local(1, &[remove("c", "$share/g/a")], None);
    net.settle();
    net.check_groups();
}

/// No wildcard matches a topic that begins with `$`: such publications go where they are wanted.
#[test]
fn topics_that_no_wildcard_matches_go_only_where_they_are_wanted() {
    let mut net = Net::linked(flood, 3);
    net.local(2, &[add("c", "#"), add("c", "+/x")], None);
    net.local(3, &[add("c", "$own/#")], Some(1));
    net.settle();
    assert_eq!(net.publish(1, "$own/x"), [3]);
    assert!(net.node(1).shards.remote.contains(&filter("$own/#")), "the shards hand it over");
    assert_eq!(net.publish(1, "own/x"), [2, 3]);
    assert_eq!(net.publish(3, "$own/x"), []);
}

#[test]
fn the_routing_table_says_that_everybody_gets_everything() {
    let mut net = Net::linked(flood, 3);
    net.local(3, &[add("c", "$share/g/a"), add("c", "a")], None);
    net.settle();
    let line = |node: u64, client: Option<&str>, text: &str| RouteEntry {
        node: id(node),
        client: client.map(Into::into),
        filter: filter(text),
    };
    let lines = [line(2, None, "#"), line(3, None, "#"), line(3, Some("c"), "$share/g/a")];
    let overlay = &net.node(1).overlay;
    assert_eq!(overlay.routes(0, 10), lines);
    assert_eq!(overlay.routes(1, 1), lines[1..2]);
    assert_eq!(overlay.route_count(), 3);
}

#[test]
fn who_is_gone_gets_nothing_and_whose_link_is_down_does() {
    let mut net = Net::linked(flood, 4);
    net.cut(1, 2, false);
    assert_eq!(net.publish(1, "a"), [2, 3, 4]);
    let mut everyone = vec![];
    net.node(1).overlay.everyone(&mut everyone);
    assert_eq!(everyone, [id(3), id(4)]);
    assert!(!net.node(1).overlay.is_linked(id(2)) && net.node(1).overlay.is_linked(id(3)));
    net.feed(1, Input::NeighbourDown { node: id(2), gone: true });
    assert_eq!(net.publish(1, "a"), [3, 4]);
    net.feed(1, Input::MemberDown { node: id(3) });
    assert_eq!(net.publish(1, "a"), [4]);
    let three = net.neighbour(3);
    net.feed(1, Input::MemberUp(three));
    assert_eq!(net.publish(1, "a"), [3, 4]);
}

/// FT-26
#[test]
fn neighbours_are_in_step_when_both_have_everything() {
    let net = Net::linked(flood, 3);
    for (node, state) in &net.nodes {
        let others: Vec<_> = (1..=3).filter(|other| other != node).map(id).collect();
        let mut synced = state.synced.clone();
        synced.sort_unstable();
        assert_eq!(synced, others);
    }
}

#[test]
fn nonsense_closes_the_link_and_nothing_else() {
    for nonsense in [&b""[..], b"\x00", b"\x00\x02\x01", b"\x01", b"\x01\x01\0\0", b"\x02\x01\x06", b"\x09"] {
        let mut net = Net::linked(flood, 3);
        net.feed(1, Input::Signal { from: id(2), bytes: nonsense.into() });
        net.poll(1);
        assert_eq!(net.node(1).protocol_errors.len(), 1, "{nonsense:?}");
        assert!(!net.node(1).overlay.is_linked(id(2)));
        assert_eq!(net.publish(1, "a"), [2, 3]);
        net.node(1).protocol_errors.clear();
        net.cut(1, 2, false);
        net.link(1, 2);
        net.settle();
        net.check_tree();
        net.check_groups();
    }
}

#[test]
fn links_are_wanted_to_all_members() {
    let mut net = Net::new(flood, 1);
    for node in [1, 2, 3] {
        let member = net.neighbour(node);
        net.feed(1, Input::MemberUp(member));
    }
    net.feed(1, Input::MemberDown { node: id(3) });
    net.poll(1);
    assert_eq!(net.node(1).wanted_links.iter().copied().collect::<Vec<_>>(), [id(2)]);
}

#[test]
fn nothing_is_said_while_nothing_happens_but_the_refresh() {
    let mut net = Net::linked(flood, 3);
    let sent = net.sent;
    net.pass(Duration::from_mins(10));
    // Two directions of three links, sixty times, a claim and a digest.
    assert!(net.sent - sent <= 2 * 3 * 61 * 2, "{}", net.sent - sent);
    assert_eq!(net.counter(1, "renewals") + net.counter(1, "repairs") + net.counter(1, "expired"), 0);
    net.check_tree();
}
