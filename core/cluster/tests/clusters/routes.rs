//! Tables of subscriptions.

use sedge_cluster::RouteStatus;
use sedge_mqtt::QoS;

use crate::common::World;

fn routes(world: &World, node: u64) -> Vec<String> {
    let routes = world.hosts[&node].node.routes(0, 1_000);
    let line = |route: RouteStatus| {
        format!("{} {} {}", route.node.get(), route.client.map_or_else(String::new, |c| c.to_string()), route.filter)
    };
    routes.into_iter().map(line).collect()
}

fn local_routes(world: &World, node: u64) -> Vec<String> {
    let routes = world.hosts[&node].node.local_routes(0, 1_000);
    let line = |route: RouteStatus| route.client.map(|client| format!("{client} {}", route.filter));
    routes.into_iter().filter_map(line).collect()
}

/// FT-09, FT-10
#[test]
fn every_node_lists_what_clients_want() {
    let mut world = World::cluster(1, 4, 2);
    let client = world.connect(1, "c");
    world.subscribe(client, "a/b", QoS::AtMostOnce);
    world.subscribe(client, "$share/g/x", QoS::AtMostOnce);
    assert_eq!(local_routes(&world, 1), ["c $share/g/x", "c a/b"]);
    for node in (2..=4).filter(|_| world.has_tables_everywhere()) {
        assert_eq!(routes(&world, node), ["1 c $share/g/x", "1 c a/b"]);
        assert!(local_routes(&world, node).is_empty());
    }
    world.hang_up(client);
    world.run(50);
    assert!(local_routes(&world, 1).is_empty());
    if world.has_tables_everywhere() {
        assert!((1..=4).all(|node| routes(&world, node).is_empty()));
    }
    assert_eq!(world.hosts[&1].node.status().sessions, 0);
}

/// FT-13, MQ-02
#[test]
fn a_route_stays_until_the_last_client_gives_it_up() {
    let mut world = World::cluster(2, 2, 2);
    let clients: Vec<_> = ["a", "b", "c"].map(|id| world.connect(1, id)).into();
    for client in &clients {
        world.subscribe(*client, "t", QoS::AtMostOnce);
        world.subscribe(*client, "t", QoS::AtMostOnce);
    }
    let publisher = world.connect(2, "pub");
    for (at, client) in clients.iter().enumerate() {
        let before = world.counter(2, "links_publications_sent");
        world.publish(publisher, "t", &at.to_string(), QoS::AtLeastOnce);
        assert_eq!(world.counter(2, "links_publications_sent"), before + 1);
        world.unsubscribe(*client, "t");
    }
    world.publish(publisher, "t", "for nobody", QoS::AtLeastOnce);
    if world.overlay != "flood" {
        assert_eq!(world.counter(2, "links_publications_sent"), 3);
    }
    assert_eq!(world.got(clients[0]), ["0"]);
    assert_eq!(world.got(clients[2]), ["0", "1", "2"]);
}

/// FT-14
#[test]
fn nothing_travels_where_nobody_wants_it() {
    let mut world = World::cluster(3, 3, 2);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "wanted/#", QoS::AtMostOnce);
    if world.overlay == "flood" {
        return;
    }
    let publisher = world.connect(1, "pub");
    if !world.has_tables_everywhere() {
        // A topic that is new may be wanted anywhere.
        for topic in ["other", "wanted/x"] {
            world.publish(publisher, topic, "first", QoS::AtLeastOnce);
        }
        world.run(500);
    }
    let [sent, passed_on] = ["links_publications_sent", "relay_passed_on"];
    let before = (world.counter(1, sent), world.counter(3, passed_on));
    for number in 0..100 {
        world.publish(publisher, "other", &number.to_string(), QoS::AtLeastOnce);
    }
    assert_eq!(world.counter(1, sent), before.0);
    world.publish(publisher, "wanted/x", "1", QoS::AtLeastOnce);
    assert_eq!(world.counter(1, sent), before.0 + 1);
    if world.overlay != "tree" {
        assert_eq!(world.counter(3, passed_on), before.1, "who wants nothing passes nothing on");
    }
}
