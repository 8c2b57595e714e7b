//! Plans: the steps that make the world as the site describes it, and the steps that remove everything (EL-08, EL-09).

use std::collections::BTreeMap;

use crate::group::free_name;
use crate::site::{Kind, Site, waves};

/// Nodes and resources that exist already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Nodes by name, each with the name of its group.
    pub nodes: BTreeMap<String, String>,
    /// Resources that are no groups.
    pub resources: Vec<String>,
}

/// Effect of a step on a node or resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Makes the node or resource.
    Create,
    /// Leaves the node or resource as it is.
    Keep,
    /// Removes the node or resource.
    Remove,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Steps of one wave do not depend on each other; earlier waves come first.
    pub wave: usize,
    /// Effect of the step.
    pub verb: Verb,
    /// Name of the node or resource.
    pub name: String,
    /// Description of the node or resource, such as `node of brokers`.
    pub what: String,
}

/// The steps from `present` to the state that `site` describes, in order.
pub fn plan(site: &Site, present: &Present) -> Vec<Step> {
    let mut steps = strays(site, present);
    let first = usize::from(!steps.is_empty());
    for (wave, names) in waves(site).into_iter().enumerate() {
        for name in names {
            let Some(resource) = site.resources.get(&name) else { continue };
            steps.extend(
                resource_steps(&name, &resource.kind, present)
                    .into_iter()
                    .map(|step| Step { wave: wave + first, ..step }),
            );
        }
    }
    steps
}

/// Steps that remove nodes and resources which exist but are not in the site.
fn strays(site: &Site, present: &Present) -> Vec<Step> {
    let group = |name: &String| site.groups().any(|(group, _)| group == name);
    let nodes = present.nodes.iter().filter(|(_, of)| !group(of)).map(|(node, of)| (node, format!("node of {of}")));
    let others = present
        .resources
        .iter()
        .filter(|name| !site.resources.contains_key(*name))
        .map(|name| (name, "resource".to_owned()));
    let stray = |(name, what): (&String, String)| Step { wave: 0, verb: Verb::Remove, name: name.clone(), what };
    nodes.chain(others).map(stray).collect()
}

fn resource_steps(name: &str, kind: &Kind, present: &Present) -> Vec<Step> {
    let step = |verb, name: &str, what: String| Step { wave: 0, verb, name: name.to_owned(), what };
    match kind {
        Kind::Group(group) => {
            let mut there: Vec<String> =
                present.nodes.iter().filter(|(_, of)| *of == name).map(|(node, _)| node.clone()).collect();
            let what = format!("node of {name}");
            let most = usize::try_from(group.max).unwrap_or(usize::MAX);
            let kept = there.iter().take(most).map(|node| step(Verb::Keep, node, what.clone()));
            let removed = there.iter().skip(most).map(|node| step(Verb::Remove, node, what.clone()));
            let mut steps: Vec<Step> = kept.chain(removed).collect();
            while there.len() < usize::try_from(group.min).unwrap_or(0) {
                let node = free_name(name, |node| there.iter().any(|other| other == node));
                steps.push(step(Verb::Create, &node, what.clone()));
                there.push(node);
            }
            steps
        }
        Kind::LoadBalancer(balancer) => {
            let verb = if present.resources.iter().any(|other| other == name) { Verb::Keep } else { Verb::Create };
            vec![step(verb, name, format!("load balancer at port {}", balancer.port))]
        }
        Kind::Alarm(alarm) => vec![step(Verb::Create, name, format!("alarm on {} of {}", alarm.metric, alarm.of))],
        Kind::Policy(policy) => vec![step(Verb::Create, name, format!("policy of {}", policy.group))],
        Kind::Plain(plain) => {
            let verb = if present.resources.iter().any(|other| other == name) { Verb::Keep } else { Verb::Create };
            vec![step(verb, name, plain.kind.to_string())]
        }
    }
}

/// The steps that remove everything that is present: nodes and resources that depend on others go first.
pub fn removal(site: &Site, present: &Present) -> Vec<Step> {
    let order: Vec<String> = waves(site).into_iter().flatten().collect();
    let place = |name: &str| order.iter().position(|other| other == name);
    let mut steps: Vec<(Option<usize>, Step)> = Vec::new();
    for name in &present.resources {
        let step = Step { wave: 0, verb: Verb::Remove, name: name.clone(), what: "resource".to_owned() };
        steps.push((place(name), step));
    }
    for (node, group) in &present.nodes {
        let step = Step { wave: 0, verb: Verb::Remove, name: node.clone(), what: format!("node of {group}") };
        steps.push((place(group), step));
    }
    steps.sort_by(|(left, _), (right, _)| right.cmp(left));
    let mut wave = 0;
    let mut before = steps.first().and_then(|(place, _)| *place);
    steps
        .into_iter()
        .map(|(place, step)| {
            wave += usize::from(place != before);
            before = place;
            Step { wave, ..step }
        })
        .collect()
}
