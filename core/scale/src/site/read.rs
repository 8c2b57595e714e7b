//! From a tree to a checked site.

use std::collections::BTreeMap;

use sedge_base::Duration;

use super::error::{SiteError, nearest};
use super::fields::{Fields, duration, whole};
use super::graph::cycle;
use super::model::{
    Alarm, Algorithm, Driver, Group, Kind, LoadBalancer, MemberSpec, Named, Plain, PlainKind, Policy, Resize, Resource,
    Site, Stat, Strategy, Target,
};
use super::tree::{Key, Tree, Value};

/// Most nodes that a group can have.
const MAX_NODES: i32 = 64;
/// Most resources in a site.
const MAX_RESOURCES: usize = 256;
/// Types of plain resources that only an infrastructure can provide, and no single machine.
const FOREIGN: [PlainKind; 4] =
    [PlainKind::Container, PlainKind::FloatingIp, PlainKind::SecurityGroup, PlainKind::User];
const TYPES: [&str; 4] = ["group", "loadbalancer", "alarm", "policy"];

/// Reads a whole file.
pub(super) fn site(tree: &Tree) -> Result<Site, Vec<SiteError>> {
    let mut fields = Fields::of("", tree);
    let driver = fields.choice("driver").unwrap_or(Driver::Process);
    let exec = fields.text("exec");
    if driver == Driver::Exec && exec.is_none() {
        fields.error(tree.line, "exec", "is missing; name the program that the exec driver runs");
    }
    let max_actions_per_hour = fields.count("max_actions_per_hour", 0, 3_600).unwrap_or(60);
    let listed = fields.take("resources");
    if listed.is_none() {
        fields.error(tree.line, "resources", "is missing; write resources: {brokers: {type: group, ...}}");
    }
    fields.finish();
    let mut errors = fields.errors;
    let mut resources = BTreeMap::new();
    let mut references = Vec::new();
    for (key, tree) in listed.into_iter().flat_map(entries) {
        if let Some((resource, referred)) = resource(key, tree, driver, &mut errors) {
            references.extend(referred);
            resources.insert(key.name.clone(), resource);
        }
    }
    let site = Site { driver, exec, max_actions_per_hour, resources };
    errors.extend(check_number(listed, site.resources.len()));
    errors.extend(check_references(&site, &references));
    errors.extend(check_cycles(&site));
    errors.extend(check_sizes(&site));
    errors.sort();
    if errors.is_empty() { Ok(site) } else { Err(errors) }
}

fn entries(tree: &Tree) -> Vec<(&Key, &Tree)> {
    match &tree.value {
        Value::Map(entries) => entries.iter().map(|(key, tree)| (key, tree)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => Vec::new(),
    }
}

fn check_number(listed: Option<&Tree>, count: usize) -> Option<SiteError> {
    let tree = listed?;
    if !matches!(tree.value, Value::Map(_)) {
        let problem = format!("is {}; write a table of resources by name", tree.value.words());
        return Some(SiteError::new(tree.line, "resources", problem));
    }
    (count > MAX_RESOURCES)
        .then(|| SiteError::new(tree.line, "resources", format!("are {count}; at most {MAX_RESOURCES} are possible")))
}

/// A reference: line, path of the field, name of the resource.
type Reference = (usize, String, String);

fn resource(key: &Key, tree: &Tree, driver: Driver, errors: &mut Vec<SiteError>) -> Option<(Resource, Vec<Reference>)> {
    let path = format!("resources.{}", key.name);
    let sound = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if key.name.is_empty() || key.name.len() > 40 || !key.name.chars().all(sound) {
        let problem = "is no name; write up to 40 letters, digits, - and _";
        errors.push(SiteError::new(key.line, path.clone(), problem));
    }
    let mut fields = Fields::of(&path, tree);
    if !matches!(tree.value, Value::Map(_)) {
        errors.append(&mut fields.errors);
        return None;
    }
    fields.references("depends_on");
    let kind = kind(&mut fields, tree.line, driver);
    fields.finish();
    errors.append(&mut fields.errors);
    let references = core::mem::take(&mut fields.references);
    let needs = references.iter().map(|(_, _, name)| name.clone()).collect();
    Some((Resource { line: key.line, needs, kind: kind? }, references))
}

fn kind(fields: &mut Fields<'_>, line: usize, driver: Driver) -> Option<Kind> {
    let name = fields.text("type");
    let found = match name.as_deref() {
        Some("group") => group(fields, line, driver).map(Kind::Group),
        Some("loadbalancer") => balancer(fields).map(Kind::LoadBalancer),
        Some("alarm") => alarm(fields).map(Kind::Alarm),
        Some("policy") => policy(fields, line, driver).map(Kind::Policy),
        Some(other) => plain(fields, line, other, driver).map(Kind::Plain),
        None => {
            let known = known_types().join(", ");
            fields.error(line, "type", format!("is missing; write one of {known}"));
            None
        }
    };
    if found.is_none() {
        // Without a kind nobody knows which fields there can be.
        fields.rest();
    }
    found
}

fn known_types() -> Vec<&'static str> {
    TYPES.into_iter().chain(PlainKind::NAMES.iter().map(|(name, _)| *name)).collect()
}

