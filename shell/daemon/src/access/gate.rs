//! Identity of a client: the gate asks the source that knows the account, and caches the answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sedge_access::Rules;
use sedge_access::scram::{Exchange, Mechanism};
use sedge_base::Duration as Span;
use sedge_broker::{Admission, Credentials, Identity, Method, Policy};
use sedge_mqtt::ReasonCode;

use super::cache::{Cache, Fingerprint, Outcome, fingerprint};
use super::callout::CallOut;
use super::hash::Workspace;
use super::jwt::{self, Keys, Wanted};
use super::passwords::PasswordFile;
use super::pool::Pool;
use crate::config::{AclConfig, Anonymous, AuthConfig};
use crate::runtime::network;
use crate::{Config, StartError, identity};

/// Credentials and origin of one client that connects.
#[derive(Clone)]
pub(crate) struct Question {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
    pub(super) client: String,
    pub(super) peer: String,
}

/// Answer of the gate to a client.
pub(crate) struct Answer {
    told: Result<Admission, ReasonCode>,
    /// Accounts on which the answer rests, if it rests on any.
    accounts: Option<Arc<Accounts>>,
}

impl From<Result<Admission, ReasonCode>> for Answer {
    fn from(told: Result<Admission, ReasonCode>) -> Self {
        Self { told, accounts: None }
    }
}

/// Reply that the gate gives at once.
pub(crate) enum Said {
    Answer(Answer),
    /// The client has to say more.
    Challenge(Box<Exchange>),
}

impl From<Result<Admission, ReasonCode>> for Said {
    fn from(told: Result<Admission, ReasonCode>) -> Self {
        Self::Answer(told.into())
    }
}

/// Difference that reading the files again has made.
pub(crate) struct Change {
    pub(crate) policy: Policy,
    /// Users whose accounts are gone or have another password.
    pub(crate) revoked: BTreeSet<Box<str>>,
}

/// Longest time for which a token lets a client in, in seconds: longer than anything runs.
const LONGEST_ADMISSION: u64 = 100 * 365 * 86_400;

/// Accounts, keys and policy from the files, which a reload reads again.
#[derive(Default)]
struct Accounts {
    /// Counts how often they were read: answers of older ones mean nothing.
    generation: u64,
    passwords: Option<PasswordFile>,
    keys: Option<Keys>,
    policy: Policy,
}

/// Ascending counts.
#[derive(Default)]
pub(crate) struct GateCounts {
    pub(crate) cached: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) busy: AtomicU64,
}

/// All that authentication needs, shared by the threads of a node.
pub(crate) struct Gate {
    auth: AuthConfig,
    acl: AclConfig,
    wanted: Wanted,
    callout: Option<CallOut>,
    key: [u8; 32],
    /// Clients of one user are limited, so that users have to be known.
    counts_users: bool,
    /// How long a client is waited with for an answer: after that nobody needs it.
    patience: Duration,
    accounts: RwLock<Arc<Accounts>>,
    cache: Mutex<Cache>,
    /// For hashing: each job takes a core and 19 MiB.
    hashing: Option<Pool>,
    /// For asking: jobs only wait, and a slow server holds up nobody else.
    asking: Option<Pool>,
    pub(crate) counts: GateCounts,
}

