//! Output of a rule: `select`, `on_change`, `deadband`, and the topic, as far as they depend on the window.

use sedge_mqtt::TopicFilter;

use super::read::{Entries, Reader, kind};
use super::{Band, Item, Select, Watched};
use crate::error::RuleError;
use crate::expression::{At, Expression, Field};
use crate::nearest::hint;
use crate::template::{Part, Template};

/// Most values of `select`.
const VALUES_MAX: usize = 64;

pub(super) struct Selection {
    pub(super) select: Select,
    pub(super) to: Option<Template>,
    pub(super) watched: Vec<Watched>,
}

pub(super) fn read(
    reader: &mut Reader,
    entries: &Entries<'_>,
    group_by: &mut Vec<Expression>,
    windowed: bool,
    mut to: Option<Template>,
) -> Selection {
    let mut select = reader.select(entries.get("select"));
    if windowed && select == Select::Payload && entries.get("select").is_none() {
        reader.wrong("window", "needs select: what to compute, such as select = { value = \"mean(payload.value)\" }");
    }
    let watched = reader.watched(entries, &select);
    if !windowed && !watched.is_empty() && group_by.is_empty() {
        // A rule that compares values with those put out last, and has no window and no `group_by`, compares them by topic.
        let topic = Item::Text("topic".to_owned());
        group_by.extend(reader.expression("group_by", &topic));
    }
    if !windowed && watched.is_empty() && !group_by.is_empty() {
        reader.wrong("group_by", "has a meaning only with window, on_change or deadband");
    }
    let why = "add a window, such as window = { tumbling = \"10s\" }";
    match &mut select {
        Select::Payload => {}
        Select::One(expression) if windowed => reader.of_window("select", 0, expression, group_by),
        Select::One(expression) => reader.per_message("select", expression, why),
        Select::Object(values) => {
            for (name, expression) in values {
                let key = format!("select.{name}");
                if windowed {
                    reader.of_window(&key, 0, expression, group_by);
                } else {
                    reader.per_message(&key, expression, why);
                }
            }
        }
    }
    for part in to.iter_mut().flat_map(|template| &mut template.0) {
        let Part::Gap(gap) = part else { continue };
        if windowed {
            reader.of_window("to", gap.at, &mut gap.expression, group_by);
        } else {
            reader.per_message("to", &gap.expression, why);
        }
    }
    Selection { select, to, watched }
}

impl Reader {
    fn select(&mut self, item: Option<&Item>) -> Select {
        let Some(item) = item else { return Select::Payload };
        match item {
            Item::Table(values) if values.is_empty() => {
                self.wrong("select", "selects nothing; leave it away to pass the payload on as it is");
                Select::Payload
            }
            Item::Table(values) if values.len() > VALUES_MAX => {
                self.wrong("select", format!("has more than {VALUES_MAX} values"));
                Select::Payload
            }
            Item::Table(values) => {
                let mut found = Vec::new();
                for (name, item) in values {
                    let expression = self.expression(&format!("select.{name}"), item);
                    found.extend(expression.map(|expression| (name.clone(), expression)));
                }
                Select::Object(found)
            }
            Item::Text(_) => self.expression("select", item).map_or(Select::Payload, Select::One),
            Item::Number(_) | Item::Bool(_) | Item::List(_) | Item::Other(_) => {
                self.wrong("select", format!("is a table of expressions or one expression, not {}", kind(item)));
                Select::Payload
            }
        }
    }

    /// Makes an expression one of the window's: values of the group stay, aggregates stay, other fields differ from message to message.
    fn of_window(&mut self, key: &str, offset: usize, expression: &mut Expression, group_by: &[Expression]) {
        if let Some(number) = group_by.iter().position(|known| known == expression) {
            *expression = Expression::Group(number);
            return;
        }
        match expression {
            Expression::Field(field, At(at)) => {
                let at = offset + *at;
                if let Some(Field::Level(level)) = self.tables.fields.get(*field) {
                    let is_topic = |known: &Expression| matches!(known, Expression::Field(topic, _) if self.tables.fields.get(*topic) == Some(&Field::Topic));
                    if let Some(number) = group_by.iter().position(is_topic) {
                        *expression = Expression::GroupLevel(number, *level);
                        return;
                    }
                }
                let name = self.tables.fields.get(*field).map_or_else(String::new, shown);
                let what = format!(
                    "{name} differs between the messages of a window: add {name:?} to group_by, or write last({name}) in select"
                );
                self.problems.push(RuleError { key: key.to_owned(), at: Some(at), of_key: false, what });
            }
            Expression::Not(inner) | Expression::Negative(inner) => self.of_window(key, offset, inner, group_by),
            Expression::Binary(_, left, right) => {
                self.of_window(key, offset, left, group_by);
                self.of_window(key, offset, right, group_by);
            }
            Expression::Call(_, arguments, _) => {
                for argument in arguments {
                    self.of_window(key, offset, argument, group_by);
                }
            }
            Expression::Aggregate(..)
            | Expression::Null
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::Text(_)
            | Expression::Group(_)
            | Expression::GroupLevel(..) => {}
        }
    }

