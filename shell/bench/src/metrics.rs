//! Processor time and memory of brokers on other machines, from their metrics in the Prometheus text format.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ureq::http::StatusCode;
use ureq::typestate::WithoutBody;
use ureq::{Agent, RequestBuilder};

use crate::error::BenchError;
use crate::host::Usage;
use crate::num;

/// Most time for one answer: a broker at its limit may be slow to give it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer that is read, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// Where processor time is, and how many of its units are a second: what client libraries of Prometheus give every process,
/// and what brokers on the Erlang VM (`RabbitMQ`, EMQX) give instead.
const CPU: [(&str, f64); 2] = [("process_cpu_seconds_total", 1.0), ("erlang_vm_statistics_runtime_milliseconds", 1e3)];
/// Where resident memory in bytes is.
const MEMORY: &str = "process_resident_memory_bytes";

/// A page of metrics: `http://HOST:PORT/PATH`; without a path it is `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsUrl(String);

impl fmt::Display for MetricsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MetricsUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{text}: {what}; metrics are at http://HOST:PORT/PATH");
        let Some(rest) = text.strip_prefix("http://") else { return Err(wrong("this does not begin with http://")) };
        let (host, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
        if host.is_empty() || host.contains(char::is_whitespace) || path.contains(char::is_whitespace) {
            return Err(wrong("there is no host"));
        }
        Ok(Self(format!("http://{host}/{path}")))
    }
}

/// Token that a request shows to be answered.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of visible ASCII".to_owned());
        }
        Ok(Self(format!("Bearer {text}")))
    }
}

impl Token {
    /// `request` with the token in its header, if there is one.
    pub(crate) fn show(token: Option<&Self>, request: RequestBuilder<WithoutBody>) -> RequestBuilder<WithoutBody> {
        match token {
            Some(Self(words)) => request.header("Authorization", words),
            None => request,
        }
    }
}

/// One broker's metrics.
#[derive(Debug)]
struct Source {
    url: MetricsUrl,
    /// Processor time that processes before a restart had used, and what the present one had when it was asked last.
    earlier: f64,
    last: f64,
    /// The first time that it did not answer, and how often that was.
    silent: Option<(String, u64)>,
}

/// The metrics of all brokers of a run.
#[derive(Debug)]
pub(crate) struct Metrics {
    agent: Agent,
    token: Option<Token>,
    sources: Vec<Source>,
}

impl Metrics {
    /// Asks each page once, so that an address that is wrong is known before anything is measured.
    pub(crate) fn new(urls: &[MetricsUrl], token: Option<Token>) -> Result<Self, BenchError> {
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        let agent = Agent::new_with_config(config);
        let source = |url: &MetricsUrl| Source { url: url.clone(), earlier: 0.0, last: 0.0, silent: None };
        let mut metrics = Self { agent, token, sources: urls.iter().map(source).collect() };
        for source in &mut metrics.sources {
            source.last = ask(&metrics.agent, &source.url, metrics.token.as_ref()).map_err(BenchError::Usage)?.cpu_s;
        }
        Ok(metrics)
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Processor time and memory of all brokers together.
    /// A broker that does not answer counts with the processor time it had, and no memory.
    pub(crate) fn usage(&mut self) -> Option<Usage> {
        let mut sum: Option<Usage> = None;
        for source in &mut self.sources {
            let memory = match ask(&self.agent, &source.url, self.token.as_ref()) {
                Ok(usage) => {
                    if usage.cpu_s < source.last {
                        source.earlier += source.last;
                    }
                    source.last = usage.cpu_s;
                    usage.rss_kib
                }
                Err(text) => {
                    source.silent.get_or_insert((text, 0)).1 += 1;
                    0
                }
            };
            let one = Usage { cpu_s: source.earlier + source.last, rss_kib: memory };
            sum = Some(sum.unwrap_or_default().and(one));
        }
        sum
    }

    /// Failures of the requests for metrics, as sentences.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let silent = self.sources.iter().filter_map(|source| source.silent.as_ref());
        silent.map(|(text, times)| format!("{text} ({times} times): what it used meanwhile is not in the figures"))
    }
}

