//! Site files: YAML to a tree with lines, and that to a checked site.

use std::fs;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use sedge_scale::Site;
use sedge_scale::site::{Key, Tree, Value};

use crate::error::ScaleError;

/// Most bytes of a site file.
const MAX_BYTES: u64 = 1 << 20;

/// A site file and its content.
#[derive(Clone, Debug)]
pub struct SiteFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its content.
    pub site: Site,
}

impl SiteFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or all that is wrong in it, one line each: `FILE: line N: FIELD: PROBLEM`.
    pub fn load(path: &Path) -> Result<Self, ScaleError> {
        let unreadable = |error| ScaleError::file("cannot read", path, error);
        let absolute = fs::canonicalize(path).map_err(unreadable)?;
        if fs::metadata(&absolute).map_err(unreadable)?.len() > MAX_BYTES {
            return Err(ScaleError::Site(format!("{}: is larger than 1 MiB", path.display())));
        }
        let text = fs::read_to_string(&absolute).map_err(unreadable)?;
        let site = parse(&text).map_err(|problems| {
            let lines = problems.iter().map(|problem| format!("{}: {problem}", path.display()));
            ScaleError::Site(lines.collect::<Vec<_>>().join("\n"))
        })?;
        Ok(Self { path: absolute, site })
    }
}

/// The site that a text describes, or all that is wrong with it.
fn parse(text: &str) -> Result<Site, Vec<String>> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| {
        let line = error.marker().line();
        vec![format!("line {line}: this is no YAML: {}", error.info())]
    })?;
    let document = match documents.as_slice() {
        [document] => tree(document),
        [] => return Err(vec!["line 1: the file is empty; write resources: {...}".to_owned()]),
        [_, second, ..] => {
            return Err(vec![format!("line {}: a second document; write one only", second.span.start.line())]);
        }
    };
    Site::read(&document).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn tree(node: &MarkedYaml<'_>) -> Tree {
    let line = node.span.start.line();
    Tree { line, value: value(&node.data) }
}

fn value<'a>(data: &YamlData<'a, MarkedYaml<'a>>) -> Value {
    match data {
        YamlData::Value(scalar) => self::scalar(scalar),
        YamlData::Representation(text, _, _) => Value::Text(text.to_string()),
        YamlData::Sequence(items) => Value::List(items.iter().map(tree).collect()),
        YamlData::Mapping(entries) => {
            Value::Map(entries.iter().map(|(name, value)| (key(name), tree(value))).collect())
        }
        YamlData::Tagged(_, inner) => value(&inner.data),
        YamlData::Alias(_) | YamlData::BadValue => Value::Null,
    }
}

#[expect(clippy::cast_precision_loss, reason = "no field takes numbers beyond 2^52")]
fn scalar(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => Value::Bool(*value),
        Scalar::Integer(number) => Value::Number(*number as f64),
        Scalar::FloatingPoint(number) => Value::Number(number.into_inner()),
        Scalar::String(text) => Value::Text(text.to_string()),
    }
}

fn key(node: &MarkedYaml<'_>) -> Key {
    let name = match value(&node.data) {
        Value::Text(text) => text,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_)) => other.words(),
    };
    Key { line: node.span.start.line(), name }
}

#[cfg(test)]
mod tests {
    use sedge_scale::site::{Algorithm, Driver};

    use super::*;

    const EXAMPLE: &str = r#"
driver: process
resources:
  brokers: {type: group, member: {type: broker}, min: 1, max: 3}
  lb: {type: loadbalancer, backend: "${brokers}", algorithm: leastconn, port: 1883}      # HAProxy, started and kept by the driver
  high: {type: alarm, metric: connections, of: "${brokers}", stat: mean, period: 2s, evaluations: 1, op: ">", threshold: 50, action: "${out}"}
  low: {type: alarm, metric: connections, of: "${brokers}", stat: mean, period: 2s, evaluations: 1, op: "<", threshold: 5, action: "${in}"}
  out: {type: policy, group: "${brokers}", adjust: +1, cooldown: 5s}
  in: {type: policy, group: "${brokers}", adjust: -1, cooldown: 5s}
"#;

    /// EL-07
    #[test]
    fn the_example_of_the_documents_is_read() {
        let site = parse(EXAMPLE).unwrap();
        assert_eq!((site.driver, site.resources.len()), (Driver::Process, 6));
        let (name, balancer) = site.balancers().next().unwrap();
        assert_eq!(
            (name, balancer.algorithm, balancer.port, balancer.maxconn),
            ("lb", Algorithm::LeastConn, 1883, 50_000)
        );
    }

    /// EL-07
    #[test]
    fn errors_name_the_line_of_the_file() {
        let wrong = EXAMPLE.replace("min: 1, max: 3", "min: 4, max: 3").replace("leastconn", "fastest");
        let errors = parse(&wrong).unwrap_err();
        assert!(
            errors.iter().any(|error| error.starts_with("line 4: resources.brokers.min: 4 is more than max")),
            "{errors:?}"
        );
        assert!(errors.iter().any(|error| error.starts_with("line 5: resources.lb.algorithm:")), "{errors:?}");
        let broken = parse("driver: [process\nresources: {").unwrap_err();
        assert!(broken.iter().any(|error| error.contains("this is no YAML")), "{broken:?}");
        assert!(parse("").unwrap_err()[0].contains("empty"));
    }
}
