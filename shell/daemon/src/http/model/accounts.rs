//! Accounts and settings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who is in the password file of a node (`GET /api/v1/accounts`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accounts {
    /// The file (`auth.password_file`); none: the node has no accounts that can be changed here.
    pub file: Option<String>,
    /// By name.
    pub accounts: Vec<Account>,
    /// After a change at other nodes: how it went there, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<AccountElsewhere>,
}

/// A change of an account at another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountElsewhere {
    /// Name of the node.
    pub node: String,
    /// Why its file is as before, or that it has not answered; none: it has changed.
    pub problem: Option<String>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// What its password is hashed for: `sha-256` or `sha-512` with SCRAM; none: argon2id or a hash of another program.
    pub scram: Option<String>,
}

/// A password for an account.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct NewPassword {
    /// The password.
    pub password: String,
}

/// The settings of a node (`GET /api/v1/settings`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settings {
    /// Every key, in the order of docs/configuration.md.
    pub settings: Vec<SettingEntry>,
}

/// One key, as file, environment and flags have it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingEntry {
    /// `section.key`.
    pub key: String,
    /// The value as TOML and JSON write it; none: a secret, or a default that is no constant.
    pub value: Option<String>,
    /// What stands for a value that is none.
    pub words: Option<String>,
    /// Where it comes from: file and line, a variable, a flag, or `default`.
    pub from: String,
    /// The node runs with another value: `reload` (it counts from the next reload on), or `restart`.
    pub waits_for: Option<String>,
}
