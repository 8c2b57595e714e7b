//! `[otlp]`: traces for a collector of OpenTelemetry.

use std::path::PathBuf;

use sedge_mqtt::TopicFilter;

/// Most topic filters.
const TOPICS_MAX: usize = 100;
/// Where collectors take traces, below their address.
#[cfg(feature = "otlp")]
const PATH: &str = "/v1/traces";

/// `[otlp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// Address of the collector, `http://host:4318` or `https://...`; empty: none.
    pub endpoint: String,
    /// Topic filters of the publications that are followed.
    pub topics: Vec<String>,
    /// One publication of so many is followed.
    pub one_in: u32,
    /// File with headers for the collector, `Name: value` on each line.
    pub header_file: Option<PathBuf>,
    /// Authorities of the collector's certificate (PEM); `None`: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self { endpoint: String::new(), topics: vec!["#".to_owned()], one_in: 1_000, header_file: None, ca_file: None }
    }
}

impl OtlpConfig {
    /// Where traces are sent.
    #[cfg(feature = "otlp")]
    pub(crate) fn traces_url(&self) -> String {
        let base = self.endpoint.trim_end_matches('/');
        if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
    }

    /// The mistakes in this section: each a key and what is wrong with it.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.endpoint.is_empty() {
            let files = [("otlp.header_file", &self.header_file), ("otlp.ca_file", &self.ca_file)];
            let given = files.into_iter().filter(|(_, file)| file.is_some());
            return given.map(|(key, _)| (key, "is of no use without otlp.endpoint".to_owned())).collect();
        }
        let has_host = ["http://", "https://"]
            .iter()
            .any(|scheme| self.endpoint.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
        if !has_host || self.endpoint.contains(char::is_whitespace) {
            problems
                .push(("otlp.endpoint", format!("{:?}: write http://host:4318 or https://host:port", self.endpoint)));
        } else if !cfg!(feature = "otlp") {
            let what = "this build has no export to OpenTelemetry: build with --features otlp, or remove it";
            problems.push(("otlp.endpoint", what.to_owned()));
        }
        if self.topics.len() > TOPICS_MAX {
            problems.push(("otlp.topics", format!("there are more than {TOPICS_MAX} topic filters")));
        }
        for topic in &self.topics {
            if let Err(error) = TopicFilter::new(topic) {
                problems.push(("otlp.topics", format!("{topic:?}: {error}")));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    fn problems(toml: &str) -> Vec<String> {
        let error = crate::Config::from_toml(toml).err();
        error
            .into_iter()
            .flat_map(|error| error.problems)
            .map(|problem| format!("{}: {}", problem.key, problem.what))
            .collect()
    }

    /// OP-07
    #[test]
    fn what_cannot_be_is_named() {
        assert!(problems("[otlp]\none_in = 7").is_empty());
        let told = problems("[otlp]\nendpoint = \"collector:4318\"\ntopics = [\"a/#/b\"]");
        assert!(told.len() == 2 && told[0].contains("http://host:4318") && told[1].contains("\"a/#/b\""), "{told:?}");
        let told = problems("[otlp]\nheader_file = \"h\"");
        assert!(told.len() == 1 && told[0].contains("without otlp.endpoint"), "{told:?}");
        let told = problems("[otlp]\nendpoint = \"http://collector:4318\"");
        assert_eq!(told.is_empty(), cfg!(feature = "otlp"), "{told:?}");
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn the_path_is_added_once() {
        use super::OtlpConfig;

        for endpoint in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            let config = OtlpConfig { endpoint: endpoint.to_owned(), ..OtlpConfig::default() };
            assert_eq!(config.traces_url(), "http://c:4318/v1/traces");
        }
    }
}
