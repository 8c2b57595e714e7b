//! Names for the other end, made from the levels of a topic.

use std::fmt;

/// A name with places for parts of a topic: `plant-{1}`, `{topic}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A level of the topic, from 0.
    Level(usize),
    /// The whole topic.
    Topic,
    /// The key of a Kafka record.
    Key,
}

impl Template {
    /// Reads a template. The error says what is wrong and what to write.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, after)) = behind.split_once('}') else {
                return Err(format!("{text:?} has a {{ without a }}"));
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(match name {
                "topic" => Part::Topic,
                "key" => Part::Key,
                _ => match name.parse::<usize>() {
                    Ok(level) => Part::Level(level),
                    Err(_) => {
                        return Err(format!(
                            "{{{name}}} is unknown; write {{topic}}, {{key}}, or {{0}} for the first level"
                        ));
                    }
                },
            });
            rest = after;
        }
        if rest.contains('}') {
            return Err(format!("{text:?} has a }} without a {{"));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// The highest level it asks for.
    pub(crate) fn deepest(&self) -> Option<usize> {
        let level = |part: &Part| if let Part::Level(level) = part { Some(*level) } else { None };
        self.parts.iter().filter_map(level).max()
    }

    /// Whether it is a name for a whole topic, and not only something to put in front.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Topic | Part::Key))
    }

    /// Whether it asks for the key of a Kafka record.
    pub(crate) fn wants_key(&self) -> bool {
        self.parts.contains(&Part::Key)
    }

    /// Whether it is the same for every topic.
    pub(crate) fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// Whether there is nothing in it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text for `topic`, with `key` where that is asked for; `None` if the topic has too few levels or there is no key.
    pub(crate) fn fill(&self, topic: &str, key: Option<&str>) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Topic => text.push_str(topic),
                Part::Key => text.push_str(key?),
                Part::Level(level) => text.push_str(topic.split('/').nth(*level)?),
            }
        }
        Some(text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Level(level) => write!(f, "{{{level}}}")?,
                Part::Topic => f.write_str("{topic}")?,
                Part::Key => f.write_str("{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DP-01
    #[test]
    fn levels_of_the_topic_go_into_the_name() {
        let fill = |template: &str, topic| Template::parse(template).unwrap().fill(topic, None);
        assert_eq!(fill("plant-{1}", "plant/7/temperature").as_deref(), Some("plant-7"));
        assert_eq!(fill("{0}.{2}", "plant/7/temperature").as_deref(), Some("plant.temperature"));
        assert_eq!(fill("x/{topic}", "a/b").as_deref(), Some("x/a/b"));
        assert_eq!(fill("plant", "a/b").as_deref(), Some("plant"));
        assert_eq!(fill("{2}", "a/b"), None, "there is no third level");
        assert_eq!(fill("{key}", "a/b"), None, "there is no key");
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said() {
        for (bad, want) in [("a{", "without a }"), ("a}", "without a {"), ("{-1}", "{0}"), ("{name}", "{topic}")] {
            let said = Template::parse(bad).unwrap_err();
            assert!(said.contains(want), "{bad}: {said}");
        }
        let template = Template::parse("plant-{1}/{topic}").unwrap();
        assert_eq!((template.deepest(), template.is_whole(), template.is_constant()), (Some(1), true, false));
        assert_eq!(template.to_string(), "plant-{1}/{topic}");
    }
}
