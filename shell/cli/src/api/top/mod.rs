//! `sedge top`: the figures of all nodes on one page that is drawn again and again.

mod draw;
mod frame;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::draw::Look;
use self::frame::{Before, Frame, Order, gather};
use super::client::Api;
use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How soon a key, a signal or a new page is noticed.
const STEP: Duration = Duration::from_millis(50);
/// Rows that page up and page down move by.
const PAGE: isize = 10;

const EXAMPLES: &str = "\
Examples:
  sedge top                            all nodes, slow subscribers and hot topics, drawn again every two seconds
  sedge top --sort queue               the node with the most waiting messages first
  sedge top --once                     one page as text, for scripts and tickets

Keys: n c i o p m u sort by node, clients, messages in, messages out, processor, memory, queue; r the other way round; arrows scroll;
space pauses; q or Ctrl-C ends.";

/// Show on one page what all nodes do: clients, messages a second, processor, memory, queues, slow subscribers, hot topics
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Draw again after so many seconds; rates are over this time
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=3600))]
    every: u16,
    /// Print one page as text, after one such time, and end; --json prints one as JSON
    #[arg(long)]
    once: bool,
    /// Sort the nodes by this: names upward, numbers from the largest down
    #[arg(long, value_name = "WHAT", default_value = "name")]
    sort: Order,
    /// Sort the other way round
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge top`.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    let every = Duration::from_secs(u64::from(args.every));
    if args.once || args.api.json {
        return once(args, &api, every);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage("sedge top draws on a terminal, and this is none: --once prints one page as text"));
    }
    let mut before = Before::default();
    // An error at once is better read without a page around it.
    let first = gather(&api, args.api.ids, &mut before)?;
    let stop = Stop::on_signals()?;
    let (pages, incoming) = sync_channel(1);
    let (wake, woken) = sync_channel(1);
    let ids = args.api.ids;
    // The thread ends with the program, or when nobody takes its pages.
    thread::spawn(move || feed(&api, ids, before, every, &pages, &woken));
    let terminal = ratatui::try_init();
    let mut terminal = terminal.map_err(|error| Failure::failed(format!("cannot use the terminal: {error}")))?;
    let look = Look { order: args.sort, reverse: args.reverse, paused: false, seconds: args.every, skip: 0 };
    let mut page = Page { frame: first, problem: None, look };
    let done = page.show(&mut terminal, &incoming, &wake, &stop);
    ratatui::restore();
    done.map_err(|error| Failure::failed(format!("cannot draw on the terminal: {error}")))
}

/// One page, with rates over one interval.
fn once(args: &TopArgs, api: &Api, every: Duration) -> Result<(), Failure> {
    let mut before = Before::default();
    gather(api, args.api.ids, &mut before)?;
    thread::sleep(every);
    let mut frame = gather(api, args.api.ids, &mut before)?;
    args.sort.sort(&mut frame.nodes, args.reverse);
    if args.api.json { out::json(&frame) } else { out::line(&draw::plain(&frame)) }
}

/// Makes pages until nobody wants them: asking takes time, and keys shall not wait for it.
fn feed(
    api: &Api,
    ids: bool,
    mut before: Before,
    every: Duration,
    pages: &SyncSender<Result<Frame, String>>,
    woken: &Receiver<()>,
) {
    loop {
        if woken.recv_timeout(every) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let page = gather(api, ids, &mut before);
        let page = page.map_err(|failure| failure.message.unwrap_or_else(|| "no answer".to_owned()));
        if pages.send(page).is_err() {
            return;
        }
    }
}

/// Content of the screen: the last frame, the last problem, and how both are shown.
struct Page {
    frame: Frame,
    problem: Option<String>,
    look: Look,
}

impl Page {
    /// Shows pages until a key or a signal ends it.
    fn show(
        &mut self,
        terminal: &mut DefaultTerminal,
        incoming: &Receiver<Result<Frame, String>>,
        wake: &SyncSender<()>,
        stop: &Stop,
    ) -> io::Result<()> {
        let mut changed = true;
        while !stop.told() {
            changed |= self.take(incoming)?;
            if std::mem::take(&mut changed) {
                self.look.order.sort(&mut self.frame.nodes, self.look.reverse);
                self.look.skip = self.look.skip.min(self.frame.nodes.len().saturating_sub(1));
                terminal.draw(|screen| draw::screen(screen, &self.frame, self.problem.as_deref(), self.look))?;
            }
            if !event::poll(STEP)? {
                continue;
            }
            let event = event::read()?;
            let Event::Key(key) = event else {
                changed = true;
                continue;
            };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
            if matches!((key.code, is_control), (KeyCode::Char('q') | KeyCode::Esc, _) | (KeyCode::Char('c'), true)) {
                return Ok(());
            }
            self.obey(key.code);
            if !self.look.paused && key.code == KeyCode::Char(' ') {
                // If one is on its way, that will do.
                let _ = wake.try_send(());
            }
            changed = true;
        }
        Ok(())
    }

    /// Takes the newest page, if there is one; a paused one stays.
    fn take(&mut self, incoming: &Receiver<Result<Frame, String>>) -> io::Result<bool> {
        match incoming.try_recv() {
            Ok(_) if self.look.paused => Ok(false),
            Ok(Ok(frame)) => {
                (self.frame, self.problem) = (frame, None);
                Ok(true)
            }
            Ok(Err(problem)) => {
                self.problem = Some(problem);
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the thread that asks the nodes has ended")),
        }
    }

    fn obey(&mut self, key: KeyCode) {
        let look = &mut self.look;
        if let KeyCode::Char(letter) = key {
            look.paused ^= letter == ' ';
            look.reverse ^= letter == 'r';
            if let Some(order) = Order::ALL.into_iter().find(|order| order.label().1 == letter) {
                look.order = order;
            }
        } else if key == KeyCode::Home {
            look.skip = 0;
        } else {
            let keys = [(KeyCode::Down, 1), (KeyCode::Up, -1), (KeyCode::PageDown, PAGE), (KeyCode::PageUp, -PAGE)];
            let moved = keys.into_iter().find(|(known, _)| *known == key).map_or(0, |(_, rows)| rows);
            look.skip = look.skip.saturating_add_signed(moved);
        }
    }
}
