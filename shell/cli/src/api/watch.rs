//! `--watch`: a listing again and again.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How soon a signal ends the waiting.
const STEP: Duration = Duration::from_millis(50);

/// How often to show a listing.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Show it again every so many seconds (2 if no number is given) until Ctrl-C: redrawn on a terminal, one after the other elsewhere
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    watch: Option<u16>,
}

/// A listing at one moment.
pub(crate) enum Page {
    /// Text for people.
    Text(String),
    /// The API's answer.
    Json(String),
}

impl Page {
    /// A value as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Failure> {
        let text = serde_json::to_string(value);
        text.map(Self::Json).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))
    }

    fn print(&self) -> Result<(), Failure> {
        match self {
            Self::Text(text) => out::line(text),
            Self::Json(text) => out::json_text(text),
        }
    }
}

impl WatchArgs {
    /// Shows what `page` makes, once or until a signal comes. An error after the first page may pass, and is shown in place of the page.
    pub(crate) fn show(&self, page: impl Fn() -> Result<Page, Failure>) -> Result<(), Failure> {
        let first = page()?;
        let Some(seconds) = self.watch else { return first.print() };
        let stop = Stop::on_signals()?;
        let every = Duration::from_secs(u64::from(seconds));
        let (mut shown, mut is_first) = (Ok(first), true);
        loop {
            let due = Instant::now() + every;
            tell(&shown, seconds, is_first)?;
            while Instant::now() < due {
                if stop.told() {
                    return Ok(());
                }
                std::thread::sleep(STEP.min(due.saturating_duration_since(Instant::now())));
            }
            (shown, is_first) = (page(), false);
        }
    }
}

fn tell(shown: &Result<Page, Failure>, seconds: u16, is_first: bool) -> Result<(), Failure> {
    let problem = |failure: &Failure| format!("error: {}", failure.message.as_deref().unwrap_or("no answer"));
    match shown {
        Ok(Page::Json(text)) => out::json_text(text),
        Ok(Page::Text(text)) => redraw_or_append(text, seconds, is_first),
        Err(failure) if out::is_terminal() => redraw_or_append(&problem(failure), seconds, is_first),
        // Programs read standard output.
        Err(failure) => {
            out::note(&problem(failure));
            Ok(())
        }
    }
}

fn redraw_or_append(text: &str, seconds: u16, is_first: bool) -> Result<(), Failure> {
    if out::is_terminal() {
        return out::screen(&format!("every {seconds} s until Ctrl-C\n\n{text}"));
    }
    out::line(&if is_first { text.to_owned() } else { format!("\n{text}") })
}
