//! Descriptions of the command line for other programs: completions for shells, and manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::out;

const COMPLETIONS: &str = "\
Where shells look for them:
  sedge completions bash > /usr/share/bash-completion/completions/sedge
  sedge completions zsh > /usr/share/zsh/vendor-completions/_sedge
  sedge completions fish > /usr/share/fish/vendor_completions.d/sedge.fish
For yourself only: ~/.local/share/bash-completion/completions/sedge, a directory of zsh's $fpath, ~/.config/fish/completions";

/// Print what makes a shell complete commands and flags
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Write manual pages: sedge.1 and one for each command
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write them to; it is made if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs `sedge completions`.
pub(crate) fn completions(args: &CompletionsArgs, program: &mut Command) -> Result<(), Failure> {
    let shell = match args.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "sedge", &mut script);
    out::raw(&script)
}

/// Runs `sedge man`.
pub(crate) fn man(args: &ManArgs, program: Command) -> Result<(), Failure> {
    let failed = |path: &Path, error| Failure::failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(&args.directory).map_err(|error| failed(&args.directory, error))?;
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    collect("sedge", &program, &mut pages)?;
    for (name, page) in &pages {
        let path = args.directory.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|error| failed(&path, error))?;
    }
    out::line(&format!("{} pages in {}", pages.len(), args.directory.display()))
}

/// The page of `command` and those of all below it.
fn collect(name: &str, command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let mut page = Vec::new();
    let titled = command.clone().display_name(name.to_owned());
    Man::new(titled).render(&mut page).map_err(|error| Failure::failed(format!("{name}.1: {error}")))?;
    pages.push((name.to_owned(), page));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(&format!("{name}-{}", below.get_name()), below, pages)?;
    }
    Ok(())
}
