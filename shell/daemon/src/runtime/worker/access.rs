//! Clients that are asked who they are.

use std::sync::Arc;

use bytes::Bytes;
use sedge_access::scram::Exchange;
use sedge_base::ConnId;
use sedge_broker::{Admission, Credentials};
use sedge_cluster::ShardInput;
use sedge_mqtt::ReasonCode;

use super::Worker;
use crate::access::{Answer, Said};
use crate::runtime::Letter;
use crate::runtime::clients::Account;

impl Worker {
    /// Answers at once where that takes no time; else another thread sends the answer.
    pub(super) fn authenticate(&mut self, credentials: Credentials) {
        if self.shared.users.is_some()
            && let Some(client) = self.clients.get_mut(credentials.conn)
        {
            let unknown = || Box::new(Account::Unknown(credentials.client.clone()));
            client.account.get_or_insert_with(unknown);
        }
        let (conn, shard, shared) = (credentials.conn, self.id, Arc::clone(&self.shared));
        let tell = move |answer| shared.post(shard, Letter::Authenticated(conn, answer));
        match self.shared.gate.ask(credentials, tell) {
            None => {}
            Some(Said::Answer(answer)) => self.authenticated(conn, answer),
            Some(Said::Challenge(exchange)) => {
                let data = Bytes::copy_from_slice(exchange.server_first().as_bytes());
                self.shard.handle(self.now, ShardInput::Challenge { conn, data, exchange });
            }
        }
    }

    /// The next step of an enhanced authentication takes microseconds: a client has to hash, not the node.
    pub(super) fn proceed(&mut self, conn: ConnId, exchange: &Exchange, data: &[u8]) {
        let answer = self.shared.gate.finish(exchange, data);
        self.authenticated(conn, answer);
    }

    pub(super) fn authenticated(&mut self, conn: ConnId, answer: Answer) {
        let answer = self.shared.gate.confirm(answer);
        let answer = answer.and_then(|admission| self.count_user(conn, admission));
        self.shard.handle(self.now, ShardInput::Authenticated { conn, answer });
    }

    /// Refuses a client whose user has as many as it may.
    fn count_user(&mut self, conn: ConnId, admission: Admission) -> Result<Admission, ReasonCode> {
        let Some(users) = &self.shared.users else { return Ok(admission) };
        let Some(account) = self.clients.get_mut(conn).and_then(|client| client.account.as_mut()) else {
            return Ok(admission);
        };
        if let (Some(user), Account::Unknown(client)) = (&admission.identity.user, &**account) {
            **account = Account::Known(users.enter(user, client).ok_or(ReasonCode::QuotaExceeded)?);
        }
        Ok(admission)
    }
}