impl Gate {
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, StartError> {
        let (auth, acl) = (config.auth.clone(), config.acl.clone());
        let wanted = Wanted {
            issuer: auth.jwt_issuer.clone(),
            audience: auth.jwt_audience.clone(),
            user_claim: auth.jwt_user_claim.clone(),
            client_claim: auth.jwt_client_claim.clone(),
        };
        let mut key = [0; 32];
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&identity::random_u64()?.to_be_bytes());
        }
        let callout = (!auth.http_url.is_empty()).then(|| CallOut::new(&auth.http_url, auth.http_timeout));
        let local = auth.password_file.is_some() || auth.jwt_keys_file.is_some();
        let hashing = local.then(|| Pool::start("auth", auth.workers, auth.max_waiting)).transpose()?;
        let asking = callout.is_some().then(|| Pool::start("ask", auth.http_workers, auth.max_waiting)).transpose()?;
        let patience = config.limits.broker.auth_timeout;
        let counts_users = config.limits.max_connections_per_user > 0;
        let cache = Mutex::new(Cache::new(auth.max_cached, auth.cache_time));
        let counts = GateCounts::default();
        let accounts = RwLock::default();
        let gate =
            Self { auth, acl, wanted, callout, key, counts_users, patience, accounts, cache, hashing, asking, counts };
        match gate.read() {
            Ok(_) => {
                if !gate.auth.has_accounts() && gate.auth.anonymous() == Anonymous::Loopback {
                    tracing::info!("clients are taken from this machine only: give accounts, or set auth.anonymous");
                }
                Ok(Arc::new(gate))
            }
            Err(problems) => Err(StartError::Setting { key: "auth", what: problems.join("\n") }),
        }
    }

    /// The password file, if there is one.
    pub(crate) fn password_file(&self) -> Option<&Path> {
        self.auth.password_file.as_deref()
    }

    /// The policy of the shards: whether clients are authenticated, and the rules of access.
    pub(crate) fn policy(&self) -> Policy {
        self.accounts().policy.clone()
    }

    /// Reads all files again. If one is wrong everything stays as it was.
    pub(crate) fn read(&self) -> Result<Change, Vec<String>> {
        let mut problems = Vec::new();
        let passwords = take(&mut problems, self.auth.password_file.as_deref(), "auth.password_file", read_passwords);
        let keys = take(&mut problems, self.auth.jwt_keys_file.as_deref(), "auth.jwt_keys_file", read_keys);
        let rules = take(&mut problems, self.acl.file.as_deref(), "acl.file", read_rules);
        if !problems.is_empty() {
            return Err(problems);
        }
        let policy = Policy {
            authenticate: self.counts_users || self.auth.has_accounts() || self.auth.anonymous() != Anonymous::Always,
            rules: rules.map(Arc::new),
            disconnect_refused: self.acl.disconnect,
        };
        let old = self.accounts();
        let revoked = match (&old.passwords, &passwords) {
            (Some(old), Some(new)) => old.revoked(new),
            _ => BTreeSet::new(),
        };
        let generation = old.generation + 1;
        let accounts = Accounts { generation, passwords, keys, policy: policy.clone() };
        *self.accounts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(accounts);
        self.cache().clear();
        Ok(Change { policy, revoked })
    }

    /// The keys that say who knows the accounts, for whoever wonders why a client is refused.
    pub(crate) fn account_keys(&self) -> String {
        let auth = &self.auth;
        let given = [
            ("auth.password_file", auth.password_file.is_some()),
            ("auth.jwt_keys_file", auth.jwt_keys_file.is_some()),
            ("auth.http_url", !auth.http_url.is_empty()),
        ];
        given.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect::<Vec<_>>().join(", ")
    }

    /// How many questions wait for threads.
    pub(crate) fn waiting(&self) -> usize {
        [&self.hashing, &self.asking].into_iter().flatten().map(Pool::waiting).sum()
    }

    /// Finds out who a client is: at once if that takes no time, else through `tell`, from another thread.
    pub(crate) fn ask(
        self: &Arc<Self>,
        credentials: Credentials,
        tell: impl FnOnce(Answer) + Send + 'static,
    ) -> Option<Said> {
        let Credentials { conn: _, client, peer, certificate, user, password, method } = credentials;
        if let Some(method) = method {
            return Some(self.begin(&method, certificate.as_deref()));
        }
        if let Some(user) = certificate {
            return Some(Ok(admit(user)).into());
        }
        if !self.auth.has_accounts() || (user.is_none() && password.is_none()) {
            return Some(self.anonymous(&peer).into());
        }
        let user = user.unwrap_or_default();
        let password = password.map(Vec::from).unwrap_or_default();
        let question = Question { user, password, client: client.as_str().to_owned(), peer };
        let accounts = self.accounts();
        let is_token = accounts.keys.is_some() && jwt::looks_like_token(&question.password);
        if is_token {
            let gate = Arc::clone(self);
            let source = source_of(&question.peer);
            return self.hand_over(self.hashing.as_ref(), source, tell, move |_| {
                gate.check_token(&accounts, &question).into()
            });
        }
        let has_file = accounts.passwords.is_some();
        if question.user.is_empty() || !(has_file || self.callout.is_some()) {
            return Some(Err(ReasonCode::BadUserNameOrPassword).into());
        }
        // A user who is in no file is refused like one with a wrong password if there is no call-out to ask, and not any faster.
        let known = accounts.passwords.as_ref().is_some_and(|passwords| passwords.contains(&question.user));
        let local = known || self.callout.is_none();
        let print = self.fingerprint(&accounts, &question, local);
        if let Some(outcome) = self.cache().get(&print, Instant::now()) {
            self.counts.cached.fetch_add(1, Ordering::Relaxed);
            return Some(Said::Answer(answer(question.user, outcome, local, accounts)));
        }
        let gate = Arc::clone(self);
        let pool = if local { self.hashing.as_ref() } else { self.asking.as_ref() };
        self.hand_over(pool, source_of(&question.peer), tell, move |workspace| {
            let outcome = gate.find_out(workspace, &accounts, &question, print, local);
            answer(question.user, outcome, local, accounts)
        })
    }

    /// The first step of an enhanced authentication (MQTT 5.0 section 4.12). A certificate and a proof have to agree on the user.
    fn begin(&self, method: &Method, certificate: Option<&str>) -> Said {
        let accounts = self.accounts();
        let mechanism = Mechanism::from_name(&method.name);
        let offered = accounts.passwords.as_ref().zip(mechanism).filter(|(file, mechanism)| file.offers(*mechanism));
        let Some((file, mechanism)) = offered else { return Err(ReasonCode::BadAuthenticationMethod).into() };
        let (Ok(a), Ok(b)) = (identity::random_u64(), identity::random_u64()) else {
            return Err(ReasonCode::ServerUnavailable).into();
        };
        let nonce = format!("{a:016x}{b:016x}");
        match Exchange::begin(&method.data, &nonce, |user| file.verifier(mechanism, user)) {
            Ok(exchange) if certificate.is_none_or(|name| name == exchange.user()) => {
                Said::Challenge(Box::new(exchange))
            }
            Ok(_) | Err(_) => Err(ReasonCode::NotAuthorized).into(),
        }
    }

    /// The last step of an enhanced authentication.
    pub(crate) fn finish(&self, exchange: &Exchange, data: &[u8]) -> Answer {
        let accounts = self.accounts();
        // The account may have changed since the first step.
        let current = accounts.passwords.as_ref().is_some_and(|file| {
            file.contains(exchange.user())
                && file.verifier(exchange.mechanism(), exchange.user()) == *exchange.verifier()
        });
        match exchange.finish(data) {
            Ok(last) if current => {
                let data = Some(Bytes::from(last));
                let told = Ok(Admission { account: true, data, ..admit(exchange.user().to_owned()) });
                Answer { told, accounts: Some(accounts) }
            }
            Ok(_) | Err(_) => Err(ReasonCode::NotAuthorized).into(),
        }
    }

    /// Checks an answer where it arrives: the account may have been taken away while its password was checked.
    pub(crate) fn confirm(&self, answer: Answer) -> Result<Admission, ReasonCode> {
        let admission = answer.told?;
        let (Some(then), Some(user)) = (answer.accounts.filter(|_| admission.account), &admission.identity.user) else {
            return Ok(admission);
        };
        let now = self.accounts();
        let same = Arc::ptr_eq(&then, &now)
            || then.passwords.as_ref().zip(now.passwords.as_ref()).is_some_and(|(then, now)| then.agrees(now, user));
        if same { Ok(admission) } else { Err(ReasonCode::NotAuthorized) }
    }

    /// Has a thread find the answer in the turn of `source`. Whoever has to make room for others is told that all are busy.
    fn hand_over(
        self: &Arc<Self>,
        pool: Option<&Pool>,
        source: Box<str>,
        tell: impl FnOnce(Answer) + Send + 'static,
        find: impl FnOnce(&mut Workspace) -> Answer + Send + 'static,
    ) -> Option<Said> {
        let Some(pool) = pool else { return Some(Err(ReasonCode::ServerBusy).into()) };
        let until = Instant::now() + self.patience;
        let gate = Arc::clone(self);
        pool.run(source, move |workspace| match workspace {
            Some(workspace) if Instant::now() < until => {
                gate.counts.asked.fetch_add(1, Ordering::Relaxed);
                tell(find(workspace));
            }
            // The client has been told by now.
            Some(_) => {}
            None => {
                gate.counts.busy.fetch_add(1, Ordering::Relaxed);
                tell(Err(ReasonCode::ServerBusy).into());
            }
        });
        None
    }

    fn find_out(
        &self,
        workspace: &mut Workspace,
        accounts: &Accounts,
        question: &Question,
        print: Fingerprint,
        local: bool,
    ) -> Outcome {
        // Many clients may have come with the same password while the first waited.
        if let Some(outcome) = self.cache().get(&print, Instant::now()) {
            self.counts.cached.fetch_add(1, Ordering::Relaxed);
            return outcome;
        }
        let outcome = match (&accounts.passwords, &self.callout) {
            (Some(passwords), _) if local => {
                let right = passwords.verify(workspace, &question.user, &question.password);
                if right { Ok(()) } else { Err(ReasonCode::BadUserNameOrPassword) }
            }
            (_, Some(callout)) => callout.ask(question),
            _ => Err(ReasonCode::BadUserNameOrPassword),
        };
        if outcome != Err(ReasonCode::ServerUnavailable) {
            self.cache().put(print, outcome, Instant::now());
        }
        outcome
    }

    fn check_token(&self, accounts: &Accounts, question: &Question) -> Result<Admission, ReasonCode> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let names = (question.user.as_str(), question.client.as_str());
        let keys = accounts.keys.as_ref().ok_or(ReasonCode::BadUserNameOrPassword)?;
        let found = keys.check(&question.password, &self.wanted, names, now);
        let (user, secs) = found.ok_or(ReasonCode::BadUserNameOrPassword)?;
        Ok(Admission { expires_in: Some(Span::from_secs(secs.min(LONGEST_ADMISSION))), ..admit(user) })
    }

    /// A server may answer differently for every client id; a password file does not.
    fn fingerprint(&self, accounts: &Accounts, question: &Question, local: bool) -> Fingerprint {
        let (generation, client) = (accounts.generation.to_be_bytes(), question.client.as_bytes());
        let client = if local { &[][..] } else { client };
        fingerprint(&self.key, &[&generation, &[u8::from(local)], question.user.as_bytes(), client, &question.password])
    }

    fn anonymous(&self, peer: &str) -> Result<Admission, ReasonCode> {
        let is_near = || {
            let address = peer.parse::<SocketAddr>().map(|peer| peer.ip().to_canonical());
            // A peer without an address is a socket of this machine.
            address.map_or_else(|_| peer.starts_with("unix"), |ip: IpAddr| ip.is_loopback())
        };
        let allowed = match self.auth.anonymous() {
            Anonymous::Always => true,
            Anonymous::Loopback => is_near(),
            Anonymous::Never => false,
        };
        if allowed { Ok(Admission::default()) } else { Err(ReasonCode::NotAuthorized) }
    }

    fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For whom a question waits: clients of one address take their turns together.