fn plain(fields: &mut Fields<'_>, line: usize, name: &str, driver: Driver) -> Option<Plain> {
    let Some((_, kind)) = PlainKind::NAMES.iter().find(|(known, _)| *known == name) else {
        let known = known_types();
        let meant = nearest(name, known.iter().copied());
        let hint = meant
            .map_or_else(|| format!("write one of {}", known.join(", ")), |name| format!("did you mean {name:?}?"));
        fields.error(line, "type", format!("{name:?} is no type of a resource; {hint}"));
        return None;
    };
    if driver == Driver::Process && FOREIGN.contains(kind) {
        let problem = format!(
            "the process driver cannot provide a {kind}; remove it, or use the driver exec, or for a container docker"
        );
        fields.error(line, "type", problem);
    }
    Some(Plain { kind: *kind, fields: fields.rest().into_iter().collect() })
}

fn group(fields: &mut Fields<'_>, line: usize, driver: Driver) -> Option<Group> {
    let min = fields.count("min", 1, MAX_NODES);
    let max = fields.count("max", 1, MAX_NODES);
    let relief = fields.bool("relief", true);
    let member = fields.take("member");
    let (min, max) = (min.unwrap_or(1), max.unwrap_or_else(|| min.unwrap_or(1).max(3)));
    if min > max {
        fields.error(line, "min", format!("{min} is more than max, which is {max}"));
    }
    let Some(member) = member else {
        fields.error(line, "member", "is missing; write member: {type: broker}");
        return None;
    };
    let path = "member";
    let mut inner = Fields::of(path, member);
    let what = inner.text("type");
    if what.as_deref() != Some("broker") {
        let given = what.map_or_else(|| "is missing".to_owned(), |what| format!("{what:?} is not possible"));
        inner.error(member.line, "type", format!("{given}; write broker"));
    }
    let spec = MemberSpec {
        cpu: inner.number("cpu"),
        memory: inner.bytes("memory"),
        config: inner.text("config"),
        image: inner.reference("image"),
        net: inner.reference("net"),
        statefulset: inner.text("statefulset"),
    };
    if let Some(given) = &spec.statefulset {
        let sound = |part: &str| {
            let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ".-".contains(letter);
            !part.is_empty() && part.len() <= 253 && part.chars().all(plain)
        };
        if driver != Driver::Kubernetes {
            inner.error(
                member.line,
                "statefulset",
                format!("is for the driver kubernetes, and the driver is {driver}"),
            );
        } else if given.matches('/').count() > 1 || !given.split('/').all(sound) {
            inner.error(member.line, "statefulset", format!("{given:?} is no name; write NAME or NAMESPACE/NAME"));
        }
    }
    if spec.cpu.is_some_and(|cpu| !(0.01..=1_024.0).contains(&cpu)) {
        inner.error(member.line, "cpu", "is not between 0.01 and 1024 processors");
    }
    if driver == Driver::Process && spec.memory.is_some_and(|bytes| bytes < 32 << 20) {
        inner.error(member.line, "memory", "is less than 32MiB, which a broker needs");
    }
    inner.finish();
    for error in inner.errors {
        fields.error(error.line, &error.field, error.problem);
    }
    for (line, field, name) in inner.references {
        fields.references.push((line, field, name));
    }
    Some(Group { member: spec, min, max, relief })
}

