//! Site files as the tests write them: a tiny notation for the tree that a reader of YAML makes.

#![allow(dead_code, reason = "each test uses a part of it")]

use sedge_scale::Site;
use sedge_scale::site::{Key, Tree, Value};

/// Reads lines such as `brokers.member.type = broker`; the number of the line is the line in the file.
pub(crate) fn tree(text: &str) -> Tree {
    let mut root = Tree { line: 1, value: Value::Map(Vec::new()) };
    for (number, line) in text.lines().enumerate() {
        let Some((path, value)) = line.split_once('=') else { continue };
        let path: Vec<&str> = path.trim().split('.').collect();
        insert(&mut root, &path, scalar(value.trim(), number + 1), number + 1);
    }
    root
}

fn scalar(text: &str, line: usize) -> Tree {
    let value = match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Number),
    };
    Tree { line, value }
}

fn insert(tree: &mut Tree, path: &[&str], value: Tree, line: usize) {
    let (Value::Map(entries), Some((name, rest))) = (&mut tree.value, path.split_first()) else { return };
    if rest.is_empty() {
        entries.push((Key { line, name: (*name).to_owned() }, value));
        return;
    }
    let at = entries.iter().position(|(key, _)| key.name == *name).unwrap_or_else(|| {
        entries.push((Key { line, name: (*name).to_owned() }, Tree { line, value: Value::Map(Vec::new()) }));
        entries.len() - 1
    });
    if let Some((_, inner)) = entries.get_mut(at) {
        insert(inner, rest, value, line);
    }
}

/// Pham's site: 1 to 3 brokers, out above 80 %, in below 25 %, one minute between actions, a load balancer (elasticity.md section 5).
pub(crate) const PHAM: &str = "\
driver = null_driver
resources.brokers.type = group
resources.brokers.member.type = broker
resources.brokers.min = 1
resources.brokers.max = 3
resources.lb.type = loadbalancer
resources.lb.backend = ${brokers}
resources.high.type = alarm
resources.high.metric = cpu_util
resources.high.of = ${brokers}
resources.high.period = 60s
resources.high.op = >
resources.high.threshold = 80
resources.high.action = ${out}
resources.low.type = alarm
resources.low.metric = cpu_util
resources.low.of = ${brokers}
resources.low.period = 60s
resources.low.op = <
resources.low.threshold = 25
resources.low.action = ${in}
resources.out.type = policy
resources.out.group = ${brokers}
resources.out.adjust = 1
resources.out.cooldown = 60s
resources.in.type = policy
resources.in.group = ${brokers}
resources.in.adjust = -1
resources.in.cooldown = 60s
";

/// [`PHAM`] with some lines replaced or added: each `path = value`.
pub(crate) fn pham(changes: &[&str]) -> String {
    let mut lines: Vec<String> = PHAM.replace("null_driver", "null").lines().map(str::to_owned).collect();
    // A policy changes either the number of nodes or their size.
    for policy in ["out", "in"].map(|name| format!("resources.{name}.")) {
        let resizes = changes.iter().any(|change| change.starts_with(&format!("{policy}resize")));
        lines.retain(|line| !resizes || !line.starts_with(&format!("{policy}adjust")));
    }
    for change in changes {
        let path = change.split('=').next().unwrap_or_default();
        match lines.iter_mut().find(|line| line.split('=').next() == Some(path)) {
            Some(line) => (*change).clone_into(line),
            None => lines.push((*change).to_owned()),
        }
    }
    lines.join("\n")
}

pub(crate) fn site(changes: &[&str]) -> Site {
    Site::read(&tree(&pham(changes))).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Errors of [`PHAM`] after the changes.
pub(crate) fn errors(changes: &[&str]) -> Vec<String> {
    let found = Site::read(&tree(&pham(changes))).map(|_| ()).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}
