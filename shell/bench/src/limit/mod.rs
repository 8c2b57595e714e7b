//! The limit search: the highest load at which messages do not pile up in the brokers.

mod checks;

pub(crate) use checks::tester_limits;