fn source_of(peer: &str) -> Box<str> {
    peer.parse::<SocketAddr>().map_or_else(|_| peer.into(), |peer| network(peer.ip()).to_string().into_boxed_str())
}

fn admit(user: String) -> Admission {
    Identity { user: Some(user.into_boxed_str()) }.into()
}

/// `account`: whether the password file has said it.
fn answer(user: String, outcome: Outcome, account: bool, accounts: Arc<Accounts>) -> Answer {
    let told = outcome.map(|()| Admission { account, ..admit(user) });
    Answer { told, accounts: Some(accounts) }
}

fn take<T>(
    problems: &mut Vec<String>,
    path: Option<&Path>,
    key: &str,
    read: fn(&str) -> Result<T, Vec<String>>,
) -> Option<T> {
    let path = path?;
    let found = match std::fs::read_to_string(path) {
        Ok(text) => read(&text),
        Err(error) => Err(vec![format!(" cannot be read: {error}")]),
    };
    match found {
        Ok(found) => return Some(found),
        Err(what) => problems.extend(what.iter().map(|what| format!("{key}: {}{what}", path.display()))),
    }
    None
}

fn read_passwords(text: &str) -> Result<PasswordFile, Vec<String>> {
    PasswordFile::parse(text).map_err(|errors| errors.iter().map(|error| format!(":{error}")).collect())
}

fn read_keys(text: &str) -> Result<Keys, Vec<String>> {
    Keys::parse(text).map_err(|error| vec![format!(": {error}")])
}

fn read_rules(text: &str) -> Result<Rules, Vec<String>> {
    Rules::parse(text).map_err(|error| error.0.iter().map(|error| format!(":{}: {}", error.line, error.what)).collect())
}

/// Problems of the files that a configuration names.
pub(crate) fn problems(auth: &AuthConfig, acl: &AclConfig) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut look = |key: &'static str, found: Vec<String>| {
        let prefix = format!("{key}: ");
        all.extend(found.iter().map(|what| (key, what.strip_prefix(&prefix).unwrap_or(what).to_owned())));
    };
    let mut found = Vec::new();
    take(&mut found, auth.password_file.as_deref(), "auth.password_file", read_passwords);
    look("auth.password_file", std::mem::take(&mut found));
    take(&mut found, auth.jwt_keys_file.as_deref(), "auth.jwt_keys_file", read_keys);
    look("auth.jwt_keys_file", std::mem::take(&mut found));
    take(&mut found, acl.file.as_deref(), "acl.file", read_rules);
    look("acl.file", found);
    all
}
