//! Contents of site files, and the errors for mistakes in them.

mod common;

use common::{errors, site};
use sedge_scale::site::waves;
use sedge_scale::{Present, Verb, plan, removal};

/// EL-07: errors name line and field.
#[test]
fn mistakes_name_line_field_and_remedy() {
    let cases: [(&[&str], &str); 17] = [
        (&["driver = openstack"], "line 1: driver: \"openstack\" is none of process, docker"),
        (&["resources.brokers.min = 5"], "resources.brokers.min: 5 is more than max, which is 3"),
        (
            &["resources.brokers.max = many"],
            "line 5: resources.brokers.max: is \"many\"; write a whole number from 1 to 64",
        ),
        (
            &["resources.lb.backend = ${brokerz}"],
            "line 7: resources.lb.backend: there is no sound resource \"brokerz\"; did you mean ${brokers}?",
        ),
        (
            &["resources.lb.backend = brokers"],
            "resources.lb.backend: is \"brokers\"; write a reference such as \"${brokers}\"",
        ),
        (&["resources.lb.algorithm = leastcon"], "did you mean \"leastconn\"?"),
        (
            &["resources.lb.backend = ${high}"],
            "line 7: resources.lb.backend: \"high\" is of type alarm; refer to one of type group",
        ),
        (&["resources.high.metric = cpu"], "resources.high.metric: \"cpu\" is none of cpu_util"),
        (&["resources.high.period = 60"], "resources.high.period: is 60; write a duration with its unit"),
        (&["resources.high.treshold = 5"], "resources.high.treshold: is not known here; did you mean \"threshold\"?"),
        (&["resources.out.adjust = 0"], "resources.out.adjust: is 0, which changes nothing"),
        (
            &["resources.brokers.member.type = bridge"],
            "resources.brokers.member.type: \"bridge\" is not possible; write broker",
        ),
        (
            &["resources.fip.type = floating_ip", "driver = process"],
            "resources.fip.type: the process driver cannot provide a floating_ip",
        ),
        (
            &["resources.brokers.member.statefulset = sedge"],
            "resources.brokers.member.statefulset: is for the driver kubernetes, and the driver is null",
        ),
        (
            &["driver = kubernetes", "resources.brokers.member.statefulset = a/b/c"],
            "resources.brokers.member.statefulset: \"a/b/c\" is no name; write NAME or NAMESPACE/NAME",
        ),
        (
            &["resources.out.target.metric = cpu_util"],
            "resources.out.adjust: needs exactly one of adjust, steps, target, schedule, forecast and resize",
        ),
        (&["resources.x.type = grup"], "resources.x.type: \"grup\" is no type of a resource; did you mean \"group\"?"),
    ];
    for (changes, expected) in cases {
        let found = errors(changes);
        assert!(found.iter().any(|error| error.contains(expected)), "{changes:?}: {found:#?} has no {expected}");
    }
    assert!(errors(&[]).is_empty());
    assert!(errors(&["driver = kubernetes", "resources.brokers.member.statefulset = edge/sedge"]).is_empty());
}

/// EL-08
#[test]
fn a_cycle_is_refused_with_its_way() {
    let found = errors(&[
        "resources.a.type = storage",
        "resources.a.on = ${b}",
        "resources.b.type = network",
        "resources.b.depends_on = ${a}",
    ]);
    assert!(found.iter().any(|error| error.contains("resources.a: needs itself: a -> b -> a")), "{found:?}");
}

/// EL-08
#[test]
fn the_order_is_topological() {
    let site = site(&["resources.img.type = image", "resources.brokers.member.image = ${img}"]);
    let order: Vec<String> = waves(&site).into_iter().flatten().collect();
    assert_eq!(order.len(), site.resources.len());
    for (name, resource) in &site.resources {
        let place = |name: &str| order.iter().position(|other| other == name).unwrap();
        assert!(
            resource.needs.iter().all(|need| place(need) < place(name)),
            "{name} comes before what it needs: {order:?}"
        );
    }
}

/// EL-08, EL-09: applied twice, a plan leaves nothing to do; in a removal, resources that depend on others go first.
#[test]
fn a_plan_is_the_difference_and_removal_goes_backwards() {
    let site = site(&["resources.brokers.min = 2"]);
    let steps = plan(&site, &Present::default());
    let made: Vec<&str> =
        steps.iter().filter(|step| step.verb == Verb::Create).map(|step| step.name.as_str()).collect();
    assert_eq!(made.first(), Some(&"brokers-1"));
    let wave = |name: &str| steps.iter().find(|step| step.name == name).unwrap().wave;
    assert!(wave("brokers-2") < wave("lb"));

    let nodes = [("brokers-1", "brokers"), ("brokers-2", "brokers"), ("old-1", "old")];
    let nodes = nodes.map(|(node, group)| (node.to_owned(), group.to_owned())).into();
    let present = Present { nodes, resources: vec!["lb".to_owned()] };
    let again = plan(&site, &present);
    let changed = again
        .iter()
        .filter(|step| step.verb != Verb::Keep && !step.what.contains("alarm") && !step.what.contains("policy"));
    assert_eq!(changed.map(|step| (step.verb, step.name.as_str())).collect::<Vec<_>>(), [(Verb::Remove, "old-1")]);
    let gone: Vec<String> = removal(&site, &present).into_iter().map(|step| step.name).collect();
    assert_eq!(gone, ["lb", "brokers-1", "brokers-2", "old-1"]);
}

/// EL-20: a policy of sizes needs nodes whose size is limited, sound bounds, and a driver that can change a node that runs.
#[test]
fn a_policy_of_sizes_is_checked() {
    let cpu = "resources.brokers.member.cpu = 1";
    let resize = |cpu: &'static str| [cpu, "resources.out.resize.min = 1", "resources.out.resize.max = 2"];
    let sound = resize("resources.out.resize.cpu = 0.5");
    let with = |more: &[&'static str]| errors(&[&sound[..], more].concat());
    assert_eq!(with(&[cpu]), Vec::<String>::new());
    let cases = [
        (with(&[]), "resources.out.resize: changes the processors of brokers, whose member has no cpu"),
        (with(&[cpu, "driver = swarm"]), "resources.out.resize: is not possible: the driver swarm cannot change"),
        (with(&[cpu, "resources.out.resize.min = 3"]), "resources.out.resize.min: 3 is more than max, which is 2"),
        (errors(&[&[cpu], &resize("resources.out.resize.cpu = 0")[..]].concat()), "resize.cpu: is no change of 0.001"),
        (errors(&[cpu, "resources.out.resize.cpu = 1"]), "resources.out.resize.min: is missing"),
    ];
    for (found, expected) in cases {
        assert!(found.iter().any(|error| error.contains(expected)), "{found:#?} has no {expected}");
    }
}
