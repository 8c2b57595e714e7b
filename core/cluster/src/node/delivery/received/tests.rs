use std::sync::Arc;

use sedge_base::{Incarnation, Timestamp};
use sedge_mqtt::Stamp;

use super::*;

fn now(millis: u64) -> Now {
    Now { instant: Instant::from_millis(millis), wall: Timestamp::from_millis(millis) }
}

fn id(node: u64, seq: u64) -> MessageId {
    MessageId { node: NodeId::new(node), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
}

/// FT-21
#[test]
fn a_session_takes_along_what_it_had_at_all_its_nodes() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let at = Instant::from_millis;
    let (former, never) = (NodeId::new(9), |_: &ShardLife| false);
    had.arrives(at(0), former, client.clone(), (&[id(1, 5), id(2, 9)], &[], Vec::new()));
    had.here.note(at(1), &id(2, 4));
    had.here.note(at(1), &id(3, 7));
    assert_eq!(had.who(&id(1, 5), false), core::slice::from_ref(&client));
    assert!(had.who(&id(1, 6), false).is_empty() && had.who(&id(3, 7), false).is_empty());
    assert_eq!(had.leaves(at(2), &client, never, false).marks, [id(1, 5), id(2, 9), id(3, 7)]);
    assert_eq!(had.who(&id(1, 5), false), core::slice::from_ref(&client), "publications are caught for it still");
    had.unpart(at(2) + WINDOW, &ClientId::new("another"));
    assert!(had.who(&id(1, 5), false).is_empty(), "its new owner has it");
    had.arrives(at(3), former, client.clone(), (&[id(1, 5)], &[], Vec::new()));
    had.leaves(at(3), &client, |_| true, true);
    assert_eq!(had.who(&id(1, 5), false), core::slice::from_ref(&client), "an older one leaves while it comes");
    assert_eq!(
        had.leaves(at(3) + WINDOW, &client, never, false).marks,
        [id(2, 4), id(3, 7)],
        "only what came here is known still"
    );
    assert!(had.leaves(at(3) + APART, &client, never, false).marks.is_empty());
}

/// MQ-06: a publication of its own clients that nobody elsewhere wants is not heard of by the node.
#[test]
fn a_session_takes_along_that_it_had_what_only_clients_of_its_node_wanted() {
    let (mut had, client, at) = (Had::default(), ClientId::new("c"), Instant::from_millis(0));
    let own = (NodeId::new(1), Incarnation::new(1), ShardId(0));
    had.note_made(at, own, 0);
    assert!(had.leaves(at, &client, |_| true, false).marks.is_empty(), "nothing was made");
    had.note(at, &message(id(1, 4)), false);
    had.note_made(at, own, 7);
    had.note_made(at, own, 6);
    assert_eq!(had.leaves(at, &client, |_| true, false).marks, [id(1, 7)]);
}

/// MQ-11: publications that the former owner had heard of when the session had left its shard, and caught for it.
#[test]
fn what_a_session_was_served_without_is_new_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, at) = (NodeId::new(9), Instant::from_millis(0));
    had.arrives(at, former, client.clone(), (&[id(2, 7)], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::empty());
    had.note(at, &message(id(2, 6)), true);
    had.is_caught(&client);
    had.note(at, &message(id(2, 7)), true);
    let has = |had: &Had, id| had.has(&client, &message(id), false, true);
    assert!(has(&had, id(2, 6)));
    let caught = [id(2, 6), id(2, 7)];
    had.owes(&client, NodeId::new(8), caught.iter());
    assert!(has(&had, id(2, 6)), "it comes from elsewhere");
    had.owes(&client, former, caught.iter());
    assert!(!has(&had, id(2, 6)));
    assert!(has(&had, id(2, 7)), "this was caught here, too");
    had.gets(&client, id(2, 6));
    assert!(has(&had, id(2, 6)));
}

/// MQ-11: a client of this node has published, and the publication waits for copies when its shard begins to catch for the session.
#[test]
fn what_a_shard_had_made_before_it_caught_for_a_session_is_new_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, own) = (NodeId::new(9), (NodeId::new(1), Incarnation::new(1), ShardId(0)));
    had.arrives(Instant::from_millis(0), former, client.clone(), (&[], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::empty());
    had.is_caught(&client);
    had.is_caught_behind(&client, own, 7);
    had.owes(&client, former, [id(1, 7), id(1, 8)].iter());
    let has = |seq| had.has(&client, &message(id(1, seq)), true, false);
    assert!(!has(7) && has(8));
}