    fn watched(&mut self, entries: &Entries<'_>, select: &Select) -> Vec<Watched> {
        let names: Vec<&str> = match select {
            Select::Payload => Vec::new(),
            Select::One(_) => vec!["value"],
            Select::Object(values) => values.iter().map(|(name, _)| name.as_str()).collect(),
        };
        let mut watched = Vec::new();
        let mut find =
            |reader: &mut Self, key: &str, name: &str, band| match names.iter().position(|known| *known == name) {
                Some(number) => watched.push(Watched { number, band }),
                None => reader.wrong(key, format!("select has no {name}{}", hint(name, names.iter().copied()))),
            };
        match entries.get("on_change") {
            None | Some(Item::Bool(false)) => {}
            Some(Item::Bool(true)) if names.is_empty() => self.wrong("on_change", "needs select: what is compared"),
            Some(Item::Bool(true)) => names.iter().for_each(|name| find(self, "on_change", name, Band::Any)),
            Some(Item::List(items)) => {
                for item in items {
                    match item {
                        Item::Text(name) => find(self, "on_change", name, Band::Any),
                        Item::Number(_) | Item::Bool(_) | Item::List(_) | Item::Table(_) | Item::Other(_) => {
                            self.wrong("on_change", "is true, or a list of names of select");
                        }
                    }
                }
            }
            Some(_) => self.wrong("on_change", "is true, or a list of names of select"),
        }
        match entries.get("deadband") {
            None => {}
            Some(Item::Table(bands)) => {
                for (name, item) in bands {
                    let key = format!("deadband.{name}");
                    match band(item) {
                        Some(band) => find(self, &key, name, band),
                        None => self.wrong(&key, "is a number from 0 on, or a percentage such as \"5%\""),
                    }
                }
            }
            Some(item) => {
                let what = format!("is a table such as {{ value = 0.5 }} or {{ value = \"5%\" }}, not {}", kind(item));
                self.wrong("deadband", what);
            }
        }
        watched
    }

    /// Refuses topic levels that no topic of `from` has.
    pub(super) fn check_levels(&mut self, entries: &Entries<'_>, from: &[TopicFilter]) {
        let last = |filter: &TopicFilter| {
            let open = filter.levels().last() == Some("#");
            if open { None } else { Some(filter.level_count() - 1) }
        };
        let Some(last) = from.iter().map(last).try_fold(0, |most, last| Some(most.max(last?))) else { return };
        if from.is_empty() {
            return;
        }
        let wrong: Vec<usize> = self.tables.fields.iter().filter_map(level).filter(|level| *level > last).collect();
        for level in wrong {
            // The first text that names it is where it is reported.
            let (key, at) = place(entries, level).unwrap_or_default();
            let of: Vec<&str> = from.iter().map(TopicFilter::as_str).collect();
            let what = format!("topics of {of:?} have no level {level}: their levels are 0 to {last}");
            self.problems.push(RuleError { key, at, of_key: false, what });
        }
    }
}

fn level(field: &Field) -> Option<usize> {
    if let Field::Level(level) = field { Some(*level) } else { None }
}

/// The key whose text names a topic level, and where in it.
fn place(entries: &Entries<'_>, level: usize) -> Option<(String, Option<usize>)> {
    fn search(key: &str, item: &Item, level: usize) -> Option<(String, Option<usize>)> {
        match item {
            Item::Text(text) => {
                let gap = if key == "to" { text.find(&format!("{{{level}}}")).map(|at| at + 1) } else { None };
                let at = gap.or_else(|| text.find(&format!("topic[{level}]")))?;
                Some((key.to_owned(), Some(at)))
            }
            Item::List(items) => {
                items.iter().enumerate().find_map(|(number, item)| search(&format!("{key}[{number}]"), item, level))
            }
            Item::Table(entries) => {
                entries.iter().find_map(|(name, item)| search(&format!("{key}.{name}"), item, level))
            }
            Item::Number(_) | Item::Bool(_) | Item::Other(_) => None,
        }
    }
    entries.0.iter().find_map(|(key, item)| search(key, item, level))
}

fn band(item: &Item) -> Option<Band> {
    match item {
        Item::Number(band) if *band >= 0.0 => Some(Band::Absolute(*band)),
        Item::Text(text) => {
            let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
            (0.0..=1000.0).contains(&percent).then_some(Band::Relative(percent / 100.0))
        }
        Item::Number(_) | Item::Bool(_) | Item::List(_) | Item::Table(_) | Item::Other(_) => None,
    }
}

/// A field as its user writes it.
fn shown(field: &Field) -> String {
    use crate::json::Step;
    match field {
        Field::Topic => "topic".to_owned(),
        Field::Level(level) => format!("topic[{level}]"),
        Field::Payload(path) => {
            let steps = path.iter().map(|step| match step {
                Step::Key(key) if key.chars().all(|char| char.is_alphanumeric() || char == '_') => format!(".{key}"),
                Step::Key(key) => format!("['{key}']"),
                Step::Index(index) => format!("[{index}]"),
            });
            format!("payload{}", steps.collect::<String>())
        }
        Field::Property(name) => format!("properties['{name}']"),
        Field::ContentType => "content_type".to_owned(),
        Field::Qos => "qos".to_owned(),
        Field::Retain => "retain".to_owned(),
        Field::Client => "client".to_owned(),
        Field::Time => "time".to_owned(),
    }
}
