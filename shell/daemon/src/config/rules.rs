//! `[rule.NAME]`: sections whose keys and values the rules themselves know.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sedge_rules::{Item, Rule, RuleError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::error::{ConfigError, Origin, Problem};
use super::layers::Source;
use super::nearest::nearest;

/// First part of every key here.
const SECTION: &str = "rule";
/// Most rules of a cluster.
const RULES_MAX: usize = 1000;

pub(super) fn is_section(name: &str) -> bool {
    name == SECTION
}

/// The rules of a file, by name; other sections are passed over. For `sedge rule test`.
pub fn read_rules(path: &Path) -> Result<BTreeMap<String, Arc<Rule>>, ConfigError> {
    let one = |what: String| ConfigError {
        problems: vec![Problem { origin: Origin::Path(path.to_owned()), key: String::new(), what, nearest: None }],
    };
    let text = std::fs::read_to_string(path).map_err(|error| one(format!("cannot read this file: {error}")))?;
    let source = Source { path: path.to_owned(), text: &text };
    let document = source.parse().map_err(|problem| ConfigError { problems: vec![problem] })?;
    let section = document.get_ref().iter().find(|(name, _)| is_section(name.get_ref()));
    let (rules, problems) = match section {
        Some((_, section)) => read(&source, section),
        None => return Err(one("has no rule: write [rule.NAME]".to_owned())),
    };
    if problems.is_empty() { Ok(rules) } else { Err(ConfigError { problems }) }
}

/// The rules of the section, and everything that is wrong with them.
pub(super) fn read(source: &Source<'_>, section: &Spanned<DeValue<'_>>) -> (BTreeMap<String, Arc<Rule>>, Vec<Problem>) {
    let problem = |span, key: &str, what: &str| Problem {
        origin: source.origin(span),
        key: key.to_owned(),
        what: what.to_owned(),
        nearest: None,
    };
    let (mut rules, mut problems) = (BTreeMap::new(), Vec::new());
    let Some(table) = section.get_ref().as_table() else {
        return (rules, vec![problem(section.span(), SECTION, "is a section: write [rule.NAME]")]);
    };
    for (name, value) in table {
        let section = format!("{SECTION}.{}", name.get_ref());
        let Some(entries) = value.get_ref().as_table() else {
            problems.push(problem(name.span(), &section, &format!("is a section: write [{section}]")));
            continue;
        };
        if rules.len() == RULES_MAX {
            problems.push(problem(name.span(), &section, &format!("there are more than {RULES_MAX} rules")));
            break;
        }
        let mut places = Places { source, found: Vec::new(), section: name.span() };
        let items = places.table("", entries);
        match compile(name.get_ref(), &items) {
            Ok(rule) => {
                rules.insert(name.get_ref().to_string(), Arc::new(rule));
            }
            Err(errors) => problems.extend(errors.into_iter().map(|error| places.problem(&section, error))),
        }
    }
    (rules, problems)
}

/// Compiles a rule; one with a jq program, which may be nested deeply, on a stack that is large enough.
fn compile(name: &str, items: &[(String, Item)]) -> Result<Rule, Vec<RuleError>> {
    const STACK_BYTES: usize = 16 << 20;
    if items.iter().all(|(key, _)| key != "jq") {
        return Rule::compile(name, items);
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let compiled = thread.spawn_scoped(scope, || Rule::compile(name, items)).ok().and_then(|done| done.join().ok());
        compiled.unwrap_or_else(|| {
            let what = "cannot be compiled now: the system gives no thread".to_owned();
            Err(vec![RuleError { key: "jq".to_owned(), at: None, of_key: false, what }])
        })
    })
}

