//! Processor time and memory of brokers that are watched through their metrics.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{figures, try_bench};
use crate::simulated::{Broker, Faults};
use serde_json::Value;

/// Pages that are served from here: the body of each is made from its number, from 0, and comes with `status`.
fn pages(status: &'static str, body: impl Fn(u64) -> String + Send + 'static) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length > 0) {
                request.extend_from_slice(&byte);
            }
            let body = body(count.fetch_add(1, Ordering::Relaxed));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    (format!("http://{address}/metrics"), served)
}

fn page(cpu_s: u64, mib: u64) -> String {
    let bytes = mib << 20;
    format!("# HELP x\nprocess_cpu_seconds_total {cpu_s}\nprocess_resident_memory_bytes {bytes}\nother{{a=\"b\"}} 1\n")
}

/// BM-19
#[test]
fn brokers_elsewhere_are_watched_phase_by_phase() {
    let broker = Broker::start(Faults::default());
    // Each page says a second and a MiB more than the one before; the fifth comes after a restart.
    let (first, served) = pages("200 OK", |number| page(if number < 4 { 10 + number } else { number - 4 }, 1 + number));
    let (second, _) = pages("200 OK", |_| page(5, 100));
    let words = "run pairs --publishers 2 --rate 200 --warmup 0.1 --duration 0.3 --drain 1";
    let all = figures(&format!("{words} --broker {} --metrics {first},{second}", broker.address));
    let phases = all.get("phases").and_then(Value::as_array).expect("phases");
    let number = |phase: &Value, name: &str| phase.get(name).and_then(Value::as_f64).expect("a number");
    let cpu: Vec<f64> = phases.iter().map(|phase| number(phase, "broker_cpu_s")).collect();
    let total: f64 = cpu.iter().sum();
    // The restart loses what was used since the page before it; nothing goes backwards.
    let asked = served.load(Ordering::Relaxed);
    assert!(
        cpu.iter().all(|cpu| *cpu >= 0.0) && (total - f64::from(u32::try_from(asked).expect("few") - 3)).abs() < 1.0,
        "{cpu:?} {asked}"
    );
    let memory: Vec<f64> = phases.iter().map(|phase| number(phase, "broker_rss_kib")).collect();
    assert!(memory.is_sorted() && memory.iter().all(|kib| *kib > 100.0 * 1_024.0), "{memory:?}");
    for name in ["broker_cpu_s", "egress_per_cpu_s", "broker_rss_kib"] {
        assert!(all.get(name).and_then(Value::as_f64).is_some_and(|value| value > 0.0), "{name}");
    }
    let warnings = all.get("warnings").and_then(Value::as_array).expect("warnings");
    assert!(
        !warnings.iter().any(|warning| warning.as_str().is_some_and(|text| text.contains("metrics"))),
        "{warnings:?}"
    );
}

#[test]
fn a_page_that_cannot_be_used_is_named() {
    let (empty, _) = pages("200 OK", |_| "nothing 1\n".to_owned());
    let (refused, _) = pages("404 Not Found", |_| String::new());
    for (url, what) in [
        (empty.as_str(), "process_cpu_seconds_total"),
        (refused.as_str(), "404"),
        ("http://127.0.0.1:1/metrics", "refused"),
    ] {
        let error = try_bench(&format!("run pairs --broker 127.0.0.1:1 --metrics {url}")).expect_err("no metrics");
        let text = error.to_string();
        assert!(text.contains(url) && text.contains(what), "{text}");
    }
}

#[test]
fn a_page_that_goes_silent_is_a_warning() {
    let broker = Broker::start(Faults::default());
    let (url, _) = pages("200 OK", |number| if number < 3 { page(number, 1) } else { "gone 1\n".to_owned() });
    let words = "run pairs --publishers 2 --rate 200 --warmup 0.1 --duration 0.2 --drain 1";
    let all = figures(&format!("{words} --broker {} --metrics {url}", broker.address));
    let warnings = all.get("warnings").and_then(Value::as_array).expect("warnings");
    assert!(warnings.iter().any(|warning| warning.as_str().is_some_and(|text| text.contains(&url))), "{warnings:?}");
}
