//! Rules by the levels of their filters.

use std::collections::BTreeMap;

use crate::pattern::Template;
use crate::{Action, Who};

/// Effects of the rules that end at one place: the first line of each kind, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) publish: Option<u32>,
    pub(crate) receive: Option<u32>,
    pub(crate) deny: Option<u32>,
}

impl Effects {
    pub(crate) const fn allow(&self, action: Action) -> Option<u32> {
        match action {
            Action::Publish => self.publish,
            Action::Receive => self.receive,
        }
    }

    /// The earlier line of each kind.
    pub(crate) fn merge(&mut self, other: &Self) {
        let earlier = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        self.publish = earlier(self.publish, other.publish);
        self.receive = earlier(self.receive, other.receive);
        self.deny = earlier(self.deny, other.deny);
    }
}

/// The rules that meet a filter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meeting {
    /// Rules that match some topic of the filter.
    pub(crate) overlap: Effects,
    /// Rules that match every topic of the filter.
    pub(crate) cover: Effects,
}

impl Meeting {
    fn add(&mut self, effects: &Effects, covers: bool) {
        self.overlap.merge(effects);
        if covers {
            self.cover.merge(effects);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.overlap.merge(&other.overlap);
        self.cover.merge(&other.cover);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    literals: BTreeMap<Box<str>, usize>,
    templates: BTreeMap<Template, usize>,
    plus: Option<usize>,
    /// Rules that end here.
    here: Effects,
    /// Rules that end with `#` below.
    hash: Effects,
}

/// A tree of levels, walked by recursion: a rule's filter has at most [`MAX_LEVELS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index(Vec<Node>);

/// Levels of a rule's filter.
pub(crate) const MAX_LEVELS: usize = 128;

impl Default for Index {
    fn default() -> Self {
        Self(vec![Node::default()])
    }
}

impl Index {
    /// Adds a rule. `templates`: whether `%c` and `%u` stand for names.
    pub(crate) fn insert(&mut self, filter: &str, effects: &Effects, templates: bool) {
        let mut at = 0;
        for level in filter.split('/') {
            if level == "#" {
                return self.0[at].hash.merge(effects);
            }
            at = self.child(at, level, templates);
        }
        self.0[at].here.merge(effects);
    }

    fn child(&mut self, at: usize, level: &str, templates: bool) -> usize {
        let next = self.0.len();
        let node = &mut self.0[at];
        let child = if level == "+" {
            *node.plus.get_or_insert(next)
        } else if let Some(template) = Template::parse(level).filter(|_| templates) {
            *node.templates.entry(template).or_insert(next)
        } else {
            *node.literals.entry(level.into()).or_insert(next)
        };
        if child == next {
            self.0.push(Node::default());
        }
        child
    }

    /// The effects of the rules that match a topic name.
    pub(crate) fn decide(&self, topic: &str, who: Who<'_>) -> Effects {
        let mut found = Effects::default();
        self.walk_topic(0, Some(topic), who, &mut found);
        found
    }

    fn walk_topic(&self, at: usize, rest: Option<&str>, who: Who<'_>, found: &mut Effects) {
        let Some(node) = self.0.get(at) else { return };
        let Some(rest) = rest else {
            found.merge(&node.here);
            return found.merge(&node.hash);
        };
        let (level, behind) = split(rest);
        if !is_hidden(at, level) {
            found.merge(&node.hash);
            if let Some(child) = node.plus {
                self.walk_topic(child, behind, who, found);
            }
        }
        if let Some(child) = node.literal(level) {
            self.walk_topic(child, behind, who, found);
        }
        for (template, child) in &node.templates {
            if !is_hidden(at, level) && template.matches(level, who) {
                self.walk_topic(*child, behind, who, found);
            }
        }
    }

    /// The rules that meet a topic filter.
    pub(crate) fn judge(&self, filter: &str, who: Who<'_>) -> Meeting {
        let mut met = Meeting::default();
        self.walk_filter(0, Some(filter), true, who, &mut met);
        met
    }

    /// `covers`: whether the way to `at` matches all that the part of the filter behind us matches.
    fn walk_filter(&self, at: usize, rest: Option<&str>, covers: bool, who: Who<'_>, met: &mut Meeting) {
        let Some(node) = self.0.get(at) else { return };
        let Some(rest) = rest else {
            met.add(&node.here, covers);
            return met.add(&node.hash, covers);
        };
        let (level, behind) = split(rest);
        if !is_hidden(at, level) {
            met.add(&node.hash, covers);
            // `#` matches less than one level, too, which `+` does not.
            if let Some(child) = node.plus {
                match level {
                    "#" => self.all_below(child, met),
                    _ => self.walk_filter(child, behind, covers, who, met),
                }
            }
        }
        match level {
            "#" | "+" => {
                if level == "#" {
                    met.add(&node.here, false);
                }
                let literals = node.literals.iter().filter(|(literal, _)| !is_hidden(at, literal));
                for child in literals.map(|(_, &child)| child).chain(node.templates.values().copied()) {
                    match level {
                        "#" => self.all_below(child, met),
                        _ => self.walk_filter(child, behind, false, who, met),
                    }
                }
            }
            level => {
                if let Some(child) = node.literal(level) {
                    self.walk_filter(child, behind, covers, who, met);
                }
                for (template, child) in &node.templates {
                    if !is_hidden(at, level) && template.matches(level, who) {
                        self.walk_filter(*child, behind, covers, who, met);
                    }
                }
            }
        }
    }

    /// Every rule from `at` on overlaps.
    fn all_below(&self, at: usize, met: &mut Meeting) {
        let Some(node) = self.0.get(at) else { return };
        met.add(&node.here, false);
        met.add(&node.hash, false);
        for &child in node.literals.values().chain(node.templates.values()).chain(&node.plus) {
            self.all_below(child, met);
        }
    }
}

impl Node {
    fn literal(&self, level: &str) -> Option<usize> {
        self.literals.get(level).copied()
    }
}

/// Whether a level is a first one that no wildcard matches, since it starts with `$` (MQTT 5.0 section 4.7.2). Nor does a
/// template: a client may choose its id, and with it a `$` topic.
fn is_hidden(at: usize, level: &str) -> bool {
    at == 0 && level.starts_with('$')
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('/').map_or((text, None), |(level, behind)| (level, Some(behind)))
}