/// Conflicts between bridges and rules: key, and the fault.
pub(super) fn problems(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut named = BTreeMap::<&str, &str>::new();
    for (name, bridge) in config.bridges.iter().filter(|(_, bridge)| !bridge.rule.is_empty()) {
        let (key, rule) = (format!("bridge.{name}.rule"), bridge.rule.as_str());
        match config.rules.get(rule) {
            None => {
                let near = nearest(rule, config.rules.keys().map(String::as_str));
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                found.push((key.clone(), format!("there is no [rule.{rule}]{near}")));
            }
            Some(known) if known.has_topic() => {
                let what = format!("[rule.{rule}] has from and to of its own: leave them away, the bridge has them");
                found.push((key.clone(), what));
            }
            Some(_) => {}
        }
        if let Some(other) = named.insert(rule, name) {
            found.push((key.clone(), format!("[rule.{rule}] is that of bridge {other:?}: write it once for each")));
        }
        if bridge.direction != sedge_bridge::Direction::Out {
            found.push((key, "is for what goes out: write direction = \"out\"".to_owned()));
        }
    }
    for (name, rule) in config.rules.iter().filter(|(_, rule)| !rule.has_topic()) {
        if !named.contains_key(name.as_str()) {
            let what = format!(
                "has no from and to, and no bridge names it: add both, or rule = {:?} to a bridge",
                rule.name()
            );
            found.push((format!("{SECTION}.{name}"), what));
        }
    }
    found
}

/// Where a key and its value stand.
struct Place {
    key: String,
    name: Range<usize>,
    value: Range<usize>,
    /// The value where it is a text.
    text: Option<String>,
}

/// Where the keys and values of a rule stand.
struct Places<'a> {
    source: &'a Source<'a>,
    found: Vec<Place>,
    /// Where the rule's name stands.
    section: Range<usize>,
}

impl Places<'_> {
    /// The entries in the order in which they are written.
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) -> Vec<(String, Item)> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let read = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name_text: &str = AsRef::<str>::as_ref(name.get_ref());
            let key = if prefix.is_empty() { name_text.to_owned() } else { format!("{prefix}.{name_text}") };
            (name_text.to_owned(), self.item(&key, name.span(), value))
        };
        entries.into_iter().map(read).collect()
    }

    fn item(&mut self, key: &str, name: Range<usize>, value: &Spanned<DeValue<'_>>) -> Item {
        let text = value.get_ref().as_str().map(str::to_owned);
        self.found.push(Place { key: key.to_owned(), name, value: value.span(), text });
        match value.get_ref() {
            DeValue::String(text) => Item::Text(text.to_string()),
            DeValue::Boolean(flag) => Item::Bool(*flag),
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .and_then(|number| {
                    i32::try_from(number).map(f64::from).ok().or_else(|| number.to_string().parse().ok())
                })
                .map_or(Item::Other("a number beyond 64 bits"), Item::Number),
            DeValue::Float(float) => {
                let number = float.as_str().parse().ok().filter(|number: &f64| number.is_finite());
                number.map_or(Item::Other("no finite number"), Item::Number)
            }
            DeValue::Array(items) => {
                let item = |(number, item): (usize, &Spanned<DeValue<'_>>)| {
                    self.item(&format!("{key}[{number}]"), item.span(), item)
                };
                Item::List(items.iter().enumerate().map(item).collect())
            }
            DeValue::Table(table) => Item::Table(self.table(key, table)),
            DeValue::Datetime(_) => Item::Other("a date"),
        }
    }

    /// The problem, with the place of the key or, within a text, of the faulty part.
    fn problem(&self, section: &str, error: RuleError) -> Problem {
        let key = if error.key.is_empty() { section.to_owned() } else { format!("{section}.{}", error.key) };
        let place = self.found.iter().find(|place| place.key == error.key);
        // `from = "a"` is the same as `from = ["a"]`.
        let outer = error.key.strip_suffix("[0]").unwrap_or(&error.key);
        let place = place.or_else(|| self.found.iter().find(|place| place.key == outer));
        let span = match place {
            None => self.section.clone(),
            Some(place) if error.of_key => place.name.clone(),
            Some(place) => self.within(&place.value, place.text.as_deref(), error.at),
        };
        Problem { origin: self.source.origin(span), key, what: error.what, nearest: None }
    }

    /// A place within a text, unless escapes have moved it.
    fn within(&self, value: &Range<usize>, text: Option<&str>, at: Option<usize>) -> Range<usize> {
        let inside = || {
            let (text, at) = (text?, at?);
            let start = value.start + self.source.text.get(value.clone())?.find(text)?;
            Some(start + at..value.end)
        };
        inside().unwrap_or_else(|| value.clone())
    }
}