fn balancer(fields: &mut Fields<'_>) -> Option<LoadBalancer> {
    let backend = fields.reference_needed("backend");
    let port = fields.whole("port", 1, 65_535).and_then(|port| u16::try_from(port).ok());
    let balancer = LoadBalancer {
        backend: backend.clone().unwrap_or_default(),
        algorithm: fields.choice("algorithm").unwrap_or(Algorithm::RoundRobin),
        bind: fields.text("bind").unwrap_or_else(|| "*".to_owned()),
        port: port.unwrap_or(1883),
        maxconn: fields.count("maxconn", 1, 10_000_000).unwrap_or(50_000),
        check_timeout: fields.period("check_timeout", Duration::from_secs(5)),
        check_interval: fields.period("check_interval", Duration::from_millis(500)),
        proxy_protocol: fields.bool("proxy_protocol", false),
    };
    let sound = |letter: char| letter.is_ascii_alphanumeric() || ".:*-[]".contains(letter);
    if !balancer.bind.chars().all(sound) {
        let line = fields.line();
        fields.error(line, "bind", format!("{:?} is no address; write * or an address of this machine", balancer.bind));
    }
    backend.map(|_| balancer)
}

fn alarm(fields: &mut Fields<'_>) -> Option<Alarm> {
    let metric = fields.choice_needed("metric");
    let of = fields.reference_needed("of");
    let op = fields.choice_needed("op");
    let threshold = fields.number_needed("threshold");
    let stat = fields.choice("stat").unwrap_or(Stat::Mean);
    let period = fields.period("period", Duration::from_mins(1));
    let evaluations = fields.count("evaluations", 1, 100).unwrap_or(1);
    let action = fields.reference("action");
    Some(Alarm { metric: metric?, of: of?, stat, period, evaluations, op: op?, threshold: threshold?, action })
}

fn policy(fields: &mut Fields<'_>, line: usize, driver: Driver) -> Option<Policy> {
    let group = fields.reference_needed("group");
    let cooldown = fields.duration("cooldown").unwrap_or(Duration::from_mins(1));
    let adjust = fields.whole("adjust", -MAX_NODES, MAX_NODES);
    let step = fields.take("steps");
    let target = fields.take("target");
    let schedule = fields.take("schedule");
    let forecast = fields.take("forecast");
    let size = fields.take("resize");
    let given = [&step, &target, &schedule, &forecast, &size].map(Option::is_some);
    let given = given.into_iter().chain([adjust.is_some()]);
    if given.filter(|given| *given).count() != 1 {
        let problem = "needs exactly one of adjust, steps, target, schedule, forecast and resize";
        fields.error(line, "adjust", problem);
        return None;
    }
    if adjust == Some(0) {
        fields.error(line, "adjust", "is 0, which changes nothing; write +1 or -1");
    }
    let strategy = if let Some(adjust) = adjust {
        Strategy::Adjust(adjust)
    } else if let Some(tree) = step {
        Strategy::Step(steps(fields, tree)?)
    } else if let Some(tree) = target {
        Strategy::Target(tracking(fields, "target", tree)?)
    } else if let Some(tree) = schedule {
        Strategy::Schedule(timetable(fields, tree)?)
    } else if let Some(tree) = size {
        Strategy::Resize(resize(fields, tree, driver)?)
    } else {
        Strategy::Forecast(tracking(fields, "forecast", forecast?)?)
    };
    Some(Policy { group: group?, cooldown, strategy })
}