/// Asks the page at `url` for the usage of its broker; an error holds the address and the fault.
fn ask(agent: &Agent, url: &MetricsUrl, token: Option<&Token>) -> Result<Usage, String> {
    let MetricsUrl(url) = url;
    let mut response =
        Token::show(token, agent.get(url)).call().map_err(|error| format!("metrics at {url}: {error}"))?;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return Err(format!("metrics at {url}: the answer is {status}; give its token with --token"));
    }
    if !status.is_success() {
        return Err(format!("metrics at {url}: the answer is {status}"));
    }
    let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
    let text = text.map_err(|error| format!("metrics at {url}: {error}"))?;
    understand(&text).map_err(|what| format!("metrics at {url}: {what}"))
}

/// Processor time and memory from a page of metrics.
fn understand(text: &str) -> Result<Usage, String> {
    let cpu = CPU.iter().find_map(|(name, unit)| Some(sum_of(text, name)? / unit));
    let cpu_s = cpu.ok_or_else(|| format!("it has neither {} nor {}", CPU[0].0, CPU[1].0))?;
    let bytes = sum_of(text, MEMORY).ok_or_else(|| format!("it has no {MEMORY}"))?;
    Ok(Usage { cpu_s, rss_kib: num::whole(bytes / 1_024.0) })
}

/// The sum of all samples of the metric `name`, which may have a prefix; none if there are none.
fn sum_of(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (found, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
        let prefix = found.strip_suffix(name)?;
        if !prefix.is_empty() && !prefix.ends_with('_') {
            return None;
        }
        // A label's value may hold anything, brackets included; a sample's value and time hold none.
        let behind = rest.rsplit_once('}').map_or(rest, |(_, behind)| behind);
        behind.split_whitespace().next()?.parse::<f64>().ok().filter(|value| value.is_finite())
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_different_brokers_are_understood() {
        let usage = |text: &str| understand(text).map(|usage| (usage.cpu_s, usage.rss_kib));
        let plain = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n\
                     process_resident_memory_bytes 2.097152e+06 1700000000000\nother_cpu_seconds_total 9\n";
        assert_eq!(usage(plain), Ok((1.5, 2_048)));
        let erlang = "erlang_vm_statistics_runtime_milliseconds{node=\"a} 7\"} 2500\n\
                      erlang_vm_statistics_runtime_milliseconds{node=\"b\"} 500\n\
                      rabbitmq_process_resident_memory_bytes{pid=\"1\"} 4096\n";
        assert_eq!(usage(erlang), Ok((3.0, 4)));
        for (text, missing) in [
            ("", "process_cpu_seconds_total"),
            ("process_cpu_seconds_total NaN\n", "process_cpu_seconds_total"),
            ("process_cpu_seconds_total 1\nxprocess_resident_memory_bytes 1\n", MEMORY),
        ] {
            assert!(usage(text).expect_err(text).contains(missing));
        }
    }

    #[test]
    fn a_token_is_shown_to_the_broker_only() {
        let token: Token = "s3cret".parse().expect("a token");
        assert!(!format!("{token:?}").contains("s3cret"));
        let request = Token::show(Some(&token), Agent::new_with_defaults().get("http://h/metrics"));
        assert_eq!(
            request.headers_ref().and_then(|headers| headers.get("Authorization")).expect("it is there"),
            "Bearer s3cret"
        );
        for text in ["", "two words", "tab\t", "\u{e9}"] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_are_checked() {
        let MetricsUrl(url) = "http://h:8080".parse().expect("an address");
        assert_eq!(url, "http://h:8080/metrics");
        assert!("http://h:1/api/prometheus".parse::<MetricsUrl>().is_ok());
        for text in ["h:8080", "https://h/metrics", "http://", "http:///metrics", "http://a b/"] {
            assert!(text.parse::<MetricsUrl>().is_err(), "{text}");
        }
    }
}