/// FT-31: an older state of the session, from a copy at another node, says nothing of what the client has withdrawn since.
#[test]
fn a_copy_of_a_session_from_before_it_came_is_older() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, successor) = (NodeId::new(9), NodeId::new(8));
    had.arrives(Instant::from_millis(0), former, client.clone(), (&[], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::empty());
    had.goes_on_beside(&client, NodeId::new(7), successor);
    assert!(!had.is_older(&client, successor), "it did not come from there");
    had.goes_on_beside(&client, former, successor);
    assert!(had.is_older(&client, successor) && !had.is_older(&client, former));
}

/// MQ-11, FT-31: the former owner goes on with the session, since it does not see the new one any more, and gives all of it up later.
#[test]
fn what_the_former_owner_has_added_to_a_session_is_new_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, at) = (NodeId::new(9), Instant::from_millis(0));
    had.arrives(at, former, client.clone(), (&[id(2, 4)], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::once(id(2, 5)));
    had.note(at, &message(id(2, 6)), true);
    had.is_caught(&client);
    had.note(at, &message(id(2, 7)), true);
    had.owes_rest(&client, former, [4, 5, 6, 7].map(|number| id(2, number)).into_iter());
    let has = |number| had.has(&client, &message(id(2, number)), false, true);
    assert!(has(4) && has(5), "it has come with these");
    assert!(!has(6), "this came here when nobody caught it for the session");
    assert!(has(7));
}

/// FT-31
#[test]
fn what_was_here_before_a_session_is_new_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, other, at) = (NodeId::new(9), NodeId::new(8), Instant::from_millis(0));
    had.note(at, &message(id(2, 7)), true);
    had.note(at, &message(id(3, 7)), true);
    had.arrives(at, former, client.clone(), (&[id(2, 4)], &[], Vec::new()));
    had.arrives(at, other, client.clone(), (&[id(2, 1)], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::once(id(2, 6)));
    let has = |had: &Had, id| had.has(&client, &message(id), false, true);
    assert!(has(&had, id(2, 4)) && !has(&had, id(2, 5)) && !has(&had, id(2, 7)));
    assert!(has(&had, id(2, 6)), "it has brought this along");
    assert!(!has(&had, id(3, 7)), "the former owner has not heard of that shard");
    assert!(had.has(&client, &message(id(2, 3)), false, false), "it has had this where it was");
    had.gets(&client, id(2, 5));
    assert!(has(&had, id(2, 5)));
    let stays = |_: &ShardLife| true;
    let moved = &had.sessions[&client];
    assert_eq!(moved.until, at + APART);
    had.note(at, &message(id(2, 8)), true);
    assert!(has(&had, id(2, 8)), "it was there when this came");
    let Parting { marks, gaps, fills } = had.leaves(at, &client, stays, false);
    assert_eq!(marks, [id(2, 8), id(3, 7)]);
    assert_eq!(gaps, [(id(2, 4), 7), (id(3, 0), 7)]);
    assert_eq!(fills, [id(2, 5), id(2, 6)]);
    let mut next = Had::default();
    next.note(at, &message(id(2, 9)), true);
    next.arrives(at, former, client.clone(), (&marks, &gaps, fills));
    assert!(next.who(&id(2, 7), false).is_empty(), "it is new to the session still");
    assert_eq!(next.who(&id(2, 6), false), core::slice::from_ref(&client));
    next.goes_on_here(now(0), former, &client, core::iter::empty());
    assert!(next.who(&id(2, 7), false).is_empty(), "also when it goes on here");
    let has = |id| next.has(&client, &message(id), false, true);
    assert!(has(id(2, 4)) && has(id(2, 5)) && has(id(2, 6)) && !has(id(2, 7)) && has(id(2, 8)) && !has(id(2, 9)));
    assert!(!has(id(3, 7)) && has(id(3, 8)));
}

fn message(id: MessageId) -> Arc<Message> {
    crate::testing::message(id, QoS::ExactlyOnce)
}