/// `[{above: 80, adjust: +1}, {above: 95, adjust: +2}]`
fn steps(fields: &mut Fields<'_>, tree: &Tree) -> Option<Vec<(f64, i32)>> {
    let mut steps = Vec::new();
    for (bound, adjust, line) in pairs(fields, "steps", tree, "above", "adjust")? {
        match (bound, whole(&adjust)) {
            (Value::Number(bound), Some(adjust)) => steps.push((bound, adjust)),
            _ => fields.error(line, "steps", "has a step that is not like {above: 80, adjust: +1}"),
        }
    }
    steps.sort_by(|left, right| left.0.total_cmp(&right.0));
    Some(steps)
}

/// `[{at: "08:00", nodes: 3}, {at: "18:00", nodes: 1}]`
fn timetable(fields: &mut Fields<'_>, tree: &Tree) -> Option<Vec<(u16, u32)>> {
    let mut times = Vec::new();
    for (at, nodes, line) in pairs(fields, "schedule", tree, "at", "nodes")? {
        let minute = if let Value::Text(text) = &at { minute(text) } else { None };
        let nodes =
            whole(&nodes).filter(|nodes| (1..=MAX_NODES).contains(nodes)).and_then(|nodes| u32::try_from(nodes).ok());
        match (minute, nodes) {
            (Some(minute), Some(nodes)) => times.push((minute, nodes)),
            _ => fields.error(line, "schedule", "has an entry that is not like {at: \"08:00\", nodes: 3}"),
        }
    }
    times.sort_unstable();
    Some(times)
}

fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// The two named values of each table in a list, with its line.
fn pairs(
    fields: &mut Fields<'_>,
    field: &str,
    tree: &Tree,
    first: &str,
    second: &str,
) -> Option<Vec<(Value, Value, usize)>> {
    let Value::List(items) = &tree.value else {
        fields.error(
            tree.line,
            field,
            format!("is {}; write a list such as [{{{first}: ..., {second}: ...}}]", tree.value.words()),
        );
        return None;
    };
    let value = |item: &Tree, name: &str| {
        entries(item).iter().find(|(key, _)| key.name == name).map_or(Value::Null, |(_, tree)| tree.value.clone())
    };
    if items.is_empty() {
        fields.error(tree.line, field, "is empty");
        return None;
    }
    Some(items.iter().map(|item| (value(item, first), value(item, second), item.line)).collect())
}

