//! Which brokers are compared, as the command line says it.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::{Contender, Plan, Recipe};
use crate::error::BenchError;

/// Which brokers are compared, and how those are started that do not run.
#[derive(Args, Clone, Debug)]
pub(crate) struct ContenderArgs {
    /// Brokers: names of start recipes, or `NAME=HOST:PORT` of brokers that run, with `@PID` or `@URL` of metrics behind; none lists the recipes
    pub(crate) contenders: Vec<String>,
    /// Runs of each broker
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// File with more start recipes
    #[arg(long)]
    pub(crate) recipes: Option<PathBuf>,
    /// First port of brokers that are started here
    #[arg(long, default_value_t = 20_901)]
    pub(crate) port: u16,
    /// Processors of brokers that are started here, such as 0 or 0-3
    #[arg(long)]
    pub(crate) cpus: Option<String>,
}

impl ContenderArgs {
    /// The brokers; none if there are none, and the recipes are to be listed.
    pub(crate) fn contenders(&self) -> Result<Option<Vec<Contender>>, BenchError> {
        if self.contenders.is_empty() {
            return Ok(None);
        }
        let recipes = Recipe::all(self.recipes.as_deref())?;
        let all: Vec<Contender> =
            self.contenders.iter().map(|text| Contender::parse(text, &recipes)).collect::<Result<_, _>>()?;
        for (place, contender) in all.iter().enumerate() {
            if all.iter().take(place).any(|other| other.name() == contender.name()) {
                let name = contender.name();
                return Err(BenchError::Usage(format!("there are two brokers {name}: give one another name")));
            }
        }
        Ok(Some(all))
    }

    /// How they are compared.
    pub(crate) fn plan(&self) -> Plan {
        let folder = std::env::temp_dir().join(format!("sedge-bench-{}", std::process::id()));
        Plan { rounds: self.rounds.max(1), port: self.port, cpus: self.cpus.clone(), folder }
    }

    /// The recipes, and what of them is installed.
    pub(crate) fn list(&self) -> Result<String, BenchError> {
        let recipes = Recipe::all(self.recipes.as_deref())?;
        let width = recipes.iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for recipe in recipes {
            let installed = recipe.missing().is_empty();
            let more = if installed { recipe.version() } else { recipe.get.as_ref().map(|get| format!("get: {get}")) };
            let state = if installed { "installed" } else { "not installed" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:<width$}  {state:<13}  {}", recipe.name, more.unwrap_or_default());
        }
        Ok(text)
    }
}
