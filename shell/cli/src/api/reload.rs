//! `sedge reload`.

use clap::Args;
use sedge_base::printable;
use sedge_daemon::http::model::Reload;

use super::commands::ApiArgs;
use crate::failure::{FAILED, Failure};
use crate::out;
use crate::table::table;

const EXAMPLES: &str = "\
Examples:
  sedge reload                               after certificates, accounts, rules or the configuration changed
  sedge reload --json | jq '.restart'        keys that count from the next start on

Exit code 1: something could not be used; what was read before stays in use. Files belong to one node: ask each of them.";

/// Flags of `sedge reload`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge reload`.
pub(crate) fn reload(args: &ReloadArgs) -> Result<(), Failure> {
    let answer = args.api.client()?.post_with_problems::<Reload>("/api/v1/reload")?;
    if args.api.json {
        out::json_text(&answer.body)?;
    } else {
        out::line(&text(&answer.value))?;
    }
    let problems = answer.value.reloaded.iter().filter(|part| part.problem.is_some()).count();
    match problems {
        0 => Ok(()),
        _ if args.api.json => Err(Failure::silent(FAILED)),
        _ => Err(Failure::failed("not everything could be used; what was read before stays in use")),
    }
}

fn text(reload: &Reload) -> String {
    let parts = reload.reloaded.iter().map(|part| {
        let result = part
            .problem
            .as_deref()
            .map_or_else(|| "read again".to_owned(), |problem| format!("cannot be used: {}", printable(problem)));
        vec![part.what.clone(), result]
    });
    let applied = reload.applied.iter().map(|key| vec![key.clone(), "changed, counts at once".to_owned()]);
    let restart = reload.restart.iter().map(|key| vec![key.clone(), "changed, needs a restart of the node".to_owned()]);
    table(&["WHAT", "RESULT"], &parts.chain(applied).chain(restart).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use sedge_daemon::http::model::ReloadedPart;

    use super::*;

    /// OP-09
    #[test]
    fn each_key_has_a_line_that_says_when_it_counts() {
        let part = |what: &str, problem: Option<&str>| ReloadedPart {
            what: what.to_owned(),
            problem: problem.map(str::to_owned),
        };
        let reload = Reload {
            reloaded: vec![part("access", None), part("listener.tls", Some("no\x1b[2J certificate"))],
            applied: vec!["rule.hot".to_owned()],
            restart: vec!["mqtt.port".to_owned()],
        };
        let text = text(&reload);
        let wanted = [
            "WHAT          RESULT",
            "access        read again",
            "listener.tls  cannot be used: no\\x1b[2J certificate",
            "rule.hot      changed, counts at once",
            "mqtt.port     changed, needs a restart of the node",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
    }
}