/// `{metric: connections, value: 500, period: 60s}`
fn tracking(fields: &mut Fields<'_>, field: &str, tree: &Tree) -> Option<Target> {
    let mut inner = Fields::of(field, tree);
    let metric = inner.choice_needed("metric");
    let value = inner.number_needed("value");
    let period = inner.take("period").map_or(Some(Duration::from_mins(1)), |tree| match &tree.value {
        Value::Text(text) => duration(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
    });
    if period.is_none_or(|period| period < Duration::from_millis(100)) {
        inner.error(tree.line, "period", "is no duration of at least 100ms; write one such as 60s");
    }
    if value.is_some_and(|value| value <= 0.0) {
        inner.error(tree.line, "value", "is not above 0");
    }
    inner.finish();
    let sound = inner.errors.is_empty();
    for error in inner.errors {
        fields.error(error.line, &error.field, error.problem);
    }
    let found = Target { metric: metric?, value: value?, period: period? };
    sound.then_some(found)
}

/// `{cpu: +0.5, min: 0.5, max: 2}`
fn resize(fields: &mut Fields<'_>, tree: &Tree, driver: Driver) -> Option<Resize> {
    if !driver.resizes() {
        let problem = format!("is not possible: the driver {driver} cannot change a node that runs; use adjust");
        fields.error(tree.line, "resize", problem);
    }
    let mut inner = Fields::of("resize", tree);
    let by = inner.number_needed("cpu");
    let [min, max] = ["min", "max"].map(|field| inner.number_needed(field));
    if by.is_some_and(|by| !(0.001..=1_024.0).contains(&by.abs())) {
        inner.error(tree.line, "cpu", "is no change of 0.001 to 1024 processors; write one such as +0.5");
    }
    for (field, value) in [("min", min), ("max", max)] {
        if value.is_some_and(|value| !(0.01..=1_024.0).contains(&value)) {
            inner.error(tree.line, field, "is not between 0.01 and 1024 processors");
        }
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        inner.error(tree.line, "min", format!("{min} is more than max, which is {max}"));
    }
    inner.finish();
    let sound = inner.errors.is_empty();
    for error in inner.errors {
        fields.error(error.line, &error.field, error.problem);
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let thousandths = |value: f64| (value * 1_000.0).round() as i32;
    let found =
        Resize { by: thousandths(by?), min: thousandths(min?).unsigned_abs(), max: thousandths(max?).unsigned_abs() };
    sound.then_some(found)
}

/// Policies that change the size of nodes whose size nothing limits.
fn check_sizes(site: &Site) -> Vec<SiteError> {
    let mut errors = Vec::new();
    for (name, policy) in site.policies().filter(|(_, policy)| matches!(policy.strategy, Strategy::Resize(_))) {
        let group = site.groups().find(|(group, _)| *group == policy.group);
        if let Some((group, _)) = group.filter(|(_, spec)| spec.member.cpu.is_none()) {
            let line = site.resources.get(name).map_or(0, |resource| resource.line);
            let problem =
                format!("changes the processors of {group}, whose member has no cpu; write one such as cpu: 1");
            errors.push(SiteError::new(line, format!("resources.{name}.resize"), problem));
        }
    }
    errors
}

/// Which type of resource a field refers to, by the last part of its path.
fn expected(field: &str) -> Option<&'static str> {
    match field.rsplit('.').next().unwrap_or_default() {
        "backend" | "of" | "group" => Some("group"),
        "action" => Some("policy"),
        "image" => Some("image"),
        "net" => Some("network"),
        _ => None,
    }
}

fn type_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Group(_) => "group",
        Kind::LoadBalancer(_) => "loadbalancer",
        Kind::Alarm(_) => "alarm",
        Kind::Policy(_) => "policy",
        Kind::Plain(plain) => plain.kind.name(),
    }
}

fn check_references(site: &Site, references: &[Reference]) -> Vec<SiteError> {
    let mut errors = Vec::new();
    for (line, field, name) in references {
        let Some(resource) = site.resources.get(name) else {
            let meant = nearest(name, site.resources.keys().map(String::as_str));
            let hint = meant.map_or_else(String::new, |name| format!("; did you mean ${{{name}}}?"));
            errors.push(SiteError::new(*line, field, format!("there is no sound resource {name:?}{hint}")));
            continue;
        };
        let found = type_of(&resource.kind);
        if let Some(wanted) = expected(field)
            && wanted != found
        {
            let problem = format!("{name:?} is of type {found}; refer to one of type {wanted}");
            errors.push(SiteError::new(*line, field, problem));
        }
    }
    errors
}

fn check_cycles(site: &Site) -> Option<SiteError> {
    let needs = site.resources.iter().map(|(name, resource)| (name.clone(), resource.needs.clone())).collect();
    let cycle = cycle(&needs)?;
    let first = cycle.first()?;
    let line = site.resources.get(first).map_or(0, |resource| resource.line);
    let way = cycle.iter().chain([first]).map(String::as_str).collect::<Vec<_>>().join(" -> ");
    Some(SiteError::new(
        line,
        format!("resources.{first}"),
        format!("needs itself: {way}; remove one of these references"),
    ))
}