/// FT-31
#[test]
fn what_was_here_before_a_session_began_is_new_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let has = |had: &Had, number| had.has(&client, &message(id(2, number)), false, true);
    had.note(Instant::from_millis(5), &message(id(2, 7)), true);
    assert!(has(&had, 7), "of a session of which nothing is known");
    had.begins(now(5), &client);
    had.note(Instant::from_millis(6), &message(id(2, 8)), true);
    assert!(!has(&had, 7) && has(&had, 8));
    let own = |millis| {
        Arc::new(Message { stamp: Stamp { millis, ..message(id(1, 1)).stamp }, ..(*message(id(1, 1))).clone() })
    };
    assert!(!had.has(&client, &own(4), true, false) && had.has(&client, &own(5), true, false));
}

/// FT-22, FT-31
#[test]
fn of_what_was_here_before_a_session_was_taken_over_it_has_what_was_kept() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let at = Instant::from_millis;
    had.note(at(0), &message(id(2, 7)), true);
    let heard = BTreeMap::from([((NodeId::new(2), Incarnation::new(1), ShardId(0)), 4)]);
    had.inherits(at(0), core::iter::once(&client), heard);
    assert!(had.has(&client, &message(id(2, 4)), false, false) && !had.has(&client, &message(id(2, 5)), false, true));
    had.get_strays(core::iter::once(&client), BTreeSet::from([id(2, 6)]));
    assert!(had.has(&client, &message(id(2, 6)), false, true) && !had.has(&client, &message(id(2, 7)), false, true));
    let Parting { marks, gaps, fills } = had.leaves(at(1), &client, |_| true, false);
    assert_eq!((marks, gaps, fills), (vec![id(2, 7)], vec![(id(2, 4), 7)], vec![id(2, 6)]));
    assert!(had.has(&client, &message(id(2, 7)), false, true), "it has left, and nothing more is known");
}

/// FT-31
#[test]
fn who_was_here_while_its_node_could_send_did_not_want_what_did_not_come() {
    let (mut had, client, at) = (Had::default(), ClientId::new("c"), Instant::from_millis);
    let unwanted = |had: &Had, number| had.was_not_wanted(&client, &message(id(2, number)));
    had.note(at(0), &message(id(2, 3)), true);
    had.note(at(1_000), &message(id(2, 6)), true);
    had.note(at(1_001), &message(id(2, 9)), true);
    assert!(unwanted(&had, 7) && !unwanted(&had, 10) && !unwanted(&had, 5), "it had just come to know that node");
    had.breaks(at(2_000), NodeId::new(2));
    assert!(!unwanted(&had, 7));
    had.note(at(2_001), &message(id(2, 12)), true);
    had.note(at(3_000), &message(id(2, 15)), true);
    had.note(at(3_001), &message(id(2, 18)), true);
    assert!(unwanted(&had, 16) && !unwanted(&had, 14) && !unwanted(&had, 7), "12 may have been kept");
    had.latest += 15_000;
    assert!(!unwanted(&had, 16), "too long ago");
    had.latest -= 15_000;
    had.breaks(at(3_001), NodeId::new(2));
    let missed = |had: &Had, number| had.who_missed(at(3_002), &message(id(2, number)));
    assert_eq!((missed(&had, 16), missed(&had, 19)), (Some(BTreeSet::new()), None));
    had.begins(now(3_001), &client);
    assert!(!unwanted(&had, 16), "it is new here");
    assert_eq!(missed(&had, 16), Some(BTreeSet::from([client.clone()])));
    had.latest += 15_000;
    assert_eq!(missed(&had, 16), None, "nobody knows who has come since");
}

/// FT-22
#[test]
fn what_its_own_node_kept_for_this_one_may_have_come_to_a_session_whose_node_is_gone() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let heard = BTreeMap::from([((NodeId::new(2), Incarnation::new(1), ShardId(0)), 4)]);
    had.inherits(Instant::from_millis(0), core::iter::once(&client), heard);
    assert_eq!(had.who(&id(2, 4), true), core::slice::from_ref(&client));
    assert!(had.who(&id(2, 5), true).is_empty() && had.who(&id(2, 4), false).is_empty());
    let other = ClientId::new("d");
    had.arrives(Instant::from_millis(0), NodeId::new(9), other.clone(), (&[id(2, 9)], &[], Vec::new()));
    assert!(had.who(&id(2, 5), true).is_empty(), "another owner lives, and has what was kept itself");
    assert_eq!(had.who(&id(2, 5), false), [other]);
}

/// FT-31
#[test]
fn what_a_node_has_gone_beyond_is_past() {
    let (mut had, at) = (Had::default(), Instant::from_millis(0));
    had.note(at, &message(id(2, 8)), false);
    assert!(!had.is_past(&message(id(2, 7))), "only passed on so far");
    had.note(at, &message(id(2, 5)), true);
    assert!(had.is_past(&message(id(2, 4))));
    assert!(!had.is_past(&message(id(2, 6))), "it died before it had sent this");
    assert!(!had.is_past(&message(id(1, 4))), "of another node");
}

