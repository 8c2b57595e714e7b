//! Nodes that begin: they meet the members that they remember before they let clients in, and repeat nothing that others have done meanwhile.

use sedge_base::Duration;
use sedge_cluster::NodeState;
use sedge_mqtt::{QoS, ReasonCode};

use crate::common::{ClientIx, Options, World};

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

fn with_will() -> Options {
    Options { will: Some(("will".to_owned(), "gone".to_owned())), ..Options::default() }
}

/// A cluster of nodes with journals.
fn site(seed: u64, nodes: u64) -> World {
    let mut world = World::new(seed, 2);
    world.keep_journals(nodes);
    for node in 1..=nodes {
        world.start(node);
    }
    world.settle_members(nodes);
    world
}

fn cut_power(world: &mut World, nodes: u64) {
    for node in 1..=nodes {
        world.silence(node);
    }
}

fn names(nodes: u64) -> Vec<String> {
    (1..=nodes).map(|node| format!("subscriber {node}")).collect()
}

/// A session at each node with an acknowledged message for it; then the power goes.
fn site_without_power(seed: u64, nodes: u64) -> World {
    let mut world = site(seed, nodes);
    for (node, name) in (1..=nodes).zip(names(nodes)) {
        let subscriber = world.connect_with(node, &name, kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        world.hang_up(subscriber);
    }
    world.run(20);
    let publisher = world.connect(1, "publisher");
    world.publish(publisher, "t", "before", QoS::ExactlyOnce);
    cut_power(&mut world, nodes);
    world.run(10);
    world
}

/// Whether the client has found its session with all that waits for it, once.
fn is_complete(world: &World, client: ClientIx) -> bool {
    let connack = world.clients[client].connack.as_ref();
    connack.is_some_and(|connack| connack.session_present) && world.got(client) == ["before"]
}

/// FT-26, FT-28, MQ-11: after the power of a whole site was gone, a client finds its session wherever it connects first, however far apart
/// the nodes start.
#[test]
fn a_site_comes_back_with_every_session() {
    for (seed, late_by) in (0..).zip([[0, 0, 0, 0], [300, 1_200, 2_900, 40], [0, 30_000, 0, 0], [700, 0, 0, 3_000]]) {
        let mut world = site_without_power(seed, 5);
        let mut clients = Vec::new();
        for (node, late) in (1..).zip([0].into_iter().chain(late_by)) {
            world.run(late);
            world.start(node);
            // Each client goes to the next node that is up.
            let name = format!("subscriber {}", node % 5 + 1);
            clients.push(world.dial_client(node, &name, kept()));
        }
        world.run_until("all have what was for them", |world| clients.iter().all(|client| is_complete(world, *client)));
        world.run(3_000);
        for client in clients {
            assert_eq!(world.got(client), ["before"], "seed {seed}");
        }
    }
}

/// FT-28: a member that never comes back is given up.
#[test]
fn a_member_that_does_not_come_back_is_given_up() {
    let mut world = site_without_power(7, 3);
    world.start_with(1, |config| config.recovery_timeout = Duration::from_secs(4));
    world.start_with(2, |config| config.recovery_timeout = Duration::from_secs(4));
    let client = world.dial_client(1, "subscriber 1", kept());
    world.run(3_500);
    assert_eq!(world.clients[client].connack, None);
    let status = world.hosts[&2].node.status();
    assert_eq!(status.state, NodeState::Recovery);
    assert_eq!(status.awaited.iter().map(|(node, _)| node.get()).collect::<Vec<_>>(), [3]);
    world.run_until("it is given up", |world| is_complete(world, client));
    assert!(world.hosts[&2].node.is_ready() && world.hosts[&2].node.status().awaited.is_empty());
    assert_eq!(world.counter(1, "members_given_up"), 1);
}

/// FT-28: whose end the others have seen, and all of whose sessions they have, is not waited for.
#[test]
fn the_node_that_ended_last_waits_for_nobody() {
    let mut world = site(8, 3);
    let subscriber = world.connect_with(1, "subscriber", kept());
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.hang_up(subscriber);
    for node in [1, 2] {
        world.run(500);
        world.kill(node);
    }
    world.run(500);
    world.silence(3);
    world.start_with(3, |config| config.seeds.clear());
    assert!(world.hosts[&3].node.status().awaited.is_empty());
    let client = world.connect_with(3, "subscriber", kept());
    assert!(world.clients[client].connack.as_ref().unwrap().session_present);
    // A node that ended earlier waits for the one that ended later, and for nobody else.
    world.start(1);
    world.run_until("node 1 serves", |world| world.hosts[&1].node.is_ready());
    assert_eq!(world.hosts[&1].node.status().members.len(), 2);
    assert_eq!(world.counter(1, "members_given_up"), 0);
}

/// A client makes a session at node 1 and hangs up; the node dies, and the session is safe at another node.
fn taken_over(world: &mut World) {
    let client = world.connect_with(1, "client", kept());
    world.subscribe(client, "t", QoS::ExactlyOnce);
    world.hang_up(client);
    world.run(50);
    world.kill(1);
    let has_taken_over = |world: &World, node| world.counter(node, "takeovers_sessions") == 1;
    world.run_until("it is taken over", |world| world.hosts.keys().any(|node| has_taken_over(world, *node)));
    world.run(1_000);
}

/// FT-20, MQ-11: a session that another node has taken over, and that its client has ended there, does not come back with the journal of the node
/// where it was before.
#[test]
fn a_session_that_ended_elsewhere_does_not_come_back_with_a_journal() {
    for (seed, site_restarts) in [(1, false), (2, true)] {
        let mut world = site(seed, 3);
        taken_over(&mut world);
        let again = world.connect_with(3, "client", Options { clean: true, ..Options::default() });
        world.hang_up(again);
        world.run(100);
        if site_restarts {
            cut_power(&mut world, 3);
            world.start(2);
            world.start(3);
        }
        world.start(1);
        world.run_until("node 1 serves", |world| world.hosts[&1].node.is_ready());
        let back = world.connect_with(1, "client", kept());
        assert!(!world.clients[back].connack.as_ref().unwrap().session_present, "seed {seed}");
    }
}

/// FT-20, MQ-11: the owner of a session dies while a node begins whose journal holds an older state of it. The session goes on from the owner's
/// copy.
#[test]
fn a_session_goes_on_from_the_last_owners_copy_and_not_from_an_older_journal() {
    for (seed, after) in (0..).zip([0, 1, 5, 20, 60, 200, 500, 1_000]) {
        let mut world = site(seed, 4);
        taken_over(&mut world);
        let again = world.connect_with(3, "client", kept());
        world.subscribe(again, "later", QoS::ExactlyOnce);
        world.hang_up(again);
        world.run(50);
        let publisher = world.connect(2, "publisher");
        world.publish(publisher, "later", "first", QoS::ExactlyOnce);
        world.silence(3);
        world.start(1);
        world.run(after);
        world.publish(publisher, "later", "second", QoS::ExactlyOnce);
        let back = world.dial_client(4, "client", kept());
        world.run_until("it has both", |world| world.got(back).len() >= 2);
        world.run(1_000);
        assert!(world.clients[back].connack.as_ref().unwrap().session_present);
        assert_eq!(world.got(back), ["first", "second"], "seed {seed}");
    }
}

/// FT-20: the will of a client whose node dies is published once, whether the node comes back before or after another one has taken its
/// sessions over.
#[test]
fn a_will_is_published_once_when_its_node_comes_back() {
    for (seed, after) in (0..).zip([0, 1, 5, 20, 60, 400, 1_500, 4_000]) {
        let mut world = site(seed, 3);
        let witness = world.connect_with(2, "witness", kept());
        world.subscribe(witness, "will", QoS::AtLeastOnce);
        world.connect_with(1, "short", with_will());
        world.connect_with(1, "long", Options { expiry: 3_600, ..with_will() });
        world.run(50);
        world.kill(1);
        world.run(after);
        world.start(1);
        world.run(6_000);
        assert_eq!(world.got(witness), ["gone", "gone"], "back after {after} ms");
    }
}

/// FT-20: that holds, too, when the whole site starts again after another node has published the will.
#[test]
fn a_will_is_published_once_over_a_restart_of_the_site() {
    for (seed, last) in [(1, 10), (2, 1_000)] {
        let mut world = site(seed, 3);
        let witness = world.connect_with(2, "witness", kept());
        world.subscribe(witness, "will", QoS::AtLeastOnce);
        world.connect_with(1, "client", with_will());
        world.run(50);
        world.kill(1);
        world.run_until("the will is published", |world| world.got(witness) == ["gone"]);
        world.run(last);
        cut_power(&mut world, 3);
        for node in [3, 1, 2] {
            world.start(node);
        }
        let witness = world.connect_with(3, "witness", kept());
        world.run(3_000);
        assert_eq!(world.got(witness), [""; 0], "the power went {last} ms later");
    }
}

/// FT-21, MQ-06: a node stands still until others have taken its sessions over. Publishers go on elsewhere and repeat what was not
/// acknowledged; the node must not publish it, too, when it goes on.
#[test]
fn a_node_that_stood_still_publishes_nothing_that_was_repeated_elsewhere() {
    for (seed, pause) in (0..).zip([1_200, 3_000, 8_000, 20_000].repeat(4)) {
        let mut world = World::cluster(seed, 3, 2);
        let subscriber = world.connect_with(2, "subscriber", kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        let names: Vec<String> = (0..12).map(|number| format!("publisher {number}")).collect();
        let publishers: Vec<ClientIx> = names.iter().map(|name| world.connect_with(1, name, kept())).collect();
        for publisher in &publishers {
            world.publish(*publisher, "unwanted", "", QoS::ExactlyOnce);
        }
        world.run(100);
        world.freeze(1);
        for (name, publisher) in names.iter().zip(&publishers) {
            world.send_publish(*publisher, "t", name, QoS::ExactlyOnce, false);
        }
        world.run(pause);
        for publisher in publishers {
            world.hang_up(publisher);
        }
        let nodes = [2, 3, 3, 2];
        for (name, node) in names.iter().zip(nodes.iter().cycle()) {
            let again = world.connect_with(*node, name, kept());
            assert!(world.clients[again].connack.as_ref().unwrap().session_present);
            // The same PUBLISH, with the same packet identifier, as its client repeats it.
            world.publish(again, "unwanted", "", QoS::ExactlyOnce);
            world.publish(again, "t", name, QoS::ExactlyOnce);
        }
        world.thaw(1);
        world.run_until("the node serves again", |world| world.hosts[&1].node.is_ready());
        world.run(1_000);
        let mut got = world.got(subscriber);
        got.sort_unstable();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(got, names, "seed {seed}, after {pause} ms");
        assert_eq!(world.counter(1, "node_standstills"), 1);
    }
}

/// FT-21, MQ-06: a node had read QoS 2 publications when it stood still, and no backup has them. Publishers repeat them elsewhere; neither its
/// own clients nor those of others get them twice.
#[test]
fn a_node_that_stood_still_takes_back_what_it_had_read_and_no_backup_has() {
    for (seed, pause) in (0..).zip([1_200, 3_000, 8_000, 20_000].repeat(3)) {
        let mut world = World::cluster(seed, 3, 2);
        let subscribers = [1, 2].map(|node| world.connect_with(node, &format!("subscriber {node}"), kept()));
        for subscriber in subscribers {
            world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        }
        let names: Vec<String> = (0..12).map(|number| format!("publisher {number}")).collect();
        let publishers: Vec<ClientIx> = names.iter().map(|name| world.connect_with(1, name, kept())).collect();
        world.run(100);
        world.delays.mailbox = 50_000;
        for (name, publisher) in names.iter().zip(&publishers) {
            world.send_publish(*publisher, "t", name, QoS::ExactlyOnce, false);
        }
        world.run(1);
        world.freeze(1);
        world.delays.mailbox = 20;
        world.run(pause);
        for publisher in publishers {
            world.hang_up(publisher);
        }
        for (name, node) in names.iter().zip([2, 3, 3, 2].iter().cycle()) {
            let again = world.connect_with(*node, name, kept());
            assert!(world.clients[again].connack.as_ref().unwrap().session_present);
            world.publish(again, "t", name, QoS::ExactlyOnce);
        }
        world.thaw(1);
        world.run_until("the node serves again", |world| world.hosts[&1].node.is_ready());
        world.run(1_000);
        // The subscriber still knows the QoS 2 messages that it was in the middle of (MQTT 5.0 section 4.1): such a message is not delivered again.
        let back = world.dial_client(3, "subscriber 1", kept());
        let state = world.clients[subscribers[0]].carried();
        assert!(world.clients[back].carry_on(state).is_empty());
        world.run_until("CONNACK", |world| world.clients[back].connack.is_some());
        world.run(1_000);
        let mut names = names;
        names.sort_unstable();
        for clients in [&[subscribers[0], back][..], &[subscribers[1]]] {
            let mut got: Vec<&str> = clients.iter().flat_map(|client| world.got(*client)).collect();
            got.sort_unstable();
            assert_eq!(got, names, "seed {seed}, after {pause} ms, {clients:?}");
        }
    }
}

/// FT-20, FT-24, MQ-06: the others take a node for dead that stands still. When it goes on, it ends the connections of its clients: one without
/// a session would miss what was published meanwhile. Wills are published once, and sessions are found where they are.
#[test]
fn clients_of_a_node_that_was_taken_for_dead_come_back() {
    for seed in 0..8 {
        let mut world = World::cluster(seed, 3, 2);
        let witness = world.connect_with(2, "witness", kept());
        world.subscribe(witness, "will", QoS::ExactlyOnce);
        let short = world.connect_with(1, "short", with_will());
        let long = world.connect_with(1, "long", Options { expiry: 3_600, ..with_will() });
        for client in [short, long] {
            world.subscribe(client, "t", QoS::ExactlyOnce);
        }
        world.run(500);
        world.freeze(1);
        world.run_until("both wills are there", |world| world.got(witness) == ["gone", "gone"]);
        let publisher = world.connect(3, "publisher");
        world.publish(publisher, "t", "meanwhile", QoS::ExactlyOnce);
        world.run(seed * 1_000);
        world.thaw(1);
        world.run_until("the node serves again", |world| world.hosts[&1].node.is_ready());
        for client in [short, long] {
            world.run_until("the connection ends", |world| !world.clients[client].open);
        }
        for (name, had) in [("short", false), ("long", true)] {
            let options = if had { kept() } else { Options::default() };
            let back = world.dial_client(1, name, options);
            world.run_until("it is served", |world| world.clients[back].connack.is_some());
            assert_eq!(world.clients[back].connack.as_ref().unwrap().session_present, had, "seed {seed}, {name}");
            world.run(1_000);
            assert_eq!(world.got(back).len(), usize::from(had), "seed {seed}, {name}");
        }
        assert_eq!(world.got(witness), ["gone", "gone"], "seed {seed}");
    }
}

/// FT-28: a node that stood still waits for its own members only as long as they live.
#[test]
fn a_node_that_stood_still_goes_on_without_members_that_died_meanwhile() {
    let mut world = World::cluster(3, 3, 2);
    let client = world.connect_with(1, "client", kept());
    world.freeze(1);
    world.run(100);
    world.kill(2);
    world.kill(3);
    world.run(1_500);
    world.thaw(1);
    let thawed = world.now.instant;
    world.publish(client, "t", "message", QoS::AtLeastOnce);
    assert!(world.now.instant < thawed + Duration::from_secs(5));
    assert!(world.hosts[&1].node.is_ready());
}

/// FT-27: a joiner that hears a member's datagrams and cannot link it knows nothing of what is wanted there: it lets nobody in until it does, so
/// that nothing is acknowledged and lost.
#[test]
fn a_joiner_that_cannot_link_a_member_lets_nobody_in() {
    let mut world = World::new(4, 2);
    world.start(1);
    world.run(1_100);
    let subscriber = world.connect_with(1, "subscriber", kept());
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.block(1, 2);
    world.start(2);
    let publisher = world.dial_client(2, "publisher", kept());
    world.run_until("they know each other", |world| world.hosts[&2].node.status().members.len() == 2);
    world.run(8_000);
    assert_eq!(world.clients[publisher].connack, None);
    assert_eq!(world.hosts[&2].node.status().awaited.iter().map(|(node, _)| node.get()).collect::<Vec<_>>(), [1]);
    world.heal();
    world.run_until("the client is let in", |world| world.clients[publisher].connack.is_some());
    let messages: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for message in &messages {
        world.publish(publisher, "t", message, QoS::AtLeastOnce);
    }
    assert!(world.clients[publisher].acked.iter().all(|reason| *reason == ReasonCode::Success));
    world.run(100);
    assert_eq!(world.got(subscriber), messages);
}

/// FT-28, MQ-13: one node lets clients in a moment before another one, which has a publication to send. The publisher goes on at the first one.
#[test]
fn what_was_on_its_way_when_the_power_went_comes_before_what_its_publisher_sends_elsewhere() {
    for seed in (0..8).chain([22, 367]) {
        let mut world = site(seed, 4);
        let subscriber = world.connect_with(2, "subscriber", kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        let publisher = world.connect_with(1, &format!("publisher-{seed}"), kept());
        world.run(1_000);
        world.delays.mailbox = 20_000;
        world.send_publish(publisher, "t", "first", QoS::ExactlyOnce, false);
        world.run_until("it is written", |world| world.has_written(1, b"first"));
        cut_power(&mut world, 4);
        world.delays.mailbox = 10;
        world.delays.network = 1 + seed * 50;
        (1..=3).for_each(|node| world.start(node));
        world.run(seed % 40);
        let before = world.clients[publisher].carried();
        let subscriber = world.dial_client(2, "subscriber", kept());
        let publisher = world.dial_client(2, &format!("publisher-{seed}"), kept());
        world.run(200);
        world.start(4);
        world.run_until("it is served", |world| world.clients[publisher].connack.is_some());
        for bytes in world.clients[publisher].carry_on(before) {
            world.client_sends(publisher, bytes);
        }
        world.send_publish(publisher, "t", "second", QoS::ExactlyOnce, false);
        world.run_until("all has come", |world| world.got(subscriber).len() == 2);
        assert_eq!(world.got(subscriber), ["first", "second"], "seed {seed}");
    }
}

/// MQ-06, FT-21: the power goes between the end of a QoS 2 delivery and the moment when the publisher's node hears of it. That node publishes
/// the message again from its journal; the subscriber, whose node knows from its own that it has had it, does not get it twice, also if its
/// session moves to another node at that moment.
#[test]
fn what_a_session_had_before_the_power_went_does_not_come_again() {
    for seed in 0..24 {
        let (publishes_at, returns_to) = [(1, 2), (1, 1), (2, 2), (2, 1)][usize::try_from(seed % 4).unwrap()];
        let mut world = World::new(seed, 2);
        world.delays.network = 5_000;
        world.keep_journals(2);
        for node in [1, 2] {
            world.start(node);
        }
        world.settle_members(2);
        let subscriber = world.connect_with(2, "subscriber", kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        let witness = world.connect_with(3 - publishes_at, "witness", kept());
        world.subscribe(witness, "t", QoS::ExactlyOnce);
        let publisher = world.connect_with(publishes_at, "publisher", kept());
        world.run(1_000);
        world.send_publish(publisher, "t", "once", QoS::ExactlyOnce, false);
        world
            .run_until("it has come", |world| world.got(subscriber) == ["once"] && world.clients[subscriber].is_idle());
        cut_power(&mut world, 2);
        for node in [2, 1] {
            world.start(node);
        }
        let subscriber = world.dial_client(returns_to, "subscriber", kept());
        world.run_until("it is served", |world| world.clients[subscriber].connack.is_some());
        assert!(world.clients[subscriber].connack.as_ref().unwrap().session_present);
        world.run(3_000);
        assert_eq!(world.got(subscriber), [""; 0], "seed {seed}");
    }
}

/// FT-24, MQ-05: clients claim their sessions while the node that keeps account of their owners stands still. The others take its part over; when
/// it goes on, the claims that it did not read take nobody's session away.
#[test]
fn claims_that_a_frozen_node_did_not_read_are_void() {
    for seed in 0..8 {
        let mut world = World::cluster(seed, 3, 2);
        let names: Vec<String> = (0..12).map(|number| format!("client {number}")).collect();
        for name in &names {
            let client = world.connect_with(2, name, kept());
            world.subscribe(client, "t", QoS::AtLeastOnce);
        }
        world.run(500);
        world.freeze(1);
        let moved: Vec<ClientIx> = names.iter().map(|name| world.dial_client(3, name, kept())).collect();
        world.run_until("all are served", |world| moved.iter().all(|client| world.clients[*client].connack.is_some()));
        let back: Vec<ClientIx> = names.iter().map(|name| world.connect_with(2, name, kept())).collect();
        world.run(500);
        for client in back {
            world.hang_up(client);
        }
        let publisher = world.connect(3, "publisher");
        world.publish(publisher, "t", "message", QoS::AtLeastOnce);
        world.thaw(1);
        for name in &names {
            let client = world.dial_client(2, name, kept());
            world.run_until("it is served", |world| world.clients[client].connack.is_some());
            assert!(world.clients[client].connack.as_ref().unwrap().session_present, "seed {seed}, {name}");
            world.run_until("it has its message", |world| world.got(client) == ["message"]);
        }
    }
}

/// FT-26, FT-28: the power goes while a QoS 2 publication is on its way from the shard that has kept it. Links between the nodes stand sooner than
/// the shards have told what their journals held; the publication reaches the session of the other node all the same.
#[test]
fn a_node_does_not_publish_past_sessions_that_a_member_has_yet_to_restore() {
    for seed in 0..24 {
        let mut world = site(seed, 2);
        let subscriber = world.connect_with(1, "subscriber", kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        world.hang_up(subscriber);
        let publisher = world.connect_with(2, "publisher", kept());
        world.run(1_000);
        (world.delays.mailbox, world.delays.network) = (20_000, 10);
        world.send_publish(publisher, "t", "once", QoS::ExactlyOnce, false);
        world.run_until("it is written", |world| world.has_written(2, b"once"));
        cut_power(&mut world, 2);
        for node in [1, 2] {
            world.start(node);
        }
        let subscriber = world.dial_client(1, "subscriber", kept());
        world.run_until("it has come", |world| world.got(subscriber) == ["once"]);
    }
}

/// FT-24, MQ-05: a client moves while the node that keeps the copy of its session stands still and is suspected only. Its former owner gives the
/// session away when the copy is out of the way; the client does not get a new session meanwhile, however short the time for an answer is.
#[test]
fn a_client_waits_for_its_session_while_a_backup_is_suspected() {
    for seed in 0..8 {
        let mut world = World::new(seed, 2);
        for node in 1..=3 {
            world.start_with(node, |config| config.claim_timeout = Duration::from_millis(300));
        }
        world.settle_members(3);
        let names: Vec<String> = (0..8).map(|number| format!("client {number}")).collect();
        for name in &names {
            let client = world.connect_with(1, name, kept());
            world.subscribe(client, "t", QoS::AtLeastOnce);
        }
        world.run(500);
        world.freeze(3);
        world.run(500);
        let moved: Vec<ClientIx> = names.iter().map(|name| world.dial_client(2, name, kept())).collect();
        world.run_until("all are served", |world| moved.iter().all(|client| world.clients[*client].connack.is_some()));
        for client in moved {
            assert!(world.clients[client].connack.as_ref().unwrap().session_present, "seed {seed}");
        }
    }
}
