//! Clients that are asked who they are.

use std::sync::Arc;

use sedge_base::ConnId;
use sedge_broker::Credentials;
use sedge_cluster::ShardInput;

use super::Worker;
use crate::access::Answer;
use crate::runtime::Letter;

impl Worker {
    /// Answers at once where that takes no time; else another thread sends the answer.
    pub(super) fn authenticate(&mut self, credentials: Credentials) {
        let (conn, shard, shared) = (credentials.conn, self.id, Arc::clone(&self.shared));
        let tell = move |answer| shared.post(shard, Letter::Authenticated(conn, answer));
        if let Some(answer) = self.shared.gate.ask(credentials, tell) {
            self.authenticated(conn, answer);
        }
    }

    pub(super) fn authenticated(&mut self, conn: ConnId, answer: Answer) {
        self.shard.handle(self.now, ShardInput::Authenticated { conn, answer });
    }
}