/// MQ-06: the former owner had caught the publication, and the session was served with it. Its own node dies, and another one passes it on.
#[test]
fn what_was_caught_for_a_session_where_it_was_is_not_passed_on_to_it() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let former = NodeId::new(9);
    had.arrives(Instant::from_millis(0), former, client.clone(), (&[id(2, 4)], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::empty());
    had.gets_caught(&client, core::iter::once(id(2, 5)));
    assert_eq!(had.who(&id(2, 5), false), core::slice::from_ref(&client));
    assert!(had.who(&id(2, 6), false).is_empty());
    assert!(!had.is_held_back_for(NodeId::new(8), &client, &id(2, 5)), "another owner owes it nothing");
    let gaps = had.leaves(Instant::from_millis(1), &client, |_| true, false).gaps;
    assert!(gaps.is_empty(), "nothing is to come from other owners: {gaps:?}");
}

/// FT-28: another owner says that its session has had a publication, so that the one here does not get it. It leaves before the other one comes.
#[test]
fn what_is_to_come_with_the_session_of_another_owner_is_missing_until_then() {
    let (other, client, at) = (NodeId::new(8), ClientId::new("c"), Instant::from_millis(0));
    for comes in [false, true] {
        let mut had = Had::default();
        had.arrives(at, other, client.clone(), (&[id(2, 7)], &[], Vec::new()));
        assert_eq!(had.who(&id(2, 7), false), core::slice::from_ref(&client));
        had.note(at, &message(id(2, 7)), false);
        if comes {
            had.gets(&client, id(2, 7));
        }
        let Parting { marks, gaps, fills } = had.leaves(at, &client, |_| true, false);
        let mut next = Had::default();
        next.arrives(at, NodeId::new(1), client.clone(), (&marks, &gaps, fills));
        next.goes_on_here(now(0), NodeId::new(1), &client, core::iter::empty());
        assert_eq!(next.has(&client, &message(id(2, 7)), false, false), comes);
    }
}

/// MQ-06, IL-14: another owner says of its session, before that comes, that it has a publication which is on its way over other nodes. The session here
/// has it when the other one is merged into it, and not before.
#[test]
fn what_another_owner_takes_along_is_had_when_its_session_has_come() {
    let (mut had, client) = (Had::default(), ClientId::new("c"));
    let (former, other) = (NodeId::new(9), NodeId::new(2));
    had.arrives(Instant::from_millis(0), former, client.clone(), (&[], &[], Vec::new()));
    had.goes_on_here(now(0), former, &client, core::iter::empty());
    had.arrives(Instant::from_millis(1), other, client.clone(), (&[id(2, 7)], &[], vec![id(2, 7), id(2, 8)]));
    for seq in [7, 8] {
        assert_eq!(had.who(&id(2, seq), true), core::slice::from_ref(&client), "it is to come with the session");
        assert!(had.is_held_back_for(other, &client, &id(2, seq)));
        had.gets(&client, id(2, seq));
        assert!(!had.is_held_back_for(other, &client, &id(2, seq)), "it has come");
    }
    assert_eq!(had.who(&id(2, 8), true), core::slice::from_ref(&client), "it may come once more");
}

/// MQ-06: a node that was taken for dead comes back after 20 s, and gives back the session that others have taken over and given on.
#[test]
fn what_a_session_came_with_is_known_as_long_as_its_former_node_may_come_back() {
    let (former, client, later) = (NodeId::new(9), ClientId::new("c"), Instant::from_millis(20_000));
    let mut moved = Had::default();
    moved.arrives(Instant::from_millis(0), former, client.clone(), (&[id(2, 5)], &[], Vec::new()));
    moved.goes_on_here(now(0), former, &client, core::iter::empty());
    let mut inherited = Had::default();
    inherited.inherits(
        Instant::from_millis(0),
        [&client].into_iter(),
        Heard::from([((NodeId::new(2), id(2, 5).incarnation, ShardId(0)), 5)]),
    );
    for mut had in [moved, inherited] {
        had.arrives(later, former, ClientId::new("another"), (&[], &[], Vec::new()));
        assert!(had.has(&client, &message(id(2, 5)), false, false));
    }
}
